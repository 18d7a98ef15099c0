"""All cores at work on layers: worker processes, each fed by a thread.

This file knows processes and pipes, and of the jobs only that they can be packed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from hubbub.core.errors import HubbubError
from hubbub.core.kept_pages import cores
from hubbub.core.protocol.token_lists import onion_layers, pool_worker

Watch = Callable[[int], None]
_Process = subprocess.Popen[bytes]
# Below so many HPKE operations, some seconds, no process is worth its start: the first thing that
# each does is to import.
_WORTH_PROCESSES = 40_000


@contextmanager
def process_pool(operations: int, watch: Watch = lambda _: None) -> Iterator[onion_layers.Executor]:
    """An `Executor` for as long as the block lasts.

    Args:
        operations: how many HPKE operations there will be; for few, no process is started.
        watch: is told after each job how many operations it was.
    """
    workers = cores() if operations >= _WORTH_PROCESSES else 1
    if workers == 1:
        yield _watched(onion_layers.in_this_thread, watch)
        return
    processes = [_started() for _ in range(workers)]
    with ThreadPoolExecutor(workers) as threads:
        try:
            yield _watched(_shared(processes, threads), watch)
        finally:  # jobs that still wait end at once when their process is gone
            for process in processes:
                _stop(process)


class SharedPool:
    """One process pool for the mixnets of all silos of this process, as long as a list is made.

    Args:
        counts: records of each.
        watch: told after each piece of work how many HPKE operations are done, of how many.
    """

    def __init__(self, counts: Sequence[int], watch: Callable[[int, int], None]) -> None:
        self._whole, self._done, self._tell = 2 * len(counts) * sum(counts), 0, watch
        self._stack = ExitStack()
        self._executor: onion_layers.Executor | None = None

    @contextmanager
    def __call__(self, _operations: int) -> Iterator[onion_layers.Executor]:
        """Who does the work; the processes end with the last layer of a list."""
        if self._executor is None:
            opened = process_pool(self._whole, watch=self._watch)
            self._executor = self._stack.enter_context(opened)
        try:
            yield self._executor
        finally:
            if self._done >= self._whole:
                self.close()

    def close(self) -> None:
        """End the processes; the next list starts others."""
        self._stack.close()
        self._executor, self._done = None, 0

    def _watch(self, operations: int) -> None:
        self._done += operations
        self._tell(self._done, self._whole)


def _watched(executor: onion_layers.Executor, watch: Watch) -> onion_layers.Executor:
    """The same, telling how far it is."""

    def watched(jobs: Iterable[onion_layers.Job]) -> Iterator[onion_layers.Done]:
        listed = list(jobs)
        for job, done in zip(listed, executor(listed), strict=True):
            watch(job.operations)
            yield done

    return watched


def _shared(processes: list[_Process], threads: ThreadPoolExecutor) -> onion_layers.Executor:
    """Jobs to whichever process is free, results in order."""
    free = SimpleQueue[_Process]()
    for process in processes:
        free.put(process)

    def one(job: onion_layers.Job) -> onion_layers.Done:
        process = free.get()
        try:
            return _asked(process, job.packed())
        finally:
            free.put(process)

    def shared(jobs: Iterable[onion_layers.Job]) -> Iterator[onion_layers.Done]:
        begun: list[Future[onion_layers.Done]] = [threads.submit(one, job) for job in jobs]
        begun.reverse()
        while begun:
            yield begun.pop().result()

    return shared


def _started() -> _Process:
    # The child finds hubbub where this process has it, however it came to be on the path.
    home = str(Path(__file__).parents[__name__.count(".")])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    command = [
        sys.executable,
        "-P",
        "-c",
        "from hubbub.core.protocol.token_lists.pool_worker import main; main()",
    ]
    return subprocess.Popen(  # noqa: S603 - this interpreter, with fixed arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )


def _asked(process: _Process, job: bytes) -> onion_layers.Done:
    """One job done by a process."""
    if process.stdin is None or process.stdout is None:
        raise HubbubError("expected a worker process with pipes, got one without")
    try:
        pool_worker.send(process.stdin, job)
        answer = pool_worker.receive(process.stdout)
    except (OSError, ValueError):
        answer = b""
    if not answer:
        raise HubbubError(
            "expected a worker process to go on, it ended; look for what killed it, and resume"
        )
    return onion_layers.Done.unpacked(answer)


def _stop(process: _Process) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not sent is lost, as it should be
                pipe.close()
