"""A site's worker that died is started again and takes part in the running job again.

Left alone, FLARE fails a whole job when one worker of one site ends badly. Here the site's launcher
starts the same command again a few times, and what the job's set-up told the worker is kept in the
job's own folder at the site, from where its successor reads it. What the worker knew is gone: the
endpoint says so when it is asked, and the aggregator opens a new session.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
from nvflare.collab.runtime.defs import SETUP_TASK_NAME, SyncKey
from nvflare.collab.runtime.executor import CollabExecutor
from nvflare.utils.job_launcher_utils import get_credential_env
from nvflare.utils.process_utils import spawn_process

_MOST_STARTS = 1000
_TOLD = (SyncKey.COLLAB_INTERFACE, SyncKey.CLIENT_INTERFACES, SyncKey.SERVER_FQCN)
_KEPT = "hubbub_setup.json"


class SturdyHandle(ProcessHandle):  # type: ignore[misc]
    """A worker's process, and its successors."""

    adapter: Any

    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin, self._left, self._ended = begin, _MOST_STARTS, False
        super().__init__(process_adapter=begin())

    def terminate(self) -> None:
        """End it for good."""
        self._ended = True
        super().terminate()

    def poll(self) -> Any:
        """A worker that a signal ended is a lost site, not a failed job."""
        code = self.adapter.poll()
        if code is not None and code < 0:
            return JobReturnCode.UNKNOWN
        return super().poll()

    def wait(self) -> None:
        """Until it ends by itself, or was started too often."""
        while True:
            self.adapter.wait()
            if self._ended or self._left <= 0 or (self.adapter.poll() or 0) >= 0:
                return
            self._left -= 1
            self.adapter = self._begin()


class SturdyLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts workers that are started again."""

    def launch_job(self, job_meta: Any, fl_ctx: Any) -> SturdyHandle:
        """A worker for a job."""
        env = dict(os.environ)
        env.update(get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {}))
        command = shlex.split(self.get_command(job_meta, fl_ctx), comments=True)
        return SturdyHandle(lambda: spawn_process(command, env))


class SturdyExecutor(CollabExecutor):  # type: ignore[misc]
    """Remembers what the job's set-up told it, for its successor."""

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """A task of FLARE's; the set-up is one."""
        if task_name == SETUP_TASK_NAME:
            told = {key: shareable.get(key) for key in _TOLD}
            self._kept(fl_ctx).write_text(json.dumps(told), encoding="utf-8")
        return super().execute(task_name, shareable, fl_ctx, abort_signal)

    def _handle_start_run(self, event_type: str, fl_ctx: Any) -> None:
        super()._handle_start_run(event_type, fl_ctx)
        kept = self._kept(fl_ctx)
        if self.client_app and kept.is_file():
            told = Shareable(json.loads(kept.read_text(encoding="utf-8")))
            self.abort = Signal()
            super().execute(SETUP_TASK_NAME, told, fl_ctx, self.abort)

    @staticmethod
    def _kept(fl_ctx: Any) -> Path:
        workspace = fl_ctx.get_engine().get_workspace()
        return Path(workspace.get_run_dir(fl_ctx.get_job_id())) / _KEPT
