"""A networked study from the aggregator's chair: the run folder, the training, the end.

The loop is the same as in one process (`core/runs/loop.py`); only where the sums come from
differs. What is lost when this process dies is the open sessions: `serve` on the same folder opens
new ones, and what the silos say that they have paid for counts as spent (docs/privacy.md P15).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hubbub.learning as learning
from hubbub.core.errors import BudgetError, UserError
from hubbub.core.kept_pages import kept_pages
from hubbub.core.ledger.head_statement import Witness
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import QueryState
from hubbub.core.runs.checkpoint import CheckpointWriter
from hubbub.core.runs.federated import RunSessions, train_federated
from hubbub.core.runs.loop import Progress
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.runs.run_folder import RunFolder, answers_in
from hubbub.core.study import silo_records
from hubbub.core.verification.evidence.audit_result import read_audit
from hubbub.core.verification.evidence.collecting import collect
from hubbub.learning.runs.preparing import check_plan, prepare
from hubbub.learning.runs.result import Result, conclude
from hubbub.site.network.coordinator import Coordinator

WITNESS = "witness"  # in the aggregator's home: what silos have stated of their ledgers
_TOLD_EPSILONS = 20


def serve(
    coordinator: Coordinator,
    out: Path,
    *,
    progress: Progress = lambda _step, _row: None,
    data: Path | None = None,
) -> Result:
    """Train a study whose silos are elsewhere, or go on with it where it was interrupted.

    Guarantees:
        1. Every silo charges its own ledger before it answers, and answers no study, roster or
           plan that it did not approve.
        2. A run that was stopped at any point goes on with `serve` on the same folder, in new
           sessions: no key, mask or noise is used again.

    Args:
        data: the folder that the public test set is in; the home if None.

    Raises:
        WaitedError: somebody did not come in time.
        ProtocolError: somebody broke the protocol.
        IntegrityError: a silo has paid for less than it has answered; in the end the run's folder
            is whole nevertheless.
        UserError, StudyError, IntegrityError: as for `hubbub.run`.
    """
    began = time.perf_counter()
    party_folder, study = coordinator.party_folder, coordinator.study
    whose = [silo_records.TEST] if silo_records.has_test_set(study) else []
    prepared = prepare(study, whose=whose, folder=data or party_folder.home)
    with run_folder_of(coordinator, out, prepared) as (folder, start, stack):
        for header, answers, _ in answers_in(folder.path):
            coordinator.answered.setdefault(header.purpose, Counter()).update(answers)
        sessions = RunSessions(backend=coordinator, plan=prepared.plan, folder=folder, stack=stack)
        plan = prepared.plan
        prepared, trained = trained_with(
            coordinator,
            prepared,
            sessions,
            start,
            progress=progress,
            begin=lambda state: _check_left(state, plan, coordinator),
        )
        parts = _closed(coordinator, sessions, trained)
    result = concluded(coordinator, prepared, trained, folder, parts, began)
    coordinator.check_paid(parts)
    return result


def trained_with(
    coordinator: Coordinator,
    prepared: PreparedStudy,
    sessions: RunSessions,
    start: QueryState | None,
    **more: Any,
) -> tuple[PreparedStudy, QueryState]:
    """As `train_federated`, saved as it goes, wherever the sums come from."""
    assert sessions.folder is not None, "a run apart has a folder"  # noqa: S101
    saver = sessions.stack.enter_context(CheckpointWriter(sessions.folder.keep))
    trained = train_federated(
        prepared,
        sessions,
        start=start,
        keep=_saved_as_it_goes(coordinator, prepared, saver),
        settle=saver.wait,
        offer=coordinator.standardise,
        release=coordinator.release,
        **more,
    )
    saver.wait()
    return trained


def concluded(
    coordinator: Coordinator,
    prepared: PreparedStudy,
    trained: QueryState,
    folder: RunFolder,
    parts: list[dict[str, Any]],
    began: float,
) -> Result:
    """The end of any run among machines: its results, with evidence of what silos have signed."""
    requests = coordinator.requests
    result = conclude(
        prepared,
        trained,
        folder,
        epsilon=prepared.plan.epsilon_after(trained.attempts),
        evidence=lambda: collect(
            coordinator.party_folder.keys,
            folder.path,
            plan=prepared.plan,
            roster=requests.roster,
            parts=parts,
            attempts=trained.attempts,
            trust=(),
        ),
        began=began,
    )
    requests.note("closed", study=prepared.study.name, model=str(folder.path))
    return result


def _check_left(state: QueryState, plan: Plan, coordinator: Coordinator) -> None:
    """Refuse to begin a training all of whose attempts are used up."""
    steps, purpose = plan.mechanism.steps, plan.main.purpose
    if state.step == 0 and state.attempts >= steps:
        paid = coordinator.requests.paid.get(purpose, {})
        listed = ", ".join(f"{name} {count}" for name, count in paid.items())
        raise BudgetError(
            "expected attempts of this study to be left, the silos have paid for "
            f"{listed} of {steps}; approve the study under another name to run it again"
        )


def _closed(
    coordinator: Coordinator, sessions: RunSessions, trained: QueryState
) -> list[dict[str, Any]]:
    """The silos' own words about the run."""
    rounds, folder = sessions.opened[sessions.plan.main.purpose].rounds, sessions.folder
    assert folder is not None, "a networked run has one"  # noqa: S101
    ended = [session for ids in folder.sessions.values() for session in ids]
    parameters = np.asarray(trained.parameters, dtype="<f4").tobytes()
    parts = coordinator.close(ended, parameters)
    rounds.recorder.close()
    return sorted(parts, key=lambda one: str(one.get("silo")))


@contextmanager
def run_folder_of(
    coordinator: Coordinator, out: Path, prepared: PreparedStudy
) -> Iterator[tuple[RunFolder, QueryState | None, ExitStack]]:
    """The run's folder, where an interrupted run stood, and a stack that is closed before it."""
    kept = coordinator.party_folder.audit(coordinator.study.id)
    audit = None if kept is None else read_audit(kept, prepared.plan)
    with (
        _folder(out, prepared, audit, coordinator) as (folder, start),
        ExitStack() as stack,
    ):
        if coordinator.study.model:  # else nothing needs torch
            stack.enter_context(learning.threads_for(prepared.initial.size))
        stack.enter_context(kept_pages(prepared.initial.size))
        witness = Witness(coordinator.party_folder.home / WITNESS)
        coordinator.requests.witness = stack.enter_context(witness)
        yield folder, start, stack


@contextmanager
def _folder(
    out: Path, prepared: PreparedStudy, audit: Mapping[str, Any] | None, coordinator: Coordinator
) -> Iterator[tuple[RunFolder, QueryState | None]]:
    """The run's folder, and where an interrupted run stood."""
    if not (out / "run.json").is_file():
        fresh = RunFolder.fresh(out, prepared.plan, baseline=None, ledgers=None, audit=audit)
        with fresh as folder:
            yield folder, None
        return
    with RunFolder.again(out) as (folder, study):
        if study.id != prepared.study.id or folder.ledgers is not None:
            raise UserError(
                f"expected this networked study's run in {out}, got another; choose another --out"
            )
        check_plan(out / "plan.json", prepared.plan)
        folder.keep_audit(audit)
        kept = folder.last_checkpoint()
        if kept is not None:
            coordinator.requests.note("resumed", step=kept.state.step)
        yield folder, kept.state if kept else None


def _saved_as_it_goes(
    coordinator: Coordinator, prepared: PreparedStudy, saver: CheckpointWriter
) -> Callable[[QueryState], None]:
    """Where a state goes after every step: to disk, and into the event log, beside the next step.

    The event log's epsilon is what is reached some attempts later: it takes a while to compute, and
    must not be too small.
    """
    requests, study, last = coordinator.requests, prepared.study, time.monotonic()
    steps = prepared.plan.mechanism.steps
    every = max(1, steps // _TOLD_EPSILONS)

    def tell(state: QueryState, seconds: float) -> None:
        due = min(steps, -(-state.attempts // every) * every)
        epsilon = prepared.plan.epsilon_after(due)
        requests.note("step", step=state.step, steps=steps, epsilon=epsilon, seconds=seconds)
        requests.event_log.progress(
            state.step,
            steps,
            study=study.name,
            step=state.step,
            epsilon=epsilon,
            attempts=state.attempts,
            seconds_last_step=seconds,
        )

    def keep(state: QueryState) -> None:
        nonlocal last
        now = time.monotonic()
        seconds, last = now - last, now
        coordinator.has_begun()
        # That an attempt was begun is in the transcript: no heads of ledgers.
        saver.keep(state, {}, then=partial(tell, state, seconds))

    return keep
