"""Startup kits for a small consortium: the certificates of TLS, and FLARE's configuration.

FLARE's own provisioning makes them; this file says for whom. Whoever runs it holds the authority
that every site's certificate hangs from, and could make more of them: that is why parties check
each other's keys by the roster, and trust FLARE's identities for nothing.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from hubbub.errors import UserError
from hubbub.protocol import Roster

ADMIN = "admin@hubbub.local"
_ORG, _PROJECT = "hubbub", "consortium"


def provision(
    folder: Path, roster: Roster, *, host: str, port: int, scheme: str = "tcp"
) -> dict[str, Path]:
    """Make a kit for everybody in a roster, and one for an administrator.

    Args:
        folder: new or empty.
        roster: whose names become the names of the sites; the aggregator is at the server.
        host: the server's name, as the sites reach it.
        port: of the server; the next one is the administrators'.
        scheme: "tcp" or "grpc", both inside TLS; tcp is the faster.

    Returns:
        Kits by party name; the administrator's is ADMIN.

    Raises:
        UserError: the folder holds something.
    """
    from nvflare.lighter.entity import Project, participant_from_dict
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.signature import SignatureBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"expected a new folder for the kits, got {folder} with files in it")
    sites = [party.name for party in roster.parties[1:]]
    people: list[dict[str, Any]] = [
        {"name": host, "type": "server", "fed_learn_port": port, "admin_port": port + 1},
        *({"name": name, "type": "client"} for name in sites),
        {"name": ADMIN, "type": "admin", "role": "project_admin"},
    ]
    people = [{**one, "org": _ORG} for one in people]
    props = {"api_version": 3, "name": _PROJECT, "participants": people}
    project = Project(name=_PROJECT, description="", props=props)
    for one in people:
        project.add_participant(participant_from_dict(dict(one)))  # which empties what it is given
    templates = ["master_template.yml", "aws_template.yml", "azure_template.yml"]
    builders = [
        WorkspaceBuilder(template_file=templates),
        StaticFileBuilder(config_folder="config", scheme=scheme),
        CertBuilder(),
        SignatureBuilder(),
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        Provisioner(str(folder), builders).provision(project)
    made = folder / _PROJECT / "prod_00"
    kits = {name: made / name for name in (*sites, ADMIN)}
    return {roster.name(0): made / host, **kits}
