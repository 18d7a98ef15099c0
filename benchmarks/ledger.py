"""What a ledger row costs a round, beside the least that a durable row can cost.

    python -m benchmarks.ledger [--rounds 1250] [--folder DIR] [--write] [--json]

"charge" is `Ledger.charge` as a silo calls it in every round: it takes the lock, looks at what
others wrote, checks the study's attempts and the cap over all studies, signs the row, writes it,
reads it back and syncs it to disk. "bare append and fsync" writes the same number of bytes to the
end of a file in the same folder and syncs it: nothing durable can be cheaper. The two are timed in
turn in one process, so that a disk that is slow for a while is slow for both. A ledger with an
earlier study in it stands for a data set that is used again.

The first charge of a session is listed by itself: there the cap is checked for all rounds at once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.result_table import write_table
from hubbub.core.ledger.privacy_ledger import Cap, Entry, Ledger, LedgerMechanism
from hubbub.core.privacy.certificate import Certificate

ROUNDS, EARLIER = 1250, 250
RESULTS = Path(__file__).parent / "results"
CERTIFICATE = Certificate(epsilon=1e-6, slack=1e-12)
CAP = Cap(epsilon=8.0, delta=1e-5, relation="add-remove")


@dataclass(frozen=True, kw_only=True)
class Times:
    """Of one way to write a row, in milliseconds; and how busy the machine was."""

    way: str
    rows: int
    first: float
    p50: float
    p90: float
    p99: float
    most: float
    load: float

    @classmethod
    def of(cls, way: str, seconds: Sequence[float]) -> Times:
        """From the seconds that each row took."""
        first, *rest = (1e3 * one for one in seconds)
        p50, p90, p99 = (float(np.percentile(rest, q)) for q in (50, 90, 99))
        return cls(
            way=way,
            rows=len(seconds),
            first=first,
            p50=p50,
            p90=p90,
            p99=p99,
            most=max(rest),
            load=os.getloadavg()[0],
        )


def entry(number: int, study: int, noise_multiplier: float) -> Entry:
    return Entry(
        study=bytes([study]) * 32,
        session=bytes([study]) * 16,
        round=number,
        attempt=0,
        kind=LedgerMechanism(
            noise_multiplier=noise_multiplier, sample_rate=0.008, sampling="poisson"
        ),
        certificate=CERTIFICATE,
    )


def measured(rounds: int, folder: Path) -> list[Times]:
    """Charges and bare rows in turn."""
    charged, bare = [], []
    with Ledger(folder / "ledger.sqlite") as ledger, (folder / "bare").open("ab", 0) as file:
        for number in range(1, EARLIER + 1):
            ledger.charge(entry(number, 1, 4.0), attempts=EARLIER)
        ledger.set_cap(CAP)
        row = bytes(size_of_row(folder / "ledger.sqlite"))

        def append() -> None:
            file.write(row)
            os.fsync(file.fileno())

        for number in range(1, rounds + 1):
            charge = entry(number, 2, 1.0)
            charged.append(seconds(lambda: ledger.charge(charge, attempts=rounds)))  # noqa: B023 (called at once)
            bare.append(seconds(append))
        assert ledger.verify() == EARLIER + rounds
    return [Times.of("charge", charged), Times.of("bare append and fsync", bare)]


def size_of_row(path: Path) -> int:
    """Bytes of the newest entry as it is stored: number, text and signature."""
    with Ledger(path) as ledger:
        *_, last = ledger.entries()
    return 8 + len(json.dumps({"charge": last.to_dict()})) + 64


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.folder) as folder:
        times = measured(options.rounds, Path(folder))
    charge, bare = times
    ratios = {name: getattr(charge, name) / getattr(bare, name) for name in ("p50", "p90", "p99")}
    if options.json:
        print(json.dumps({"times": [asdict(one) for one in times], "ratio": ratios}))
    else:
        show(times, ratios)
    if options.write:
        write(times)


def show(times: Sequence[Times], ratios: dict[str, float]) -> None:
    print(
        f"{'milliseconds':24}" + "".join(f"{n:>9}" for n in ("first", "p50", "p90", "p99", "most"))
    )
    for one in times:
        values = (one.first, one.p50, one.p90, one.p99, one.most)
        print(f"{one.way:24}" + "".join(f"{value:9.3f}" for value in values))
    print(
        f"{'times the bare row':24}{'':9}" + "".join(f"{ratio:9.2f}" for ratio in ratios.values())
    )


def write(times: Sequence[Times]) -> None:
    rounded = [
        {k: v if isinstance(v, str) else round(v, 4) for k, v in asdict(one).items()}
        for one in times
    ]
    write_table(RESULTS / "ledger.csv", rounded)


if __name__ == "__main__":
    main()
