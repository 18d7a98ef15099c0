"""A site's kit, as FLARE's provisioning made it, set up for hubbub and for nothing else.

    local/authorization.json   code inside jobs ("BYOC") is forbidden to everybody
    local/resources.json       classes that a job may name: Collab's own and hubbub's; a worker that
                               died is started again; no logs leave the site
    local/log_config.json      warnings only, into files
    local/hubbub.toml          this party's settings

What an administrator has changed there before is kept, but for these entries. This file knows
FLARE's files, and starts nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hubbub.errors import UserError
from hubbub.network.flare.site_settings import Settings

_CLASSES = ["nvflare.collab.runtime.", "hubbub.network.flare."]
_TALKATIVE = ("site_log_streamer", "log_receiver")
_ROLES = ("project_admin", "org_admin", "lead", "member")
# What nobody may do at a site, whoever the certificates' authority says they are.
_FORBIDDEN = {"byoc": "none", "shell_commands": "none"}
_RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")


def prepare(kit: Path, settings: Settings) -> Path:
    """Set a kit up for hubbub; the folder as FLARE wants it named.

    Args:
        kit: the folder with `startup` and `local` that provisioning made for this site.
        settings: of this party; they say whether a rule that allows code inside jobs may stay.

    Raises:
        UserError: it is no such folder, or it allows code inside jobs.
    """
    local = kit.resolve() / "local"
    if not (kit / "startup").is_dir() or not local.is_dir():
        raise UserError(
            f"expected a site's startup kit in {kit}, with the folders startup and local, found "
            "none; make it with nvflare provision"
        )
    if not (local / "authorization.json").is_file():
        _forbid_code(local)
    check_code(local, allowed=settings.allow_byoc)
    _write(local / "resources.json", _resources(_read(local, "resources.json"), local.parent))
    _write(local / "log_config.json", _quiet(_read(local, "log_config.json")))
    settings.write(local)
    return local.parent


def is_server(kit: Path) -> bool:
    """Whether a kit is the server's."""
    return (kit / "startup" / "fed_server.json").is_file()


def is_admin(kit: Path) -> bool:
    """Whether a kit is an administrator's."""
    return (kit / "startup" / "fed_admin.json").is_file()


def check_code(local: Path, *, allowed: bool) -> None:
    """Refuse a site whose rules let anybody's job bring code, unless its administrator wants that.

    Raises:
        UserError: it does.
    """
    roles = _read(local, "authorization.json").get("permissions", {})
    loose = [name for name, rights in roles.items() if not _forbids(rights)]
    if loose and not allowed:
        raise UserError(
            f'expected {local / "authorization.json"} to say "byoc": "none" for every role, it '
            f"allows code inside the jobs of {', '.join(loose)}; forbid it, or say --allow-byoc if "
            "you trust them all"
        )


def _forbid_code(local: Path) -> None:
    """Nobody may bring code or look around, where nothing was said about it."""
    rules = _read(local, "authorization.json")
    for name in _ROLES:
        rights = rules["permissions"].get(name, "none")
        whole = dict.fromkeys(_RIGHTS, rights) if isinstance(rights, str) else rights
        rules["permissions"][name] = whole | _FORBIDDEN
    _write(local / "authorization.json", rules)


def _forbids(rights: Any) -> bool:
    """Whether a role may bring no code; what is not said is not allowed."""
    return rights == "none" or (isinstance(rights, dict) and rights.get("byoc", "none") == "none")


def _resources(content: dict[str, Any], kit: Path) -> dict[str, Any]:
    """Which classes a job may name, and how workers are started."""
    components = [one for one in content["components"] if one["id"] not in _TALKATIVE]
    for one in components:
        if one["id"] == "process_launcher" and "client" in one["path"]:
            one["path"] = "hubbub.network.flare.sturdy.SturdyLauncher"
        if one["id"] == "job_manager":
            one["args"]["uri_root"] = str(kit / "jobs")
    if "snapshot_persistor" in content:
        storage = content["snapshot_persistor"]["args"]["storage"]["args"]
        storage["root_dir"] = str(kit / "snapshots")
    return {
        **content,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": _CLASSES,
        "allow_log_streaming": False,
        "components": components,
    }


def _quiet(content: dict[str, Any]) -> dict[str, Any]:
    """Warnings alone, in the log file alone."""
    root = {"level": "WARNING", "handlers": ["logFileHandler"]}
    return {**content, "loggers": {**content["loggers"], "root": root}}


def _read(local: Path, name: str) -> dict[str, Any]:
    """A file of the administrator's, or the one that FLARE brings."""
    path = local / name if (local / name).is_file() else local / f"{name}.default"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"expected {path} as FLARE 2.9 writes it, found {error}; provision the kit again"
        ) from None
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
