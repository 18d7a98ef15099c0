"""The job of a study, as FLARE reads it: three files of public names, and no code.

An administrator can submit the folder with FLARE's own tools, or leave that to `hubbub serve`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hubbub.errors import StudyError
from hubbub.protocol import Roster
from hubbub.study import Study

SERVER = "server"
_SYNC_SECONDS = 120
_CALLS_AT_ONCE = 4  # a late call may still be under way when the next one comes


def write_job(folder: Path, study: Study, roster: Roster, quorum: int) -> Path:
    """Put the job of a study into a folder.

    Args:
        folder: made if absent.
        study: approved by the parties; only its id is in the job.
        roster: whose names are the sites' names.
        quorum: silos that a round needs.

    Raises:
        StudyError: a party's name cannot be a site's.
    """
    parties = [party.name for party in roster.parties[1:]]
    for name in parties:
        if "." in name:
            raise StudyError(
                f"expected names without dots, as the sites of FLARE have, got {name}; rename it"
            )
    config = folder / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    meta = {
        "name": job_name(study),
        "min_clients": quorum + len(roster.nodes),
        "mandatory_clients": [],
        "resource_spec": {},
        "deploy_map": {"app": [SERVER, *parties]},
    }
    _write(folder / "meta.json", meta)
    _write(config / "config_fed_server.json", _server(study))
    _write(config / "config_fed_client.json", _client())
    return folder


def job_name(study: Study) -> str:
    """What FLARE calls the jobs of a study."""
    return f"hubbub-{study.id.hex()[:16]}"


def _server(study: Study) -> dict[str, Any]:
    controller = {
        "id": "controller",
        "path": "nvflare.collab.runtime.controller.CollabController",
        "args": {"server_obj_id": "aggregator", "sync_task_timeout": _SYNC_SECONDS},
    }
    aggregator = {
        "id": "aggregator",
        "path": "hubbub.network.flare.collab_aggregator.FlareAggregator",
        "args": {"study": study.id.hex()},
    }
    return {"format_version": 2, "workflows": [controller], "components": [aggregator]}


def _client() -> dict[str, Any]:
    executor = {
        "path": "hubbub.network.flare.sturdy.SturdyExecutor",
        "args": {"client_obj_id": "party", "max_inbound_call_threads": _CALLS_AT_ONCE},
    }
    party = {"id": "party", "path": "hubbub.network.flare.collab_party.FlareParty", "args": {}}
    return {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "components": [party],
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
