"""`hubbub run`: a study with all parties in this process.

Torch is imported by the handler alone: a run of statistics needs none.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.disk import file_name
from hubbub.core.errors import UserError
from hubbub.core.number_format import at_most
from hubbub.core.planning.plan_rows import promised_against
from hubbub.core.planning.study_plan import steps_of
from hubbub.core.runs.renderers import render
from hubbub.core.study.study import Study
from hubbub.desk.cli.study_commands import TRIAL, is_trial, load_trial, trial_words
from hubbub.desk.cli.terminal import (
    AUDIT,
    DEVICE,
    INTERRUPTED,
    LEDGERS,
    TRUST_WORDS,
    add_command,
    answer,
    argument,
    bar,
    finite,
    say,
    show,
    warn,
    warnings_told,
)
from hubbub.desk.report.arrangements import UNCHARGED_BASELINE
from hubbub.desk.report.promise import broken
from hubbub.desk.report.scores import following, score_table
from hubbub.desk.report.sheet import Sheet
from hubbub.desk.report.trust_models import called
from hubbub.learning.metric_words import in_brief

if TYPE_CHECKING:
    from hubbub.learning.runs.result import Result


_COPIED = (
    "the study's attempts are used up: another copy of this folder, or another run "
    "beside it, made the attempts that are missing here, and they count as spent"
)
_SCORED = "How good the model is, on public test records"


def add_commands(commands: Any) -> None:
    """Register the commands."""
    add_command(
        commands,
        "run",
        "run a study with all parties in one process",
        _run,
        argument("study", "the study's TOML file", Path, nargs="?"),
        *TRIAL,
        argument("--out", "folder for the run; default runs/<name>-<time>", Path),
        argument("--progress", "with --json: also print progress on standard error", bool),
        LEDGERS,
        argument("--baseline", "trusted, local-dp, alone or non-private"),
        AUDIT,
        argument("--resume DIR", "continue the run in this folder instead", Path),
        argument("--trust-code", f"with --resume: {TRUST_WORDS}", bool),
        argument(
            "--log LOG",
            "also send metrics and epsilon to tensorboard:DIR, mlflow:URI, jsonl (standard "
            "error) or jsonl:FILE",
        ),
        DEVICE,
    )


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    study, out = (None, options.resume) if options.resume else _new_run(options)
    try:
        result = _resumed(options) if study is None else _started(options, study, out)
    except KeyboardInterrupt:
        warn(_interrupted(out, options.baseline))
        return INTERRUPTED
    from hubbub.desk.report.run_result import sheets_of

    seconds = time.perf_counter() - start
    study, baseline = result.plan.study, options.baseline
    who = promised_against(result.plan.stated.adversary, baseline)
    made, is_cut = result.steps, result.is_copied and result.steps < steps_of(study)
    answers = {name: own.to_dict() for name, own in result.statistics.items()}
    scores = {name: own.to_dict() for name, own in result.scores.items()}
    spent = None if result.spending is None else result.spending.to_dict()
    alarms = broken(result.plan.to_dict(), spent) if baseline is None else []
    run, *others = sheets_of(result)
    if not options.json:
        for words in alarms:
            say(f"note: {words}")
        for sheet in others:
            show(sheet)
        if scores:
            show(Sheet(title="", tables=(score_table(scores, _SCORED),)))
    content = {
        "out": str(out),
        "final": dict(result.final),
        "epsilon": finite(result.epsilon),
        "delta": study.privacy.delta,
        "seconds": seconds,
        "steps": made,
        "is_copied": result.is_copied,
        "baseline": baseline,
        "adversary": who,
        "spending": spent,
        "warnings": alarms,
        "scores": scores,
        **({"note": UNCHARGED_BASELINE} if baseline else {}),
        **({"statistics": answers} if answers else {}),
        **({} if result.validation is None else {"validation": result.validation}),
    }
    lines = [f"{run.title} in {seconds:.1f} s", *run.sentences]
    lines.append(f"written to {out}; open {out / 'report.html'}")
    if study.training and not baseline:
        validation = result.validation
        validated = None if validation is None else render("validation", validation)
        lines.append(following(scores, result.final, validated))
    answer(options, content, *lines, *([_COPIED] if is_cut else []))
    return int(is_cut)


def _title(study: Study, baseline: str | None) -> str:
    return study.name if baseline is None else f"{study.name}, baseline “{called(baseline)}”"


def _interrupted(out: Path, baseline: str | None) -> str:
    if not (out / "run.json").exists():
        return "interrupted before the run began; nothing was charged"
    if baseline is not None:
        return f"interrupted; the unfinished baseline is in {out}; run it again from the start"
    again = f"continue with: hubbub run --resume {shlex.quote(str(out))}"
    return f"interrupted; what was charged stays charged; the run is in {out}; {again}"


def _new_run(options: argparse.Namespace) -> tuple[Study, Path]:
    if options.study is None:
        raise UserError("expected a study file, or --resume DIR, got neither; give one of them")
    if options.trust_code:
        raise UserError(
            "expected --trust-code only with --resume DIR, got it with a study file; "
            "naming the file already permits its code to run: leave --trust-code out"
        )
    study = load_trial(options.study, options)
    if is_trial(options) and not options.json:
        say(trial_words(study, options.study))
    return study, options.out or new_folder(study.name)


def _started(options: argparse.Namespace, study: Study, out: Path) -> Result:
    from hubbub.learning.runs.run_study import run

    title, quiet = _title(study, options.baseline), options.json and not options.progress
    with warnings_told(), bar(title, steps_of(study), quiet=quiet, lines="step") as progress:
        return run(
            study,
            out,
            baseline=options.baseline,
            ledgers=options.ledgers,
            progress=lambda step, row: progress.reach(step, _note(row)),
            device=options.device,
            audit=options.audit,
            notice=progress.note,
            log=options.log,
        )


def _resumed(options: argparse.Namespace) -> Result:
    from hubbub.learning.runs.run_study import resume

    for name in ("study", "out", "ledgers", "baseline", "audit", "epsilon", "set"):
        if getattr(options, name) not in (None, []):
            raise UserError(
                f"expected --resume alone, got {name} too; the run's folder already "
                f"contains that: leave {name} out"
            )
    toml = options.resume / "study.toml"
    steps = steps_of(Study.load(toml)) if toml.is_file() else 0
    quiet = options.json and not options.progress
    with bar("resuming", steps, quiet=quiet, lines="step") as progress:
        return resume(
            options.resume,
            progress=lambda step, row: progress.reach(step, _note(row)),
            device=options.device,
            notice=progress.note,
            trust_code=options.trust_code,
            log=options.log,
        )


def _note(row: Mapping[str, float]) -> str:
    shown = [f"epsilon {at_most(row['epsilon'])}"] if "epsilon" in row else []
    return ", ".join([*shown, *in_brief(row)])


def new_folder(name: str) -> Path:
    """A folder below runs/ that does not exist yet; the run makes it once it is sure to start."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{file_name(name)}-{stamp}-{secrets.token_hex(3)}"
