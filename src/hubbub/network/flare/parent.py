"""FLARE's own processes, run and watched: a server's or a site's parent, and an administrator.

A parent is started as FLARE's scripts start it, in a process group of its own, so that nothing is
left when it is ended. Its output goes to a file; what people should see is in its event log.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub.errors import HubbubError, UserError
from hubbub.network.flare.kit import is_admin, is_server

# A received message leaves a waiting thread behind for as long as these say.
_ENVIRONMENT = {"NVFLARE_STREAMING_RETRY_TIMEOUT": "3", "NVFLARE_STREAMING_RETRY_WAIT": "1"}
_SERVER = "nvflare.private.fed.app.server.server_train"
_CLIENT = "nvflare.private.fed.app.client.client_train"
_END_SECONDS = 4.0
_PARENT_DEATH_SIGNAL = 1  # of prctl(2), on Linux


class Parent:
    """A site's parent process.

    Args:
        kit: prepared for hubbub.
        log: file for its output.
    """

    def __init__(self, kit: Path, log: Path) -> None:
        self._command, self._kit, self._log = _command(kit), kit, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.running:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter, FLARE's module)
                self._command,
                cwd=self._kit,
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_us,  # noqa: PLW1509 (nothing here has threads yet)
            )

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it and all that it has started."""
        if self._process is None:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS if sign == signal.SIGTERM else None)
        self._process = None


def _end_with_us() -> None:
    """Have the system end this process when the one that started it is gone, however it went."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _command(kit: Path) -> list[str]:
    """How FLARE's scripts start a site."""
    if is_admin(kit):
        raise UserError(f"expected the kit of a site, got an administrator's: {kit}; name another")
    told = ["secure_train=true", "config_folder=config", "org=hubbub"]
    module, config = _SERVER, "fed_server.json"
    if not is_server(kit):
        module, config = _CLIENT, "fed_client.json"
        told.append(f"uid={kit.name}")
    if not (kit / "startup" / config).is_file():
        raise UserError(
            f"expected a startup kit in {kit}, found no {config}; make it with nvflare provision"
        )
    return [sys.executable, "-u", "-m", module, "-m", str(kit), "-s", config, "--set", *told]


class UnreachableError(HubbubError):
    """No server answers the administrator."""


@dataclass(kw_only=True)
class Admin:
    """An administrator's session with a running server; UnreachableError where it is lost."""

    session: Any = field(repr=False)

    def sites(self) -> set[str]:
        """The sites that are connected."""
        with _asking():
            return {one.name for one in self.session.get_system_info().client_info}

    def submit(self, job: Path) -> str:
        """Hand a job in; its name at the server."""
        with _asking():
            return str(self.session.submit_job(str(job)))

    def status(self, job: str) -> str:
        """Where a job stands: RUNNING, FINISHED:COMPLETED and so on."""
        with _asking():
            return str(self.session.get_job_meta(job).get("status", ""))

    def reached(self, job: str) -> tuple[set[str], set[str]]:
        """The sites that answer, and those of them that have a job, or start its worker again."""
        found: list[dict[str, str]] = []
        with contextlib.suppress(UnreachableError), _asking():  # nobody may be there to answer
            found = self.session.get_client_job_status() or []
        heard = [one for one in found if one.get("status") not in ("no_reply", "error")]
        having = {one["client_name"] for one in heard if one.get("job_id") == job}
        return {one["client_name"] for one in heard}, having

    def abort(self, job: str) -> None:
        """End a job, unless it has ended; a server lists those for ever that ended with it."""
        with contextlib.suppress(UnreachableError), _asking():
            self.session.abort_job(job)

    def running(self, name: str) -> list[str]:
        """Jobs of a name that have not ended."""
        with _asking():
            jobs = [one for one in self.session.list_jobs() if one.get("job_name") == name]
        return [one["job_id"] for one in jobs if not str(one.get("status")).startswith("FINISHED")]


@contextmanager
def administered(kit: Path, *, wait: float) -> Iterator[Admin]:
    """A session with the server, as soon as it answers.

    Args:
        kit: an administrator's.
        wait: seconds to go on trying.

    Raises:
        UnreachableError: nobody answered.
    """
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    if not is_admin(kit):
        raise UserError(
            f"expected an administrator's kit in {kit}, got another; name the right one"
        )
    end, kit, session = time.monotonic() + wait, kit.resolve(), None
    while session is None:
        try:
            with _silent():
                session = new_secure_session(kit.name, str(kit), timeout=5.0)
        except Exception as error:  # noqa: BLE001 (the library raises what it likes)
            if time.monotonic() > end:
                raise UnreachableError(
                    f"expected FLARE's server to answer within {wait:g} s, got {error}; see its log"
                ) from None
            time.sleep(0.5)
    try:
        yield Admin(session=session)
    finally:
        with contextlib.suppress(Exception), _silent():
            session.close()


@contextmanager
def _asking() -> Iterator[None]:
    """The library prints, and raises what it likes."""
    try:
        with _silent():
            yield
    except Exception as error:  # noqa: BLE001 (as above)
        raise UnreachableError(
            f"expected FLARE's server to do what it was asked, got {type(error).__name__}; see its "
            "log"
        ) from None


@contextmanager
def _silent() -> Iterator[None]:
    """The library prints; our standard output is for one object."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def follow(path: Path, start: int) -> Iterator[dict[str, Any]]:
    """The events that an event log holds from a byte on; the last item is where to go on."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines = file.readlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        if not line.endswith(b"\n"):
            break
        start += len(line)
        with contextlib.suppress(ValueError):
            yield {**json.loads(line), "end": start}
