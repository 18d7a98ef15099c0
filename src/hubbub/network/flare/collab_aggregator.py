"""The class that FLARE starts at the server: the aggregator of one study.

A job names it and the study's id, and nothing else. Keys, roster and approvals come from this
machine's own settings, and the run's folder is below the aggregator's.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.collab import collab

from hubbub.errors import HubbubError, UserError
from hubbub.network.flare.carrier import JobEndedError, phase_over_collab
from hubbub.network.flare.outcome import leave_word, run_folder
from hubbub.network.flare.site_settings import Settings
from hubbub.network.serve import serve


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
        event_log, out = settings.event_log(), run_folder(Path(settings.home), self._study)
        try:
            site = settings.site
            study = site.study(bytes.fromhex(self._study))
            if study is None:
                raise UserError(
                    "expected a study that was approved at the aggregator, got "
                    f"{self._study[:16]}; run hubbub approve there"
                )
            phase = phase_over_collab()
            serve(site, study, out, phase, event_log=event_log, timeouts=settings.timeouts)
        except JobEndedError:
            event_log.warn("stopped", said="the engine has ended the job; it is submitted again")
            raise
        except HubbubError as error:
            event_log.warn("stopped", said=str(error))
            leave_word(Path(settings.home), self._study, error)
            raise
        leave_word(Path(settings.home), self._study, None)
