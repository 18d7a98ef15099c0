"""How long a step takes between machines, beside the same traffic with nothing done to it.

Four silos, a million parameters, 16-bit words, pairwise masks, TLS with certificates on both
sides, everything on the loopback. `timed` is what FLARE starts. A step is everything from one
model to the next: gradients at the silos, noise, masks, ledger, the phase, the sum, the optimizer,
the transcript and the checkpoint. Wanted: at most 2.5 times the bare traffic;
docs/network.md says what was reached.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w

from benchmarks.network.stage import study_of, wait
from benchmarks.network.table import write
from benchmarks.network.timed import TIMES
from hubbub.network.flare.demo import Consortium
from hubbub.network.flare.job import write_job
from hubbub.network.flare.kit import prepare
from hubbub.network.flare.outcome import OUTCOME
from hubbub.network.flare.parent import Parent, administered
from hubbub.network.flare.provision import ADMIN
from hubbub.network.flare.site_settings import Settings
from hubbub.network.party_folder import read_roster
from hubbub.planning import plan

HIDDEN = [1000, 971]  # with 26 inputs and one output: 999,943 parameters
_SKIPPED = 5  # the first steps, in which things are imported and caches fill
_CLASSES = {
    f"hubbub.network.flare.collab_{old}": f"benchmarks.network.timed.{new}"
    for old, new in (
        ("aggregator.FlareAggregator", "TimedAggregator"),
        ("party.FlareParty", "TimedParty"),
    )
}


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Medians over steps, in milliseconds."""

    download: str
    parameters: int
    word_bits: int
    sample_rate: float
    steps: int
    bare_ms: float
    step_ms: float
    ratio: float
    ratio_p90: float
    phase_ms: float
    rest_ms: float


def measured(download: str, steps: int, rate: float) -> Pace:
    """One study, timed."""
    training = {"download": download, "sample_rate": rate}
    model = {"kind": "mlp", "hidden": HIDDEN}
    table = study_of("steps", steps, training=training, model=model)
    table["study"]["transcript"] = "hashes"
    with tempfile.TemporaryDirectory() as folder:
        consortium = Consortium.made(Path(folder), tomli_w.dumps(table), 0, lambda _: None)
        with running(consortium, _CLASSES):
            pass
        lines = (Path(folder) / "aggregator" / TIMES).read_text(encoding="utf-8").splitlines()
    made = plan(consortium.study)
    rows = [json.loads(line) for line in lines][_SKIPPED:]
    pace = _pace(rows, download, rate, made)
    command = f"steps --steps {steps} --rate {rate}"
    write("network_steps", [pace], command, fresh=False)
    return pace


def _pace(rows: list[dict[str, Any]], download: str, rate: float, made: Any) -> Pace:
    ratios = sorted(one["whole"] / one["bare"] for one in rows)
    bare, whole, phase = (
        1e3 * median(one[what] for one in rows) for what in ("bare", "whole", "phase")
    )
    return Pace(
        download=download,
        parameters=made.dimension,
        word_bits=made.word_bits,
        sample_rate=rate,
        steps=len(rows),
        bare_ms=bare,
        step_ms=whole,
        ratio=median(ratios),
        ratio_p90=ratios[int(0.9 * len(ratios))],
        phase_ms=phase,
        rest_ms=1e3 * median(one["whole"] - one["phase"] for one in rows),
    )


@contextmanager
def running(
    consortium: Consortium, classes: Mapping[str, str], seconds: float = 900.0
) -> Iterator[None]:
    """The consortium's study from start to end, with other classes in the job than usual."""
    roster = read_roster(consortium.folder / "roster.toml")
    os.environ["OMP_NUM_THREADS"] = "1"  # as in the demo: the silos share this machine's cores
    with ExitStack() as stack:
        for name in ("aggregator", *consortium.members):
            home = consortium.folder / name
            settings = Settings(home=str(home.resolve()), data=str(home.resolve()))
            kit = prepare(consortium.kits[name], settings)
            _allow(kit / "local" / "resources.json")
            parent = Parent(kit, home / "engine.log")
            stack.callback(parent.stop)
            parent.start()
        job = write_job(consortium.folder / "job", consortium.study, roster, quorum=4)
        for path in (job / "app" / "config").iterdir():
            text = path.read_text(encoding="utf-8")
            for old, new in classes.items():
                text = text.replace(old, new)
            path.write_text(text, encoding="utf-8")
        with administered(consortium.kits[ADMIN], wait=120.0) as admin:
            wanted = set(consortium.members)
            assert wait(lambda: wanted <= admin.sites(), 120.0), "somebody did not connect"
            named = admin.submit(job)
            yield
            _until_over(consortium, lambda: admin.status(named), seconds)


def _until_over(consortium: Consortium, status: Any, seconds: float) -> None:
    """Until the aggregator has left word."""
    end = time.monotonic() + seconds
    outcome = consortium.folder / "aggregator" / OUTCOME
    while not outcome.is_file():
        assert time.monotonic() < end, "the run took too long"
        assert not (said := status()).startswith("FINISHED") or outcome.is_file(), said
        time.sleep(2.0)
    assert json.loads(outcome.read_text(encoding="utf-8"))["done"], "the run did not end well"


def _allow(path: Path) -> None:
    """A job may name the classes of `timed` too."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content["class_allow_list"].append("benchmarks.network.")
    path.write_text(json.dumps(content), encoding="utf-8")
