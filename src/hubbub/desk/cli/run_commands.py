"""`run`, `predict`, `export`, and what lets others believe a run: `verify`, `report`, `audit`.

Torch is imported by the handlers alone: a run of statistics, or a look at evidence, needs none.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.disk import file_name, write_text
from hubbub.core.errors import UserError
from hubbub.core.planning.plan_rows import promised_against, spoken
from hubbub.core.planning.study_plan import steps_of
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.core.tabular.cells import csv_text
from hubbub.core.verification.evidence.audit_result import remedy, write_audit
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.evidence_file import Finding
from hubbub.desk.cli.study_commands import TRIAL, is_trial, load_trial, trial_words
from hubbub.desk.cli.terminal import (
    AUDIT,
    DEVICE,
    INTERRUPTED,
    LEDGERS,
    TRUST_CODE,
    TRUST_WORDS,
    add_command,
    answer,
    argument,
    bar,
    emit,
    finite,
    number,
    say,
    show_answers,
    table,
    warn,
    warnings_told,
    writing,
)
from hubbub.desk.report.arrangements import UNCHARGED_BASELINE, interval
from hubbub.desk.report.promise import broken, spent_words
from hubbub.desk.report.scores import SCORES_HEAD, in_a_sentence, score_rows, what_next
from hubbub.desk.report.trust_models import called
from hubbub.desk.report.validation_sheet import next_step, validation_lines
from hubbub.learning.metric_words import in_brief

if TYPE_CHECKING:
    from hubbub.learning.audit.audit import Audit
    from hubbub.learning.runs.result import Result


_COPIED = (
    "the study's attempts are used up: another copy of this folder, or a run beside it, has made "
    "those that are missing here, and they count as spent"
)
_NOT_SCORED = (
    "not scored: the study has neither [validation] nor data.test; judge the model on records that "
    "were not used for it"
)


def add_commands(commands: Any) -> None:
    """Register the commands."""
    add_command(
        commands,
        "run",
        "train a study with all parties in this process",
        _run,
        argument("study", "the study's TOML file", Path, nargs="?"),
        *TRIAL,
        argument("--out", "folder for the run; default runs/<name>-<time>", Path),
        LEDGERS,
        argument("--baseline", "trusted, local-dp, alone or non-private"),
        AUDIT,
        argument("--resume", "go on with the run in this folder instead", Path, metavar="DIR"),
        argument("--trust-code", f"with --resume: {TRUST_WORDS}", bool),
        DEVICE,
    )
    model = argument("run", "folder of the run, or of a silo's model", Path)
    add_command(
        commands,
        "predict",
        "score new rows with the model of a finished run",
        _predict,
        model,
        argument("table", "CSV or Parquet file with the study's columns", Path),
        TRUST_CODE,
        argument("--out", "CSV file for the scores; stdout if left out", Path),
    )
    words = "write the model of a finished run for other programs"
    onnx = argument("--onnx", "ONNX file to write", Path, required=True)
    add_command(commands, "export", words, _export, model, TRUST_CODE, onnx)
    add_command(
        commands,
        "verify",
        "check a run, or its evidence alone: what holds, what does not, what is not verifiable",
        _verify,
        argument("path", "folder of a run, or a file evidence.json", Path),
        argument(
            "--thorough",
            "also make accounts again that take long, if you trust whoever chose the study",
            bool,
        ),
    )
    add_command(
        commands,
        "report",
        "write the report of a run anew",
        _report,
        argument("folder", "folder of a run", Path),
        argument(
            "--with",
            "folders of other runs, such as baselines of the same study, to show side by side",
            Path,
            nargs="+",
            default=[],
            metavar="RUN",
        ),
    )
    add_command(
        commands,
        "audit",
        "look for canaries in a study's training: a lower bound on epsilon, beside the promise",
        _audit,
        argument("study", "the study's TOML file; no silo's data is read", Path),
        argument("--runs", "trainings to play; by the study if left out", int),
        argument("--canaries", "in each of them, at most 10000; by the study if left out", int),
        argument("--confidence", "of the lower bound; default 0.95", float, default=0.95),
        argument(
            "--out",
            "also write what was found to this file, for --audit of hubbub run and hubbub serve",
            Path,
        ),
    )


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    study, out = (None, options.resume) if options.resume else _new_run(options)
    try:
        result = _resumed(options) if study is None else _started(options, study, out)
    except KeyboardInterrupt:
        warn(_interrupted(out, options.baseline))
        return INTERRUPTED
    seconds = time.perf_counter() - start
    study, baseline = result.plan.study, options.baseline
    who = promised_against(result.plan.stated.adversary, baseline)
    made, is_cut = result.steps, result.is_copied and result.steps < steps_of(study)
    answers = {name: own.to_dict() for name, own in result.statistics.items()}
    scores = {name: own.to_dict() for name, own in result.scores.items()}
    spent = None if result.spending is None else result.spending.to_dict()
    alarms = broken(result.plan.to_dict(), spent) if baseline is None else []
    if not options.json:
        for words in alarms:
            say(f"note: {words}")
        show_answers(answers)
        if scores:
            table("How good the model is, on public test records", SCORES_HEAD, score_rows(scores))
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
    lines = _lines(result, baseline, who, scores)
    lines[0] += f" in {seconds:.1f} s; {_note(result.final)}"
    lines += [] if spent is None else [spent_words(spent)]
    lines.append(f"written to {out}; open {out / 'report.html'}")
    if study.training and not baseline:
        following = what_next(scores, result.final)
        if result.validation is not None and not scores:
            following = next_step(result.validation)
        lines.append(following)
    answer(options, content, *lines, *([_COPIED] if is_cut else []))
    return int(is_cut)


def _lines(
    result: Result, baseline: str | None, who: str | None, scores: Mapping[str, Any]
) -> list[str]:
    """What was run, how good it is, and what it promises."""
    plan = result.plan
    study, asked, made = plan.study, steps_of(plan.study), result.steps
    what = "steps" if study.training else "sum" if asked == 1 else "sums"
    said = f"{made} {what}" if made == asked else f"{made} of {asked} {what}"
    lines = [f"{_title(study, baseline)}: {said}"]
    training = study.training
    if training is not None and training.evaluate is None and study.validation is None:
        lines += [] if silo_records.has_test_set(study) else [_NOT_SCORED]
    if baseline is None and (standing := in_a_sentence(scores, result.final)):
        lines.append(standing)
    lines += [] if result.validation is None else validation_lines(result.validation)
    if who is None:
        lines.append("no epsilon: this baseline adds no noise, and promises nothing to anybody")
    else:
        words = f"epsilon {number(result.epsilon)} at delta {study.privacy.delta:g} against "
        theirs = f"; hubbub's holds against {spoken(plan.stated.adversary)}"
        lines.append(f"{words}{spoken(who)}{theirs if baseline else ''}")
    return [*lines, UNCHARGED_BASELINE] if baseline else lines


def _title(study: Study, baseline: str | None) -> str:
    return study.name if baseline is None else f"{study.name}, baseline “{called(baseline)}”"


def _interrupted(out: Path, baseline: str | None) -> str:
    """What is left of a run that Ctrl-C has ended, and how to go on."""
    if not (out / "run.json").exists():
        return "interrupted before the run began; nothing was charged"
    if baseline is not None:
        return f"interrupted; what there is of the baseline is in {out}; run it anew to finish it"
    again = f"hubbub run --resume {shlex.quote(str(out))}"
    return f"interrupted; what was charged stays charged; the run is in {out}; go on with: {again}"


def _new_run(options: argparse.Namespace) -> tuple[Study, Path]:
    """The study of a new run, and its folder."""
    if options.study is None:
        raise UserError("expected a study file, or --resume DIR, got neither; name one of them")
    if options.trust_code:
        raise UserError(
            "expected --trust-code with --resume DIR, got it with a study, whose code runs because "
            "you name it here; leave it out"
        )
    study = load_trial(options.study, options)
    if is_trial(options) and not options.json:
        say(trial_words(study, options.study))
    return study, options.out or new_folder(study.name)


def _started(options: argparse.Namespace, study: Study, out: Path) -> Result:
    from hubbub.learning.runs.run_study import run

    title = _title(study, options.baseline)
    with warnings_told(), bar(title, steps_of(study), quiet=options.json, lines=True) as progress:
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


def _predict(options: argparse.Namespace) -> int:
    from hubbub.learning.runs.trained_model import load, predictions

    out = options.out
    if out is not None and out.resolve() == options.table.resolve():
        raise UserError(
            f"expected another file for the scores than their table, got {out} for both; name "
            "another with --out"
        )
    trained = load(options.run, trust_code=options.trust_code)
    columns = predictions(trained, options.table)
    text = csv_text([list(columns), *zip(*columns.values(), strict=True)])
    rows = len(columns["row"])
    content = {"rows": rows, "classes": trained.classes, "columns": columns}
    if out is not None:
        with writing(out):
            write_text(out, text)
        content["out"] = str(out)
        answer(options, content, f"{rows} rows scored; written to {out}")
    elif options.json:
        emit(content)
    else:
        sys.stdout.write(text)
    return 0


def _export(options: argparse.Namespace) -> int:
    from hubbub.learning.runs.trained_model import load

    if options.onnx.suffix != ".onnx":
        raise UserError(f"expected a file that ends in .onnx, got {options.onnx}; rename it")
    trained = load(options.run, trust_code=options.trust_code)
    with writing(options.onnx):
        trained.to_onnx(options.onnx)
    answer(
        options,
        {"onnx": str(options.onnx), "classes": trained.classes, "shape": trained.shape},
        f"written to {options.onnx}: features of shape {('n', *trained.shape)}, as the study "
        "encodes them, give the scores of " + (" and ".join(trained.classes)),
    )
    return 0


def _verify(options: argparse.Namespace) -> int:
    path: Path = options.path
    if not path.exists():
        raise UserError(
            f"expected a run's folder or evidence at {path}, found nothing there; check the path"
        )
    if path.is_dir():
        findings = verified(path, quiet=options.json, thorough=options.thorough)
    else:
        findings = check(path, thorough=options.thorough)
    holds = all(finding.holds for finding in findings)
    complete = all(finding.is_checked for finding in findings)
    if options.json:
        plain = [finding._asdict() for finding in findings]
        emit({"path": str(path), "holds": holds, "complete": complete, "findings": plain})
        return 0 if holds and complete else 1
    short = [finding.verdict if finding.holds else "WRONG" for finding in findings]
    claims = [finding.claim for finding in findings]
    table(f"{path}", ("claim", "stands"), list(zip(claims, short, strict=True)))
    for finding in findings:
        if not finding.holds:
            say(f"{finding.claim}? {finding.verdict}")
        if not finding.is_checked:
            words = "not checked: it would take long; --thorough does it all the same"
            say(f"{finding.claim}? {words}")
    say(", ".join(f"{count} {verdict}" for verdict, count in Counter(short).items()))
    return 0 if holds and complete else 1


def verified(path: Path, *, quiet: bool, thorough: bool = False) -> list[Finding]:
    """All findings about a run; its sums are made again, which takes as long as it is long."""
    from hubbub.core.verification.replay.checking import steps_of, verify

    with bar(f"verifying {path}", steps_of(path), quiet=quiet) as progress:
        return verify(path, progress.advance, thorough=thorough)


def _report(options: argparse.Namespace) -> int:
    from hubbub.desk.report.report_of_run import write_report

    path = write_report(options.folder, beside=getattr(options, "with"))
    answer(options, {"report": str(path)}, f"written: {path}")
    return 0


def _audit(options: argparse.Namespace) -> int:
    from hubbub.core.planning.study_plan import plan, steps_of
    from hubbub.learning.audit.audit import audit
    from hubbub.learning.audit.power import size_of

    study, out = Study.load(options.study), options.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"expected --out to be a file in a folder that exists, got {out}; name one")
    runs, _ = size_of(plan(study), options.runs, options.canaries, options.confidence)
    steps = max(runs, 0) * steps_of(study)
    with bar("auditing", steps, quiet=options.json) as progress:
        result = audit(
            study,
            runs=runs,
            canaries=options.canaries,
            confidence=options.confidence,
            progress=progress.reach,
        )
    try:
        emit(result.to_dict()) if options.json else _show_audit(study, result)
    finally:  # hours of work must not go with whoever stops reading
        if out is not None:
            with writing(out):
                write_audit(out, result.to_dict())
    return int(result.contradicted)


def _show_audit(study: Study, found: Audit) -> None:
    """The audit as a table for people, and what follows from it."""
    rates = found.rates
    table(
        f"{study.name}: epsilon against the {found.plan.stated.adversary} "
        f"(delta {study.privacy.delta:g}, {study.privacy.relation})",
        ("", ""),
        [
            ("promised", number(found.promised)),
            ("of which the training's sums may tell", number(found.audited)),
            (f"seen in them, at least ({found.confidence:.6g} confidence)", number(found.lower)),
            (f'"{found.side}", said of so many rightly', _share(rates.true, rates.positives)),
            ("and of so many wrongly", _share(rates.false, rates.negatives)),
        ],
    )
    seen = found.seen
    if seen.numbers:
        small = 100 * seen.small / seen.numbers
        say(f"masked vectors: {small:.3f} % of their numbers small; 6.25 expected")
    if seen.matrices:
        say(f"matrices of projections: {seen.repeated} of {seen.matrices} as in the step before")
    if seen.lists:
        say(f"shuffled token lists: kept for all steps in {seen.kept} of {seen.lists} runs")
    say(f"{found.runs} runs of {found.canaries} canaries in {found.seconds:.0f} s")
    if found.contradicted:
        say(f"CONTRADICTED: more was seen than these sums may tell; {remedy(found.confidence)}")
    else:
        say("not contradicted; that proves nothing, and more runs look more closely")


def _share(part: int, whole: int) -> str:
    """A rate, with what it is made of."""
    return f"{part} of {whole} ({100 * part / max(whole, 1):.2f} %)"
