"""`hubbub plan`: what follows from a study, or from a trial of it with other values.

A trial (`--epsilon`, `--set`) changes no file: it is another study, under another name and id. Run,
it is charged like any other.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.disk import read_text, toml_table
from hubbub.core.errors import UserError
from hubbub.core.number_format import at_most
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.sampling_comparison import as_table
from hubbub.core.planning.study_plan import plan
from hubbub.core.runs.renderers import render
from hubbub.core.settings import shown
from hubbub.core.study.study import Study
from hubbub.desk.cli.terminal import STUDY, add_command, argument, emit, say, show, table
from hubbub.desk.report.promise import broken, exposure_rows, number_rows
from hubbub.estimation.queries.statistics_query import planned_answers

if TYPE_CHECKING:
    from hubbub.desk.cli.ledger_books import PlannedSpending

_LONGEST = 200  # letters of a study's name
_LEDGERS = Path("runs/ledgers")  # where `hubbub run` has them
TRIAL = (
    argument(
        "--epsilon EPSILON",
        "this epsilon instead of the study's, to try it out; parts of it keep their share",
    ),
    argument(
        "--set KEY=VALUE",
        "another value, to try it out, such as training.steps=100; may be repeated",
        action="append",
        default=[],
    ),
)


def add_commands(commands: Any) -> None:
    """Register the command."""
    ledgers = argument(
        "--ledgers DIR",
        "folder of the silos' ledgers, to see what their records have spent; default: "
        f"that of the last run of these files, or {_LEDGERS}, if it exists",
        Path,
    )
    words = "show what a study means: noise, and epsilon for each adversary"
    add_command(commands, "plan", words, _plan, STUDY, *TRIAL, ledgers)


def is_trial(options: argparse.Namespace) -> bool:
    """Whether another value was asked for."""
    return options.epsilon is not None or bool(options.set)


def load_trial(path: Path, options: argparse.Namespace) -> Study:
    """The study in a file, or a trial of it with other values."""
    study = Study.load(path)
    if not is_trial(options):
        return study
    values = toml_table(read_text(path).removeprefix("\ufeff"))
    changes = list(options.set)
    if options.epsilon is not None:
        _put(values, f"privacy.epsilon={options.epsilon}")
        epsilon, cap = values["privacy"]["epsilon"], values["privacy"].get("cap", 0)
        if not isinstance(epsilon, int | float):
            raise UserError(
                f"expected a number after --epsilon, got {shown(epsilon)}; write for example 0.5"
            )
        # What is asked beside the main query keeps its share of the study's epsilon.
        ratio = epsilon / study.privacy.epsilon
        parts = {key: part for ask in study.asks for key, part in ask.parts(study).items()}
        shares = [f"{key}={part * ratio:.6g}" for key, part in parts.items()]
        changes = [f"privacy.epsilon={options.epsilon}", *shares, *changes]
        # A cap below epsilon is a proposal for later; what ledgers allow counts anyway.
        if isinstance(cap, int | float) and cap < epsilon:
            values["privacy"].pop("cap", None)
    for change in changes:
        _put(values, change)
    if values["study"]["name"] == study.name:
        said = ", ".join(change.replace("=", " = ", 1) for change in changes)
        values["study"]["name"] = f"{study.name}, trial of {said}"[:_LONGEST]
    return Study.from_table(values)


def trial_words(study: Study, path: Path) -> str:
    """What people are told of a trial."""
    return (
        f"a trial, “{study.name}”: {path} was not changed; a run of the trial is charged, "
        "and charges add up"
    )


def _put(values: dict[str, Any], change: str) -> None:
    """Put a value where a dotted key leads; a text may stand without its quotes."""
    key, sign, text = change.partition("=")
    *above, last = (part.strip() for part in key.split("."))
    if not sign or not above or not all((*above, last)):
        raise UserError(
            f"expected --set KEY=VALUE with a table's key, such as training.steps=100, got "
            f"{shown(change)}; write it so"
        )
    inner = values
    for part in above:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(
                f"expected --set to name a key of a table, got {shown(key)}, and {part} "
                "is not a table; set all of it"
            )
    try:
        inner[last] = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        inner[last] = text.strip()


def _plan(options: argparse.Namespace) -> int:
    study = load_trial(options.study, options)
    made = plan(study)
    spent = _spending(made, options.ledgers)
    if options.json:
        more: dict[str, Any] = {}
        if study.attestation:
            more["attestation"] = study.attestation.to_dict()
        if study.statistics:
            answers = planned_answers(made).items()
            more["statistics"] = {name: answer.to_dict() for name, answer in answers}
        more |= {ask.tables[0]: said for ask in study.asks if (said := ask.foreseen(made))}
        if spent:
            more["ledgers"] = {name: asdict(own) for name, own in spent.items()}
        emit({**made.to_dict(), "own_code": study.own_code, **more})
        return 0
    if is_trial(options):
        say(trial_words(study, options.study))
    show_plan(made)
    if spent:
        goal = study.privacy
        rows = [
            (who, at_most(own.spent), at_most(own.after), own.words) for who, own in spent.items()
        ]
        table(
            f"Total spent by these records (at delta {goal.delta:g}, {goal.relation}, if "
            "all studies were fixed before the first)",
            ("silo", "epsilon so far", "with this study", "its cap"),
            rows,
        )
    return 0


def _spending(made: Plan, stated: Path | None) -> Mapping[str, PlannedSpending]:
    """What the silos' ledgers hold, of those that are there, beside what the study will charge."""
    from hubbub.learning.runs.uncounted import counted_in  # a plan alone needs nothing of runs

    folder = stated or counted_in(made.study) or _LEDGERS
    paths = {name: folder / f"{name}.sqlite" for name in made.study.parties.names}
    there = {name: path for name, path in paths.items() if path.is_file()}
    if stated is not None and not there:
        raise UserError(
            f"expected ledgers of {', '.join(paths)} in {stated}, found none; name the "
            "folder that was given to run --ledgers, or leave --ledgers out"
        )
    if not there:
        return {}
    from hubbub.desk.cli.ledger_books import spending  # a plan alone needs nothing of ledgers

    return {name: spending(path, made) for name, path in there.items()}


def show_plan(made: Plan) -> None:
    """The plan as tables for people."""
    study, plain = made.study, made.to_dict()
    for words in broken(plain):
        say(f"note: {words}")
    table(
        f"{study.name}: what each adversary can learn about one {study.data.unit} "
        f"(delta {study.privacy.delta:g}, {study.privacy.relation})",
        ("adversary", "guarantee", "unknown noise / C", "epsilon at most"),
        [(who, what, left, epsilon) for who, epsilon, _, what, left in exposure_rows(plain)],
        texts=2,
        is_named=True,
    )
    if made.joint_batches:
        title = "Joint batches beside Poisson sampling, at the same noise"
        head = ("adversary", "records owned", "joint batches", "Poisson")
        table(title, head, as_table(made.joint_batches))
    rows = [(name, words, value) for name, value, words in number_rows(plain)]
    table("Noise and messages", ("quantity", "what it is", "value"), rows, texts=2)
    _show_statistics(made)
    for ask in study.asks:
        if foreseen := ask.foreseen(made):
            show(render(f"plan of {ask.tables[0]}", foreseen, study))
    if study.attestation:
        from hubbub.core.verification.attestation.policy import in_words, policy_of

        for role, asked in study.attestation.asked().items():
            say(f"evidence of every {role}: {in_words(policy_of(asked))}")
    for warning in made.warnings:
        say(f"note: {warning}")
    if study.own_code:
        say(
            f"code: {' and '.join(study.own_code)} will run on the machine of everybody who runs "
            "or joins this study, and sees the records there; none of it has run yet: read it first"
        )


def _show_statistics(made: Plan) -> None:
    """What will be said of each statistic, before any record is touched."""
    if made.study.statistics is None:
        return
    kinds, rows = dict(made.study.statistics.named), []
    for name, answer in planned_answers(made).items():
        part = f"{100 * answer.part:.0f} %" if answer.part >= 0.1 else f"{100 * answer.part:.2g} %"
        word, least = "not known", ""
        sentence = "state data.records, the public number of records"
        if (expected := answer.expected) is not None:
            word = "yes" if expected.answered else "perhaps" if expected.possible else "no"
            least = "none" if answer.least_epsilon is None else f"{answer.least_epsilon:g}"
            sentence = expected.sentence
        rows.append((name, kinds[name].kind, word, least, part, sentence))
    said = "expected standard error (noise and sampling)"
    head = ("statistic", "kind", "answered", "least epsilon", "part", said)
    table("Statistics: expected precision, before any record is read", head, rows, texts=len(head))
