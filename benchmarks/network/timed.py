"""What FLARE starts for the timing of steps: the study's classes, and bare traffic beside them.

Before every MODEL of the study, blobs of the same size go to the same sites over the same engine,
and blobs of the same size as a MASKED come back, with nothing done to them. So whatever slows the
machine down for a while slows both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from nvflare.collab import collab

from hubbub.network.engine import Missing, Phase
from hubbub.network.flare.carrier import phase_over_collab
from hubbub.network.flare.collab_aggregator import FlareAggregator
from hubbub.network.flare.collab_party import FlareParty
from hubbub.network.flare.outcome import leave_word, run_folder
from hubbub.network.flare.site_settings import Settings
from hubbub.network.serve import serve

TIMES = "times.jsonl"
_BARE = b"bare"


class TimedParty(FlareParty):
    """Answers bare requests with as many bytes as they ask for."""

    @collab.publish
    def answer(self, parcel: bytes) -> bytes:
        """What this party says to a parcel, or just bytes."""
        if parcel[:4] == _BARE:
            return bytes(int.from_bytes(parcel[4:12], "little"))
        return super().answer(parcel)


class Timer:
    """The engine, with a bare phase before every MODEL."""

    def __init__(self, phase: Phase, path: Path) -> None:
        self._phase, self._path, self._answer = phase, path, 0
        self._bare = self._model = self._arrived = self._aside = 0.0
        self._last = time.perf_counter()

    def phase(
        self, name: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        """A phase as it is; if it is a MODEL's, a bare one first."""
        if name != "model":
            yield from self._phase(name, requests, deadline)
            return
        came = time.perf_counter()
        self._before(requests, deadline)
        began = time.perf_counter()
        self._aside = began - came
        for party, found in self._phase(name, requests, deadline):
            self._answer = 0 if isinstance(found, Missing) else len(found)
            self._arrived = time.perf_counter() - began
            yield party, found
        self._model = time.perf_counter() - began

    def _before(self, requests: Mapping[str, bytes], deadline: float) -> None:
        sizes = {party: len(parcel) for party, parcel in requests.items()}
        asked = _BARE + self._answer.to_bytes(8, "little")
        blobs = {party: asked + bytes(size - len(asked)) for party, size in sizes.items()}
        began = time.perf_counter()
        heard = dict(self._phase("bare", blobs, deadline))
        self._bare = time.perf_counter() - began
        if self._answer and any(len(one) != self._answer for one in heard.values()):  # type: ignore[arg-type]
            self._bare = float("nan")

    def stepped(self, step: int, _row: Mapping[str, float]) -> None:
        """Write the step's times down."""
        now = time.perf_counter()
        whole, self._last = now - self._last - self._aside, now
        line = {
            "step": step,
            "whole": whole,
            "bare": self._bare,
            "phase": self._model,
            "last_answer": self._arrived,
            "answer_bytes": self._answer,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class TimedAggregator(FlareAggregator):
    """The aggregator, with a timer between it and the engine."""

    @collab.main
    def main(self) -> None:
        """Run the study."""
        settings = Settings.read(Path(collab.workspace.get_site_config_dir()))
        home = Path(settings.home)
        study = settings.site.study(bytes.fromhex(self._study))
        assert study is not None
        timer = Timer(phase_over_collab(), home / TIMES)
        serve(
            settings.site,
            study,
            run_folder(home, self._study),
            timer.phase,
            event_log=settings.event_log(),
            timeouts=settings.timeouts,
            progress=timer.stepped,
        )
        leave_word(home, self._study, None)
