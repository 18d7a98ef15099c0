"""What one silo takes on a machine of its own: an interpreter that read its libraries for itself.

Its records are a CSV file. The others are processes that share their libraries, as in `crowd`. Of
the silo and of a compute node: memory that is resident, its peak, and seconds of the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.network.stage import wait
from benchmarks.network.table import write
from hubbub.desk.cli.main import main
from hubbub.site.network.demo import DemoConsortium, read_libraries

FEATURES, SILOS = 20, ("north", "south", "west")


@dataclass(frozen=True, kw_only=True)
class Party:
    """What a party's process took, from its start to the study's end.

    Args:
        party, role: which.
        rows: of its file.
        joined_mib: resident once it was connected.
        end_mib: resident at the study's end.
        end_own_mib: of that, what is no file's, and so is shared with nobody on the same machine.
        peak_mib: the most that was resident.
        processor_seconds: in all.
    """

    party: str
    role: str
    rows: int
    joined_mib: float
    end_mib: float
    end_own_mib: float
    peak_mib: float
    processor_seconds: float


def measured(steps: int, sizes: tuple[int, ...] = (1_000, 100_000)) -> list[Party]:
    """Of one run for each size of files."""
    read_libraries(main)
    rows = [one for size in sizes for one in _run(size, steps)]
    write("network_silo", rows, f"silo --steps {steps}", fresh=True)
    return rows


def study(rows: int, steps: int) -> str:
    """A small study of files of so many rows."""
    columns = "\n".join(f"{name} = {{ low = -5, high = 5 }}" for name in _names())
    return f"""
study.name = "one silo"
parties = {{names = ["north", "south", "west"], colluders = 1}}
model.kind = "logistic"
training = {{steps = {steps}, sample_rate = 0.1, optimizer = {{name = "adam", lr = 0.1}}}}
privacy = {{epsilon = 2.0, delta = 1e-6}}
[data]
files = "{{name}}.csv"
target = "died"
positive = ["1"]
negative = ["0"]
records = {rows * len(SILOS)}
capacity = {rows}
[data.columns]
{columns}
"""


def _names() -> list[str]:
    return [f"x{number:02}" for number in range(FEATURES)]


def _write(path: Path, rows: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(rows, FEATURES)).round(3)
    died = (values[:, 0] + draw.normal(size=rows) > 0).astype(int)
    lines = [",".join([*_names(), "died"])]
    lines += [
        ",".join([*map(str, row), str(end)])
        for row, end in zip(values.tolist(), died.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _run(rows: int, steps: int) -> list[Party]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        consortium = DemoConsortium.made(home, study(rows, steps), 1, lambda _: None, main)
        for seed, name in enumerate(SILOS):
            _write(home / name / f"{name}.csv", rows, seed)
        server = consortium.serve()
        alone = {name: _alone(home / name) for name in (SILOS[0], "node-1")}
        wait(lambda: all(_is_there(home / name) for name in alone), 100.0)
        joined = {name: _mib(one.pid)["VmRSS"] for name, one in alone.items()}
        for name in SILOS[1:]:
            consortium.join(name)
        ended = server.wait(200.0)
        assert ended == 0, (home / "aggregator" / "errors.txt").read_text()
        found = []
        for name, one in alone.items():
            took, role = _mib(one.pid), "silo" if name in SILOS else "node"
            one.terminate()
            _, _, used = os.wait4(one.pid, 0)
            one.returncode = 0
            found.append(
                Party(
                    party=name,
                    role=role,
                    rows=rows if role == "silo" else 0,
                    joined_mib=joined[name],
                    end_mib=took["VmRSS"],
                    end_own_mib=took["RssAnon"],
                    peak_mib=took["VmHWM"],
                    processor_seconds=used.ru_utime + used.ru_stime,
                )
            )
        consortium.end()
    return found


def _alone(home: Path) -> subprocess.Popen[bytes]:
    """hubbub in an interpreter of its own."""
    command = [sys.executable, "-m", "hubbub", "join", "--home", str(home), "--device", "cpu"]
    with (home / "output.txt").open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def _is_there(home: Path) -> bool:
    path = home / "events.jsonl"
    return path.exists() and '"connected"' in path.read_text(encoding="utf-8")


def _mib(process: int) -> dict[str, float]:
    """What the system says of a process's memory."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return {
        key: int(rest.split()[0]) / 1024
        for key, _, rest in (line.partition(":") for line in lines)
        if rest.endswith(" kB")
    }
