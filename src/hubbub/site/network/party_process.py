"""`hubbub` in processes of their own on one machine, forked from one that has read the libraries.

Six parties on two cores would otherwise read torch six times before the first of them could say
anything. The process that forks has no threads, no keys and no records. This file knows no party.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing import forkserver, get_context
from pathlib import Path

# From the words after "hubbub" to the exit code.
Command = Callable[[Sequence[str]], int]

_CONTEXT = get_context("forkserver")
_READ_FIRST = [
    "hubbub.site.network.silo_endpoint",
    "hubbub.site.network.aggregator_run",
    "hubbub.site.network.aggregator_process",
    "nats",
]


def read_libraries(command: Command) -> None:
    """Start the process that forks; it reads the libraries while others work."""
    _CONTEXT.set_forkserver_preload([command.__module__, *_READ_FIRST])
    forkserver.ensure_running()


class PartyProcess:
    """A command of hubbub's, running.

    Args:
        command: hubbub's.
        arguments: of the command.
        output: file for what it prints.
        log: file to which its errors are added.
    """

    def __init__(
        self, command: Command, arguments: Sequence[str], *, output: Path, log: Path
    ) -> None:
        self.output = output
        given = (command, list(arguments), str(output), str(log))
        self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        """How it ended: the negative number of a signal, if by one; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end; None if it runs on."""
        self._process.join(seconds)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def end(self, seconds: float) -> int | None:
        """Ask it to end; after so many seconds, kill it."""
        self.send_signal(signal.SIGTERM)
        if self.wait(seconds) is None:
            self.send_signal(signal.SIGKILL)
        return self.wait()


def _run(command: Command, arguments: Sequence[str], output: str, log: str) -> None:
    """In the new process: nothing is read, and what is printed goes to files."""
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(command(arguments))
