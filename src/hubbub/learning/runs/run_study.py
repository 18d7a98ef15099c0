"""Training a study in one process: every party, the real protocol, and the baselines beside it.

`run` reads like the paper: plan, set up, and then for every step sum, record, and move the model.
`resume` goes on where a run was stopped, however it was stopped: in a new session, with new keys,
and with what the ledgers hold counted as spent (docs/privacy.md P15).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from html import escape
from math import inf
from pathlib import Path
from typing import Any

import hubbub.learning as learning
from hubbub.core.errors import IntegrityError, StudyError, UserError
from hubbub.core.kept_pages import kept_pages
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.number_format import few
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import QueryState
from hubbub.core.planning.study_plan import steps_of
from hubbub.core.runs import (
    checkpoint,
    federated,
    local_backend,
    loop,
    prepared_study,
    run_folder,
    spending,
)
from hubbub.core.runs.federated import RunSessions
from hubbub.core.runs.loop import Progress
from hubbub.core.session.joint_batches import Notice
from hubbub.core.session.offer import layout_of
from hubbub.core.study import foreign_code, silo_records
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import AUDIT, read_audit
from hubbub.learning.metric_words import in_brief
from hubbub.learning.runs import baselines, preparing, result, uncounted
from hubbub.learning.runs.metric_log import MetricLog, logged
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.result import conclude

_SHOWN = 5  # names
_NOTEBOOK = "ZMQInteractiveShell"  # what IPython calls the shell of a notebook


def _tell_nobody(*_: object) -> None:
    """Nobody to tell."""


def run(
    study: Study,
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    ledgers: str | Path | None = None,
    progress: bool | loop.Progress | None = None,
    plan: Plan | None = None,
    device: str = "auto",
    audit: str | Path | None = None,
    notice: Notice | None = None,
    log: str | None = None,
) -> result.Result:
    """Train a study with all parties in this process.

    Guarantees:
        1. The published models are (epsilon, delta)-DP against every adversary of the plan, as
           the plan says, for hubbub and the baseline "local-dp"; "trusted" and "alone" guarantee it
           against those who see only models.
        2. Every silo's ledger holds a step before the silo's answer to it exists.
        3. A run that was stopped at any point can be resumed: see `resume`.

    Args:
        study: what to train.
        out: folder for the results; must not hold a run already. None: write nothing.
        baseline: None for hubbub, or "trusted", "local-dp", "alone", "non-private".
        ledgers: folder of the silos' ledgers; that in which their files were counted before if
            None, else `ledgers` beside `out`, and none at all if `out` is None too.
        progress: called after every step with its number, from 1, and the newest metrics; True
            shows a bar, False none, and None one in a notebook.
        plan: a plan made for this study, or for one that differs in the data's options only.
        device: where gradients are made: "auto" (a GPU if there is one), "cpu" or "cuda"; it
            changes no guarantee.
        audit: file of `hubbub audit --out`, which the run's evidence will hold.
        notice: called with a few words before something slow, such as the mixing of a shuffled
            token list.
        log: where the rows of metrics, with epsilon, go too: "tensorboard:DIR", "mlflow:URI",
            "jsonl" (standard error) or "jsonl:FILE"; nothing without noise is in them.

    Returns:
        The model, its metrics and its epsilon.

    Raises:
        StudyError: the study cannot be run, its audit is of another or contradicts it, or there is
            no such log.
        UserError: the folder holds something, another run holds a ledger, an audit cannot be read
            or has no place, or the device is not there.
        DataError: a silo's records do not fit it.
        ModelError: the model cannot be trained with a guarantee for every record.
        BudgetError: a silo's cap refuses a step.
        IntegrityError: a ledger cannot be written or was altered.

    >>> study = Study.parse('''
    ... study.name = "example"
    ... parties = {silos = 4, colluders = 1}
    ... data = {source = "hubbub.datasets:heart", records = 740}
    ... model = {kind = "logistic", inputs = [26]}
    ... training = {steps = 2, sampling = "full-batch"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> result = run(study)
    >>> result.final["step"], result.epsilon <= 1.0
    (2, True)
    """
    Study.expect(study)
    preparing.check_wanted(study, out, baseline, audit)
    silo_records.forget_all(study, Path())
    prepared = prepare(study, plan, device)
    with telling(progress, study) as after_step, logged(log, study, baseline) as metric_log:
        return run_prepared(
            prepared,
            out,
            baseline=baseline,
            ledgers=ledgers,
            progress=after_step,
            notice=notice,
            audit=None if audit is None else read_audit(Path(audit), prepared.plan),
            metric_log=metric_log,
        )


def run_prepared(
    prepared: prepared_study.PreparedStudy,
    out: str | Path | None,
    *,
    baseline: str | None = None,
    ledgers: str | Path | None = None,
    progress: loop.Progress = _tell_nobody,
    notice: Notice | None = None,
    audit: Mapping[str, Any] | None = None,
    metric_log: MetricLog | None = None,
) -> result.Result:
    """Train a study that is ready to run; see `run`."""
    study = prepared.study
    with ExitStack() as stack:
        home = Path(ledgers) if ledgers is not None else None
        if out is not None:
            run_folder.make_room(Path(out))
            home = uncounted.folder_for(study, Path(out), home) if baseline is None else None
        # One process at a time holds a ledger; a baseline has none.
        books = local_backend.opened_ledgers(home, study, stack) if baseline is None else {}
        for book in books.values():
            book.check_units(prepared.plan)
        folder = None
        if out is not None:
            folder = stack.enter_context(
                run_folder.RunFolder.fresh(
                    Path(out), prepared.plan, baseline=baseline, ledgers=home, audit=audit
                )
            )
            folder.begin(_heads(study, books))
        # The study's caps, before anything is charged.
        spending.set_caps(books.values(), study.privacy)
        log = metric_log or MetricLog()
        return _finished(prepared, baseline, progress, notice, books, folder, None, log)


def resume(
    folder: str | Path,
    *,
    progress: bool | loop.Progress | None = None,
    device: str = "auto",
    notice: Notice | None = None,
    trust_code: bool = False,
    log: str | None = None,
) -> result.Result:
    """Continue a run that was stopped by a crash, a kill, a full disk, or a budget.

    Guarantees:
        1. A new session is set up, so no key, mask, noise or batch of the old one is used again.
        2. Every attempt that a ledger holds counts as made, whether or not its sum was ever seen:
           the study's epsilon may be over-counted and is never under-counted.
        3. Code that the folder's study names does not run, unless this user has approved or run it
           on this machine before, as whoever began the run has, or trusts it here.

    Args:
        folder: of the run; the study is read from it, and the ledgers stay where they were.
        progress, device, notice: see `run`.
        trust_code: code that the study names may run here, known or not.
        log: see `run`; rows that were made before are not told again.

    Returns:
        The model, its metrics from the first step on, and its epsilon.

    Raises:
        UserError: there is no run in the folder, it is finished, or another process works on it or
            holds one of its ledgers.
        IntegrityError: a checkpoint, a ledger or another file of the run was altered.
        StudyError, DataError, ModelError, BudgetError: as for `run`.

    >>> import contextlib, tempfile
    >>> from dataclasses import replace
    >>> from importlib import resources
    >>> heart = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> study = heart.changed(training=replace(heart.training, steps=2))
    >>> def stop(step, metrics):
    ...     raise KeyboardInterrupt
    >>> with tempfile.TemporaryDirectory() as home:
    ...     with contextlib.suppress(KeyboardInterrupt):
    ...         _ = run(study, f"{home}/run", progress=stop)
    ...     result = resume(f"{home}/run")
    >>> [row["step"] for row in result.metrics], result.epsilon <= 1.0
    ([1, 2], True)
    """
    with ExitStack() as stack:
        opened, study = stack.enter_context(run_folder.RunFolder.again(Path(folder)))
        if opened.baseline is not None:
            raise UserError(
                f"expected a run of hubbub in {folder}, got the baseline "
                f"{opened.baseline}; it charges nothing, so run it again from the start"
            )
        if opened.ledgers is None:
            raise UserError(
                f"expected a run in one process in {folder}, got one between machines; "
                "continue with hubbub serve"
            )
        names = study.parties.names
        if gone := [name for name in names if not (opened.ledgers / f"{name}.sqlite").is_file()]:
            raise IntegrityError(
                f"expected the silos' ledgers in {opened.ledgers}, where the run charged "
                f"them, found none of {few(gone, _SHOWN)}; put them back (not an older copy or "
                "another ledger), or start a new run"
            )
        # The folder may be anybody's: code that it names runs only where it is known.
        foreign_code.keep_known(study, study.own_code, trusted=trust_code)
        prepared = prepare(study, device=device)
        books = local_backend.opened_ledgers(opened.ledgers, study, stack)
        newest = opened.last_checkpoint()
        # Every ledger still holds what it held at the checkpoint, or spending would be forgotten.
        for index, book in books.items():
            name = study.parties.names[index - 1]
            book.verify(head=newest.heads.get(name) if newest else None)
        opened.begin(_heads(study, books))
        preparing.check_plan(opened.path / "plan.json", prepared.plan)
        if (opened.path / AUDIT).exists():
            opened.keep_audit(read_audit(opened.path / AUDIT, prepared.plan))
        start = newest.state if newest else None
        after_step = stack.enter_context(telling(progress, study))
        metric_log = stack.enter_context(logged(log, study))
        metric_log.rows = len(start.rows) if start else 0  # which were told before
        return _finished(prepared, None, after_step, notice, books, opened, start, metric_log)


def _finished(
    prepared: prepared_study.PreparedStudy,
    baseline: str | None,
    progress: loop.Progress,
    notice: Notice | None,
    ledgers: Mapping[int, Ledger],
    folder: run_folder.RunFolder | None,
    start: QueryState | None,
    metric_log: MetricLog,
) -> result.Result:
    """Train, and put the results where they belong."""
    began = time.perf_counter()
    asks = baseline is None or bool(prepared.plan.beside)
    saver = None if folder is None else checkpoint.CheckpointWriter(folder.keep)
    backend = local_backend.LocalBackend(
        study=prepared.study,
        keys=layout_of(prepared.plan).keys() if asks else (),  # made for the run
        ledgers=ledgers,
        folder=folder,
        notice=notice or _tell_nobody,
        plan=prepared.plan if baseline is None else None,
        saved=saver.wait if saver else _tell_nobody,
    )

    def keep(state: QueryState) -> None:
        if saver is not None:
            saver.keep(state, _heads(prepared.study, ledgers))
        metric_log(state.rows)

    # As many of torch's threads as a model is worth; without one torch is not even loaded.
    threads = learning.threads_for(prepared.initial.size) if prepared.learner else nullcontext()
    with threads, kept_pages(prepared.initial.size), ExitStack() as stack:
        if saver is not None:
            stack.enter_context(saver)
        sessions = RunSessions(backend=backend, plan=prepared.plan, folder=folder, stack=stack)
        if baseline is None:
            prepared, trained = federated.train_federated(
                prepared,
                sessions,
                start=start,
                progress=progress,
                keep=keep,
                settle=saver.wait if saver else _tell_nobody,
            )
        else:
            prepared, trained = _compared(prepared, baseline, sessions, progress)
        if saver is not None:
            saver.wait()
    # Attempts that were charged count, whether or not their sums were seen (P15).
    spent = inf if baseline == "non-private" else prepared.plan.epsilon_after(trained.attempts)
    text = (
        partial(backend.evidence, prepared.plan, trained.attempts) if folder and ledgers else None
    )
    return conclude(
        prepared,
        trained,
        folder,
        epsilon=spent,
        evidence=text,
        began=began,
        is_copied=backend.is_copied,
        spending=backend.spending if baseline is None else None,
        baseline=baseline,
    )


def _compared(
    prepared: prepared_study.PreparedStudy,
    baseline: str,
    sessions: RunSessions,
    progress: loop.Progress,
) -> tuple[prepared_study.PreparedStudy, QueryState]:
    """Train by a baseline; it is run anew if it is stopped, so its rows are enough."""
    folder = sessions.folder
    opened = baselines.exact_queries if baseline == "non-private" else sessions.asked
    prepared = federated.ask_before(prepared, opened, folder)
    # Nobody sums: each silo has a training of its own.
    if baseline == "alone":
        trained = baselines.alone(prepared, progress)
        if folder is not None:
            folder.append_rows(trained)
        return prepared, trained
    trained = loop.train(
        prepared,
        baselines.central(prepared, baseline),
        progress,
        divisor=prepared.plan.mechanism.divisor,
        keep=folder.append_rows if folder else lambda _: None,
        schedule=federated.evaluations(prepared, opened),
        private=baseline != "non-private",
    )
    if baseline != "non-private":  # whose intervals would count noise that is not there
        prepared = federated.ask_last(prepared, trained, opened, folder)
    return prepared, trained


def _heads(study: Study, books: Mapping[int, Ledger]) -> dict[str, bytes]:
    return {study.parties.names[index - 1]: book.head for index, book in books.items()}


@contextmanager
def telling(progress: bool | Progress | None, study: Study) -> Iterator[Progress]:
    """What to call after every step of a study, until it is over.

    A function is; True shows a bar, False nothing, None one in a notebook, where people wait.
    """
    if callable(progress):
        yield progress
    elif progress is not None and not isinstance(progress, bool):
        raise StudyError(
            "expected progress to be True, False or a function of a step and its metrics, got "
            f"{type(progress).__name__}; leave it out"
        )
    elif (show := _notebook_display()) and progress is not False:
        yield _notebook_bar(study.name, steps_of(study), show)
    elif progress:
        with _terminal_bar(study.name, steps_of(study)) as bar:
            yield bar
    else:
        yield _tell_nobody


def _notebook_display() -> Callable[..., Any] | None:
    """What shows something in the notebook that this program runs in; None where there is none."""
    shells: Any = sys.modules.get("IPython")
    shell = shells.get_ipython() if shells is not None else None
    if type(shell).__name__ != _NOTEBOOK:
        return None
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    return display  # type: ignore[no-any-return,unused-ignore]


def _notebook_bar(title: str, total: int, show: Callable[..., Any]) -> Progress:
    """A bar in a notebook, which every step redraws in its place; a line where there is no HTML."""

    def page(step: int, row: Mapping[str, float]) -> dict[str, str]:
        words = _words(title, step, total, row)
        bar = f'<progress value="{step}" max="{total}"></progress>'
        return {"text/html": f"<div>{bar} {escape(words)}</div>", "text/plain": words}

    place = show(page(0, {}), raw=True, display_id=True)
    return _tell_nobody if place is None else lambda *done: place.update(page(*done), raw=True)


@contextmanager
def _terminal_bar(title: str, total: int) -> Iterator[Progress]:
    """A bar on stderr; where that is no terminal, nothing but a line in the end."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(_words(title, 0, total, {}), total=total)

        yield lambda step, row: bars.update(
            task, completed=step, description=_words(title, step, total, row)
        )


def _words(title: str, step: int, total: int, row: Mapping[str, float]) -> str:
    epsilon = [f"epsilon {row['epsilon']:.3f}"] if "epsilon" in row else []
    return ", ".join([f"{title}: {step} of {total} steps", *epsilon, *in_brief(row)])
