"""A networked study from the aggregator's chair: the run folder, the training, the end.

The loop is the same as in one process (`training/loop.py`); only where the sums come from
differs. What is lost when this process dies is the open sessions: `serve` on the same folder opens
new ones, and what the silos say that they have paid for counts as spent (docs/privacy.md P15).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hubbub.learning as learning
from hubbub.assurance import evidence
from hubbub.assurance.evidence.audit_result import read_audit
from hubbub.assurance.evidence.collecting import STANDARDISED
from hubbub.assurance.transcript import files
from hubbub.assurance.transcript.records import read, read_header
from hubbub.disk import write_bytes
from hubbub.errors import BudgetError, StudyError, UserError
from hubbub.network.coordinator import Conductor
from hubbub.network.endpoint import planned
from hubbub.network.engine import Phase
from hubbub.network.event_log import EventLog
from hubbub.network.party_folder import PartyFolder
from hubbub.network.requests import Exchange
from hubbub.network.sessions import Sessions
from hubbub.network.timeouts import Timeouts
from hubbub.planning import TRAINING
from hubbub.protocol.round.round_parameters import Parameters
from hubbub.protocol.wire import Tag
from hubbub.study import Study, sources
from hubbub.training import run_folder
from hubbub.training.auxiliary_sums import evaluation, standardise, through
from hubbub.training.loop import Progress, State, Summed, train
from hubbub.training.prepared_study import PreparedStudy
from hubbub.training.report_of_run import write_report
from hubbub.training.run_folder import RunFolder
from hubbub.training.run_study import Result, check_plan

_TOLD_EPSILONS = 20


def serve(
    site: PartyFolder,
    study: Study,
    out: Path,
    phase: Phase,
    *,
    event_log: EventLog,
    timeouts: Timeouts | None = None,
    progress: Progress = lambda _step, _row: None,
) -> Result:
    """Train a study whose silos are elsewhere, or go on with it where it was interrupted.

    Guarantees:
        1. Every silo charges its own ledger before it answers, and answers no study, roster or
           plan that it did not approve.
        2. A run that was stopped at any point goes on with `serve` on the same folder, in new
           sessions: no key, mask or noise is used again.

    Args:
        site: the aggregator's folder.
        study: approved there.
        out: the run's folder, new or interrupted.
        phase: the engine.
        journal: where events go.
        patience: how long to wait for whom.
        progress: called after every step.

    Raises:
        WaitedError: somebody did not come in time.
        ProtocolError: somebody broke the protocol.
        UserError, StudyError, IntegrityError: as for `hubbub.run`.
    """
    if site.role != "aggregator":
        raise UserError(f"expected the aggregator's folder, got that of a {site.role}; use join")
    if site.study(study.id) is None:
        raise StudyError("expected a study that was approved here, got another; hubbub approve it")
    planned(study)
    began = time.perf_counter()
    whose = [sources.TEST] if sources.has_test_set(study) else []
    setting = PreparedStudy.of(study, whose=whose, folder=site.home)
    with ExitStack() as stack:
        kept = site.audit(study.id)
        audit = None if kept is None else read_audit(kept, setting.plan)
        folder, start = stack.enter_context(_folder(out, setting, audit, event_log))
        exchange = Exchange(site.roster, phase, event_log)
        conductor = Conductor(site, study, exchange, timeouts or Timeouts())
        sessions = Sessions(
            site=site,
            conductor=conductor,
            folder=folder,
            parameters=setting.initial.size,
            event_log=event_log,
            stack=stack,
        )
        stack.enter_context(learning.threads_for(setting.initial.size))
        setting, trained = _trained(setting, sessions, start, progress)
        parts = _closed(sessions, trained)
    result = Result(
        model=setting.trained(trained.parameters),
        metrics=trained.rows,
        epsilon=setting.plan.epsilon_after(trained.attempts),
        plan=setting.plan,
        folder=folder.path,
        standardisation=setting.standardisation,
    )
    run_folder.write_model(folder.path, setting.plan, result.model)
    text = evidence.collect(
        site.keys,
        folder.path,
        plan=setting.plan,
        roster=site.roster,
        parts=parts,
        attempts=trained.attempts,
        trust=(),
    )
    write_bytes(folder.path / evidence.FILE, text.encode())
    write_report(folder.path, seconds=time.perf_counter() - began)
    event_log.note("closed", study=study.name, model=str(folder.path))
    return result


def _trained(
    setting: PreparedStudy, sessions: Sessions, start: State | None, progress: Progress
) -> tuple[PreparedStudy, State]:
    """Standardise, if the study asks for it, and train."""
    setting = standardise(setting, through(sessions), sessions.folder.path / STANDARDISED)
    sessions.standardisation = setting.standardisation
    look = evaluation(setting, through(sessions))
    begun = _begun(sessions.folder.path)
    rounds = sessions.open(TRAINING, setting.plan, [], setting.initial.size, setting.lift)
    state = start or State(parameters=setting.initial)
    made = max(state.attempts, sessions.charged(TRAINING), begun)
    state = replace(state, attempts=made)
    if state.step == 0 and state.attempts >= setting.study.training.steps:
        told = ", ".join(f"{name} {count}" for name, count in sessions.paid[TRAINING].items())
        raise BudgetError(
            f"expected attempts of this study to be left, the silos have paid for {told} of "
            f"{setting.study.training.steps}; approve the study under another name to run it again"
        )

    def summation(step: int, parameters: Parameters, left: int) -> Summed:
        gradient, made = rounds.round(step, parameters, left)
        return Summed(gradient=gradient, attempts=made)

    saver = _Saver(sessions.folder)
    sessions.stack.callback(saver.close)
    trained = train(
        setting,
        summation,
        progress,
        divisor=setting.plan.divisor,
        start=state,
        keep=_keeper(sessions, setting, saver),
        look=look,
    )
    saver.wait()
    return setting, trained


def _begun(folder: Path) -> int:
    """Attempts that the run has begun: each silo may have missed some that others have paid for."""
    return sum(
        kept.tag is Tag.MODEL
        for path in files(folder)
        if read_header(path).purpose == TRAINING
        for kept in read(path)
    )


def _closed(sessions: Sessions, trained: State) -> list[dict[str, Any]]:
    """The silos' own words about the run, in the session of the training."""
    rounds = next(one for one in sessions.opened if one.purpose == TRAINING)
    folder = sessions.folder
    ended = [one for purpose in folder.purposes for one in folder.sessions(purpose)]
    parameters = np.asarray(trained.parameters, dtype="<f4").tobytes()
    assembly, transcript = rounds.session()
    parts = sessions.conductor.close(assembly, ended, parameters)
    transcript.close()
    return sorted(parts, key=lambda one: str(one.get("silo")))


@contextmanager
def _folder(
    out: Path, setting: PreparedStudy, audit: Mapping[str, Any] | None, event_log: EventLog
) -> Iterator[tuple[RunFolder, State | None]]:
    """The run's folder, and where an interrupted run stood."""
    if not (out / "run.json").is_file():
        fresh = RunFolder.fresh(out, setting.plan, baseline=None, ledgers=None, audit=audit)
        with fresh as folder:
            yield folder, None
        return
    with RunFolder.again(out) as (folder, study):
        if study.id != setting.study.id or folder.ledgers is not None:
            raise UserError(
                f"expected this networked study's run in {out}, got another; choose another --out"
            )
        check_plan(out / "plan.json", setting.plan)
        folder.keep_audit(audit)
        found = folder.last_checkpoint()
        if found is not None:
            event_log.note("resumed", step=found.state.step)
        yield folder, found.state if found else None


class _Saver:
    """Puts states on disk on a thread of its own, while the next model is on its way.

    A step that is lost with this process before it is on disk is made again by the next one; that
    its attempt was begun is in the transcript.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._pool = folder, ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def keep(self, state: State) -> None:
        """Write a state, once the one before it is written."""
        self.wait()
        self._last = self._pool.submit(self._folder.keep, state, {})

    def wait(self) -> None:
        """Until the last state is on disk; its errors are raised here."""
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        """Finish what was begun."""
        self._pool.shutdown()


def _keeper(sessions: Sessions, setting: PreparedStudy, saver: _Saver) -> Callable[[State], None]:
    """Where a state goes after every step: to disk, and into the journal.

    The journal's epsilon is what is reached some attempts later: it takes a while to compute, and
    must not be too small.
    """
    event_log, study, last = sessions.event_log, setting.study, time.monotonic()
    steps = study.training.steps
    every = max(1, steps // _TOLD_EPSILONS)

    def keep(state: State) -> None:
        nonlocal last
        saver.keep(state)
        now = time.monotonic()
        seconds, last = now - last, now
        due = min(steps, -(-state.attempts // every) * every)
        where = {"step": state.step, "steps": steps, "epsilon": setting.plan.epsilon_after(due)}
        event_log.note("step", **where, seconds=seconds)
        event_log.state(
            study=study.name, **where, attempts=state.attempts, seconds_last_step=seconds
        )

    return keep
