"""A run's result as it is read: on a terminal, in a notebook, as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from hubbub.core.disk import write_bytes
from hubbub.core.number_format import at_most
from hubbub.core.runs.run_folder import REPORT
from hubbub.desk.report.answer_tables import answer_lines
from hubbub.desk.report.notebook_view import shown_in_notebook
from hubbub.desk.report.page import render
from hubbub.desk.report.promise_words import broken, spent_words
from hubbub.desk.report.report_of_run import write_report
from hubbub.desk.report.score_words import in_a_sentence
from hubbub.desk.report.validation_words import validation_lines
from hubbub.learning.runs.result import Result, scores_to_dict


def in_text(result: Result) -> str:
    """What a terminal shows."""
    return "\n".join(_lines(result))


def in_notebook(result: Result) -> str:
    """HTML for a notebook."""
    return shown_in_notebook(
        _heading(result),
        _promise(result),
        [*_read_off(result), *([f"written to {result.folder}"] if result.folder else [])],
        final=None if result.model is None else result.final,
        scores=scores_to_dict(result.scores),
        validation=result.validation,
        answers={name: one.to_dict() for name, one in result.statistics.items()},
    )


def write_page(result: Result, path: Path | None) -> Path:
    """Write one HTML file that loads nothing; into the run's folder, or here, without a path."""
    if result.folder is not None and path is None:
        return write_report(result.folder)
    file = path or Path(REPORT)
    page = render(
        json.loads(result.plan.to_json()),
        result.metrics,
        baseline=result.baseline,
        statistics={name: one.to_dict() for name, one in result.statistics.items()},
        spending=None if result.spending is None else result.spending.to_dict(),
        scores=scores_to_dict(result.scores),
        validation=result.validation,
    )
    write_bytes(file, page.encode())
    return file


def _lines(result: Result) -> Iterator[str]:
    spent = None if result.spending is None else result.spending.to_dict()
    yield from broken(result.plan.to_dict(), spent)
    if result.model is not None:
        yield _heading(result)
    if result.statistics:
        answered = [name for name, one in result.statistics.items() if not one.refusal]
        yield f"{result.plan.study.name}: answers to {', '.join(answered) or 'nothing'}"
    for name, one in result.statistics.items():
        yield from (f"  {line}" for line in answer_lines(name, one.to_dict()))
    yield _promise(result)
    if spent is not None:
        yield spent_words(spent)
    yield from _read_off(result)
    known = {k: v for k, v in result.final.items() if k not in ("step", "epsilon", "seconds")}
    if result.model is not None:
        shown = ", ".join(f"{name} {value:.3f}" for name, value in known.items())
        if shown or result.validation is None:
            yield shown or "not evaluated: state test or validation to be told how good it is"
        if said := in_a_sentence(scores_to_dict(result.scores), result.final):
            yield said
    if result.validation is not None:
        yield from validation_lines(result.validation)
    if result.folder is not None:
        yield f"written to {result.folder}"


def _heading(result: Result) -> str:
    """What was run."""
    name = result.plan.study.name
    if result.model is None:
        return f"{name}: {len(result.statistics)} answers"
    return f"{name}: {result.steps} of {result.plan.mechanism.steps} steps"


def _promise(result: Result) -> str:
    """Its epsilon, and against whom."""
    epsilon, delta = at_most(result.epsilon), result.plan.study.privacy.delta
    return f"epsilon {epsilon} at delta {delta:g} against {result.adversary}"


def _read_off(result: Result) -> tuple[str, ...]:
    """What the promise does not cover, in a sentence, if there is something."""
    if not result.made_public:
        return ()
    return (f"made public, since it was not stated: {'; '.join(result.made_public)}",)
