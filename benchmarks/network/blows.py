"""What is done to a running consortium, one blow at a time.

A blow is a function: it hurts, waits until it has been felt where that matters, and mends what a
person would mend. What the run makes of it is looked at elsewhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hubbub
from benchmarks.network.link import Link
from benchmarks.network.stage import Run, strike, wait

DEADLINE = 5.0  # seconds, of `hubbub serve`
SILO, NODE = "hungary", "node-1"
_FELT = 120.0


@dataclass(frozen=True, kw_only=True)
class Blow:
    """One thing that is done.

    Args:
        name: for people.
        does: it.
        linked: whether the silo must be behind a network of its own.
        dropouts: silos that the study can do without.
        large: whether the model is large enough for the line to matter.
    """

    name: str
    does: Callable[[Run, Link | None], None]
    linked: bool = False
    dropouts: int = 0
    large: bool = False


def _worker(name: str) -> Callable[[Run, Link | None], None]:
    return lambda run, _: _killed(run.stage.worker(name))


def _parent(name: str) -> Callable[[Run, Link | None], None]:
    return lambda run, _: _killed(run.stage.parent(name))


def _killed(pid: int | None) -> None:
    if not strike(pid):
        raise RuntimeError("expected a process to kill, found none")


def _join_killed(run: Run, _: Link | None) -> None:
    """The whole of it: what it started stays behind, and it is started again."""
    joined = run.stage.consortium.joined[SILO]
    joined.kill()
    joined.wait()
    time.sleep(2.0)
    run.stage.consortium.join(SILO)


def _reboot(run: Run, _: Link | None) -> None:
    """Everything of a silo's machine at once, and then its `hubbub join`."""
    joined = run.stage.consortium.joined[SILO]
    joined.kill()
    joined.wait()
    for pid in (run.stage.parent(SILO), run.stage.worker(SILO)):
        strike(pid)
    time.sleep(2.0)
    run.stage.consortium.join(SILO)


def _serve_killed(run: Run, _: Link | None) -> None:
    run.server.kill()
    run.server.communicate()
    time.sleep(2.0)
    run.serve()


def _serve_stopped(run: Run, _: Link | None) -> None:
    """As a person does with Ctrl-C."""
    run.server.send_signal(signal.SIGTERM)
    run.server.communicate(timeout=60.0)
    run.serve()


def _server_machine(run: Run, _: Link | None) -> None:
    """Everything of the aggregator's machine at once, and then `hubbub serve`."""
    run.server.kill()
    run.server.communicate()
    for pid in (run.stage.parent("aggregator"), run.stage.worker("aggregator")):
        strike(pid)
    time.sleep(2.0)
    run.serve()


def _frozen(run: Run, _: Link | None) -> None:
    """A silo's worker stands still for longer than the deadline."""
    pid, before = run.stage.worker(SILO), len(run.events)
    strike(pid, signal.SIGSTOP)
    wait(lambda: _named(run, before), _FELT)
    time.sleep(DEADLINE)
    strike(pid, signal.SIGCONT)


def _named(run: Run, before: int) -> bool:
    """Whether the aggregator has missed the silo since."""
    events = run.events[before:]
    return any(one["event"] == "missing" and one["whom"] == SILO for one in events)


def _cut(run: Run, link: Link | None) -> None:
    """Nothing passes for three deadlines."""
    assert link is not None
    before = len(run.events)
    link.cut()
    wait(lambda: _named(run, before), _FELT)
    time.sleep(3 * DEADLINE)
    link.whole()


def _slowed(_: Run, link: Link | None) -> None:
    assert link is not None
    link.slow("1mbit")


def _upgraded(file: str, old: str, new: str) -> Callable[[Run, Link | None], None]:
    """A silo runs another hubbub for a while."""

    def does(run: Run, _: Link | None) -> None:
        with _other(file, old, new):
            run.stage.leave(SILO)
            run.stage.consortium.join(SILO)
            before = len(run.events)
            wait(lambda: _waits(run, before) or run.server.poll() is not None, _FELT)
            time.sleep(DEADLINE)
            run.stage.leave(SILO)
        run.stage.consortium.join(SILO)
        if run.server.poll() is not None:  # it stopped, and said why
            run.server.communicate()
            run.serve()

    return does


def _waits(run: Run, before: int) -> bool:
    """Whether the aggregator says that the silo has another version."""
    return any("version" in str(one) for one in run.events[before:] if one["event"] != "step")


@contextmanager
def _other(file: str, old: str, new: str) -> Iterator[None]:
    """What is started now runs a copy of hubbub with one line changed."""
    package, before = Path(hubbub.__file__).parent, os.environ["PYTHONPATH"]
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copytree(package, Path(folder) / "hubbub")) / file
        text = copied.read_text(encoding="utf-8")
        assert old in text, f"{file} has changed"
        copied.write_text(text.replace(old, new), encoding="utf-8")
        os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{before}"
        try:
            yield
        finally:
            os.environ["PYTHONPATH"] = before


BLOWS = [
    Blow(name="nothing", does=lambda *_: None),
    Blow(name="kill -9 of a silo's worker", does=_worker(SILO)),
    Blow(name="kill -9 of a silo's parent", does=_parent(SILO)),
    Blow(name="kill -9 of hubbub join, started again", does=_join_killed),
    Blow(name="a silo's machine goes down, hubbub join started again", does=_reboot),
    Blow(name="kill -9 of a node's worker", does=_worker(NODE)),
    Blow(name="kill -9 of the server's worker", does=_worker("aggregator")),
    Blow(name="kill -9 of the server's parent", does=_parent("aggregator")),
    Blow(name="kill -9 of hubbub serve, started again", does=_serve_killed),
    Blow(name="Ctrl-C of hubbub serve, started again", does=_serve_stopped),
    Blow(name="the aggregator's machine goes down, serve started again", does=_server_machine),
    Blow(name="a silo frozen for two deadlines", does=_frozen),
    Blow(name="a silo frozen, study with dropouts = 1", does=_frozen, dropouts=1),
    Blow(name="a silo cut off for four deadlines", does=_cut, linked=True),
    Blow(name="a silo's line at 1 Mbit/s", does=_slowed, linked=True, large=True),
    Blow(
        name="a silo restarted with another wire version",
        does=_upgraded("wire.py", "VERSION = 1\n", "VERSION = 2\n"),
    ),
    Blow(
        name="a silo restarted with another package version",
        does=_upgraded("version.py", 'VERSION = "', 'VERSION = "9.'),
    ),
]
