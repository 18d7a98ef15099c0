"""Many random kills over one run: nothing may be lost, nothing used twice.

After each step that is made, one to five processes are killed at once, after a random moment: silos
and nodes mostly, which are started again, the relay and the aggregator's process sometimes; now and
then also before a step was made, while a session is being set up. Where the aggregator stops, as it
says it does after three sessions without a sum, it is served again, as a person would. The books
are looked at as `accounts` says.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.network.accounts import account
from benchmarks.network.stage import Run, Stage, strike, study_of, wait
from benchmarks.network.table import write

DEADLINE = 4.0
_RELAY, _SERVER, _EARLY = 0.1, 0.02, 0.1  # shares: of kills, of kills, of blows
_MOST_AT_ONCE = 5


@dataclass(frozen=True, kw_only=True)
class Killed:
    """What became of the run."""

    masks: str
    kills: int
    parties: int
    relays: int
    servers: int
    blows: int
    verdict: str
    exit_code: int | None
    steps: int
    attempts: int
    rows: str
    sessions: int
    served: int
    minutes: float
    wrong: str


def measured(nodes: int, kills: int, steps: int, seed: int, minutes: float) -> Killed:
    """So many kills over one run of at most so many steps and minutes."""
    chance, began = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Stage.set(Path(folder), nodes) as stage:
        run = stage.begin(study_of("kills", steps), *_options())
        run.reach(3, 240.0)
        done: Counter[str] = Counter()
        while done.total() - done["blows"] < kills and time.monotonic() - began < 60 * minutes:
            if not _struck(run, chance, done):
                break
        while (code := run.end(900.0)) not in (0, None) and run.served < 40:
            run.serve()
        books = account(run.books, finished=code == 0)
        made = Killed(
            masks=f"{nodes} nodes" if nodes else "pairwise",
            kills=done["party"] + done["relay"] + done["server"],
            parties=done["party"],
            relays=done["relay"],
            servers=done["server"],
            blows=done["blows"],
            verdict="ended well" if code == 0 and not books.wrong else "WRONG",
            exit_code=code,
            steps=books.step,
            attempts=books.counted,
            rows=books.rows,
            sessions=sum(one["event"] == "open" for one in run.events),
            served=run.served,
            minutes=(time.monotonic() - began) / 60,
            wrong="; ".join(books.wrong),
        )
    command = f"kills --nodes {nodes} --kills {kills} --steps {steps} --seed {seed}"
    write("network_kills", [made], command, fresh=False)
    return made


def _options() -> tuple[str, ...]:
    return ("--deadline", str(DEADLINE), "--waiting", "240")


def _struck(run: Run, chance: random.Random, done: Counter[str]) -> bool:
    """One blow, after a step or before one; False when the run is over."""
    before = len(run.steps)
    if chance.random() > _EARLY:
        wait(lambda: len(run.steps) > before or run.server.returncode is not None, 180.0)
    time.sleep(chance.uniform(0.0, 1.0))
    if run.server.returncode is not None:
        if run.server.returncode == 0:
            return False
        run.serve()
        return True
    done["blows"] += 1
    for name in chance.sample(run.stage.consortium.members, chance.randint(1, _MOST_AT_ONCE)):
        _kill(run, name, chance, done)
    if done["blows"] % 10 == 0:
        print(f"{time.strftime('%H:%M:%S')} step {run.step}, {dict(done)}", flush=True)
    return True


def _kill(run: Run, name: str, chance: random.Random, done: Counter[str]) -> None:
    """A party, the relay, or the aggregator's process with its relay."""
    drawn = chance.random()
    if drawn < _SERVER:
        run.server.send_signal(signal.SIGKILL)
        run.server.wait()
        run.serve()
        done["server"] += 1
    elif drawn < _SERVER + _RELAY:
        done["relay"] += strike(run.stage.relay())
    else:
        run.stage.fell(name)
        done["party"] += 1
