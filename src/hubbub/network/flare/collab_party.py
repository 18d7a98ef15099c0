"""The class that FLARE starts at a silo's or a compute node's site.

A job names it and nothing else. Keys, rosters, approvals, records and ledgers come from this
machine's own settings, which no job can reach.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.collab import collab

from hubbub.errors import UserError
from hubbub.network.endpoint import Endpoint
from hubbub.network.flare.kit import check_code
from hubbub.network.flare.site_settings import Settings


class FlareParty:
    """A silo or a compute node: hands what the server's worker sends to its endpoint."""

    def __init__(self) -> None:
        self._endpoint: Endpoint | None = None

    @collab.init
    def begin(self) -> None:
        """Take the place that this machine's settings describe."""
        settings = Settings.read(Path(collab.workspace.get_site_config_dir()))
        event_log = settings.event_log()
        if settings.site.name != collab.site_name:
            raise UserError(
                f"expected the site {collab.site_name} to be the party {settings.site.name}; "
                "give both the same name"
            )
        check_code(Path(collab.workspace.get_site_config_dir()), allowed=settings.allow_byoc)
        self._endpoint = settings.endpoint(event_log)

    @collab.final
    def end(self) -> None:
        """Leave the ledger closed."""
        if self._endpoint is not None:
            self._endpoint.close()

    @collab.publish
    def answer(self, envelope: bytes) -> bytes:
        """What this party says to an envelope; other sites are not answered."""
        if self._endpoint is None or collab.caller != "server" or type(envelope) is not bytes:
            return b""
        return self._endpoint.answer(envelope)
