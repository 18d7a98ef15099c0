"""The two classes that FLARE starts: one at the server, one at every other site.

A job names them and the study's id, and nothing else. Keys, rosters, approvals, records and ledgers
come from this machine's own settings, which no job can reach.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.collab import collab

from hubbub.errors import HubbubError, UserError
from hubbub.network.flare.carrier import AbortedError, phase_over_collab
from hubbub.network.flare.kit import check_code
from hubbub.network.flare.outcome import leave_word, run_folder
from hubbub.network.seat import Seat
from hubbub.network.serving import serve
from hubbub.network.settings import Settings
from hubbub.network.silo import SiloSeat


class FlareParty:
    """A silo or a compute node: hands what the server's worker sends to its seat."""

    def __init__(self) -> None:
        self._seat: Seat | None = None

    @collab.init
    def begin(self) -> None:
        """Take the seat that this machine's settings describe."""
        settings = Settings.read(Path(collab.workspace.get_site_config_dir()))
        journal = settings.journal()
        if settings.site.name != collab.site_name:
            raise UserError(
                f"expected the site {collab.site_name} to be the party {settings.site.name}; "
                "give both the same name"
            )
        check_code(Path(collab.workspace.get_site_config_dir()), allowed=settings.allow_byoc)
        self._seat = settings.seat(journal)

    @collab.final
    def end(self) -> None:
        """Leave the ledger closed."""
        if isinstance(self._seat, SiloSeat):
            self._seat.close()

    @collab.publish
    def answer(self, parcel: bytes) -> bytes:
        """What this party says to a parcel; other sites are not answered."""
        if self._seat is None or collab.caller != "server" or type(parcel) is not bytes:
            return b""
        return self._seat.answer(parcel)


class FlareAggregator:
    """The aggregator: runs the study, and leaves word of how it ended.

    Args:
        study: the id of a study that is approved here, hexadecimal.
    """

    def __init__(self, study: str) -> None:
        self._study = study

    @collab.main
    def main(self) -> None:
        """Run the study, or go on with it."""
        settings = Settings.read(Path(collab.workspace.get_site_config_dir()))
        journal, out = settings.journal(), run_folder(Path(settings.home), self._study)
        try:
            site = settings.site
            study = site.study(bytes.fromhex(self._study))
            if study is None:
                raise UserError(
                    "expected a study that was approved at the aggregator, got "
                    f"{self._study[:16]}; run hubbub approve there"
                )
            phase = phase_over_collab()
            serve(site, study, out, phase, journal=journal, patience=settings.patience)
        except AbortedError:
            journal.warn("stopped", said="the engine has ended the job; it is submitted again")
            raise
        except HubbubError as error:
            journal.warn("stopped", said=str(error))
            leave_word(Path(settings.home), self._study, error)
            raise
        leave_word(Path(settings.home), self._study, None)
