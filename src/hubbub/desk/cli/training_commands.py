"""`hubbub run`: from a study to a model."""

from __future__ import annotations

import argparse
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.disk import file_name
from hubbub.core.errors import UserError
from hubbub.core.planning.plan_rows import promised_against, spoken
from hubbub.core.planning.study_plan import steps_of
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.desk.cli import trial_study
from hubbub.desk.cli.terminal import (
    AUDIT_WORDS,
    INTERRUPTED,
    TRUST_WORDS,
    add_command,
    answer,
    bar,
    finite,
    number,
    say,
    show_answers,
    table,
    warn,
    warnings_told,
)
from hubbub.desk.report.arrangements import UNCHARGED_BASELINE, interval
from hubbub.desk.report.promise import broken, spent_words
from hubbub.desk.report.scores import SCORES_HEAD, in_a_sentence, score_rows, what_next
from hubbub.desk.report.trust_models import called
from hubbub.desk.report.validation_sheet import next_step, validation_lines
from hubbub.learning.metric_words import in_brief

if TYPE_CHECKING:
    from hubbub.learning.runs.result import Result

_COPIED = (
    "the study's attempts are used up: another copy of this folder, or a run beside it, has made "
    "those that are missing here, and they count as spent"
)
_NOT_SCORED = (
    "not scored: the study has neither [validation] nor data.test; judge the model on records that "
    "were not used for it"
)
_NO_NOISE = "no epsilon: this baseline adds no noise, and promises nothing to anybody"


def add_commands(commands: Any) -> None:
    """Register the command."""
    trained = add_command(commands, "run", "train a study with all parties in this process", _run)
    trained.add_argument("study", type=Path, nargs="?", help="the study's TOML file")
    trial_study.add_trial_options(trained)
    trained.add_argument("--out", type=Path, help="folder for the run; default runs/<name>-<time>")
    trained.add_argument("--ledgers", type=Path, help="folder of the silos' ledgers")
    trained.add_argument("--baseline", help="trusted, local-dp, alone or non-private")
    trained.add_argument("--audit", type=Path, help=AUDIT_WORDS)
    trained.add_argument(
        "--resume", type=Path, metavar="DIR", help="go on with the run in this folder instead"
    )
    words = f"with --resume: {TRUST_WORDS}"
    trained.add_argument("--trust-code", action="store_true", help=words)
    trained.add_argument(
        "--device", default="auto", help="auto (a GPU if there is one), cpu or cuda; default auto"
    )


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    study, out = (None, options.resume) if options.resume else _asked(options)
    try:
        result = _resumed(options) if study is None else _started(options, study, out)
    except KeyboardInterrupt:
        warn(_interrupted(out, options.baseline))
        return INTERRUPTED
    seconds = time.perf_counter() - start
    study = result.plan.study
    who = promised_against(result.plan.stated.adversary, options.baseline)
    asked, made = steps_of(study), result.steps
    stopped = result.is_copied and made < asked
    what = "steps" if study.training else "sum" if asked == 1 else "sums"
    said = f"{made} {what}" if made == asked else f"{made} of {asked} {what}"
    answers = {name: one.to_dict() for name, one in result.statistics.items()}
    scores = {name: one.to_dict() for name, one in result.scores.items()}
    spent = None if result.spending is None else result.spending.to_dict()
    alarms = broken(result.plan.to_dict(), spent) if options.baseline is None else []
    if not options.json:
        for words in alarms:
            say(f"note: {words}")
        show_answers(answers)
        if scores:
            table("How good the model is, on public test records", SCORES_HEAD, score_rows(scores))
    validated = [] if result.validation is None else list(validation_lines(result.validation))
    following = what_next(scores, result.final)
    if result.validation is not None and not scores:
        following = next_step(result.validation)
    standing = in_a_sentence(scores, result.final) if options.baseline is None else ""
    answer(
        options,
        {
            "out": str(out),
            "final": dict(result.final),
            "epsilon": finite(result.epsilon),
            "delta": study.privacy.delta,
            "seconds": seconds,
            "steps": made,
            "is_copied": result.is_copied,
            "baseline": options.baseline,
            "adversary": who,
            "spending": spent,
            "warnings": alarms,
            "scores": scores,
            **({"note": UNCHARGED_BASELINE} if options.baseline else {}),
            **({"statistics": answers} if answers else {}),
            **({} if result.validation is None else {"validation": result.validation}),
        },
        f"{_title(study, options.baseline)}: {said} in {seconds:.1f} s; {_note(result.final)}",
        *([] if _is_scored(study) else [_NOT_SCORED]),
        *([standing] if standing else []),
        *validated,
        _NO_NOISE if who is None else _promise(result, options.baseline, who),
        *([UNCHARGED_BASELINE] if options.baseline else []),
        *([] if spent is None else [spent_words(spent)]),
        f"written to {out}; open {out / 'report.html'}",
        *([following] if study.training and not options.baseline else []),
        *([_COPIED] if stopped else []),
    )
    return int(stopped)


def _is_scored(study: Study) -> bool:
    """Whether a run of it can say how good its model is, if it trains one."""
    return (
        study.training is None
        or silo_records.has_test_set(study)
        or study.training.evaluate is not None
        or study.validation is not None
    )


def _title(study: Study, baseline: str | None) -> str:
    """What is run."""
    return study.name if baseline is None else f"{study.name}, baseline “{called(baseline)}”"


def _promise(result: Result, baseline: str | None, who: str) -> str:
    """The epsilon of a run, and against whom it holds."""
    delta = result.plan.study.privacy.delta
    words = f"epsilon {number(result.epsilon)} at delta {delta:g} against {spoken(who)}"
    if baseline is None:
        return words
    return f"{words}; hubbub's holds against {spoken(result.plan.stated.adversary)}"


def _interrupted(out: Path, baseline: str | None) -> str:
    """What is left of a run that Ctrl-C has ended, and how to go on."""
    if not (out / "run.json").exists():
        return "interrupted before the run began; nothing was charged"
    if baseline is not None:
        return f"interrupted; what there is of the baseline is in {out}; run it anew to finish it"
    again = f"hubbub run --resume {shlex.quote(str(out))}"
    return f"interrupted; what was charged stays charged; the run is in {out}; go on with: {again}"


def _asked(options: argparse.Namespace) -> tuple[Study, Path]:
    """The study of a new run, and its folder."""
    if options.study is None:
        raise UserError("expected a study file, or --resume DIR, got neither; name one of them")
    if options.trust_code:
        raise UserError(
            "expected --trust-code with --resume DIR, got it with a study, whose code runs because "
            "you name it here; leave it out"
        )
    study = trial_study.load(options.study, options)
    if trial_study.is_trial(options) and not options.json:
        say(trial_study.words(study, options.study))
    return study, options.out or new_folder(study.name)


def _started(options: argparse.Namespace, study: Study, out: Path) -> Result:
    """A new run."""
    from hubbub.learning.runs.run_study import run

    title = _title(study, options.baseline)
    with (
        warnings_told(),
        bar(title, steps_of(study), quiet=options.json, lines=True) as progress,
    ):
        return run(
            study,
            out,
            baseline=options.baseline,
            ledgers=options.ledgers,
            progress=lambda step, row: progress.reach(step, _note(row)),
            device=options.device,
            audit=options.audit,
            notice=progress.note,
        )


def _resumed(options: argparse.Namespace) -> Result:
    """A run that was stopped, from where it stood."""
    from hubbub.learning.runs.run_study import resume

    for name in ("study", "out", "ledgers", "baseline", "audit", "epsilon", "set"):
        if getattr(options, name) not in (None, []):
            raise UserError(
                f"expected --resume alone, got {name} too; the run's folder says all of it: leave "
                f"{name} out"
            )
    toml = options.resume / "study.toml"
    steps = steps_of(Study.load(toml)) if toml.is_file() else 0
    with bar("resuming", steps, quiet=options.json, lines=True) as progress:
        return resume(
            options.resume,
            progress=lambda step, row: progress.reach(step, _note(row)),
            device=options.device,
            notice=progress.note,
            trust_code=options.trust_code,
        )


def _note(row: Mapping[str, float]) -> str:
    """The newest metrics in a few words."""
    shown = [f"epsilon {row['epsilon']:.3f}"] if "epsilon" in row else []
    return ", ".join([*shown, *in_brief(row)])


def new_folder(name: str) -> Path:
    """A folder below runs/ that does not exist yet; the run makes it once it is sure to start."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{file_name(name)}-{stamp}-{secrets.token_hex(3)}"


def margin(values: Sequence[float]) -> str:
    """Half the width of a mean's 95 % interval, for a table; nothing of a single value."""
    low, high = interval(values)
    return "" if low is None or high is None else f"{(high - low) / 2:.3f}"
