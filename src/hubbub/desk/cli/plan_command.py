"""`hubbub plan`: what follows from a study, as tables or as plain values."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import UserError
from hubbub.core.number_format import at_most
from hubbub.core.planning.plan import Plan, option_rows
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.planning.sampling_comparison import as_table
from hubbub.core.planning.study_plan import plan
from hubbub.desk.cli import trial_study
from hubbub.desk.cli.terminal import add_command, emit, number, say, table
from hubbub.desk.report.promise import broken
from hubbub.desk.report.validation_sheet import validation_name
from hubbub.estimation.queries.statistics_query import PlannedAnswer, planned_answers
from hubbub.learning.queries.validation.validation_query import foreseen_validation

if TYPE_CHECKING:
    from hubbub.desk.cli.ledger_books import PlannedSpending

_LEDGERS = Path("runs/ledgers")  # where `hubbub run` has them
_HEAD = (
    *("statistic", "kind", "answered", "least epsilon", "part"),
    "expected standard error, noise and chance together",
)


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = "what a study means: noise, epsilon per adversary"
    planned = add_command(commands, "plan", words, _plan)
    planned.add_argument("study", type=Path, help="the study's TOML file")
    trial_study.add_trial_options(planned)
    planned.add_argument(
        "--ledgers",
        type=Path,
        metavar="DIR",
        help="folder of the silos' ledgers, to see what their records have spent; default that "
        f"of the last run of these files, or {_LEDGERS}, if it is there",
    )


def _plan(options: argparse.Namespace) -> int:
    study = trial_study.load(options.study, options)
    planned = plan(study)
    spent = _spending(planned, options.ledgers)
    if options.json:
        asked = planned.study.attestation
        more = {"attestation": asked.to_dict()} if asked else {}
        if planned.study.statistics:
            answers = planned_answers(planned).items()
            more["statistics"] = {name: one.to_dict() for name, one in answers}
        if foreseen := foreseen_validation(planned):
            more["validation"] = foreseen
        if spent:
            more["ledgers"] = {name: asdict(one) for name, one in spent.items()}
        emit({**planned.to_dict(), "own_code": planned.study.own_code, **more})
    else:
        if trial_study.is_trial(options):
            say(trial_study.words(study, options.study))
        show_plan(planned)
        _show_spending(planned, spent)
    return 0


def _spending(made: Plan, stated: Path | None) -> dict[str, PlannedSpending]:
    """What the silos' ledgers hold, of those that are there, beside what the study will charge."""
    from hubbub.learning.runs.uncounted import counted_in  # a plan alone needs nothing of runs

    folder = stated or counted_in(made.study) or _LEDGERS
    paths = {name: folder / f"{name}.sqlite" for name in made.study.parties.names}
    there = {name: path for name, path in paths.items() if path.is_file()}
    if stated is not None and not there:
        raise UserError(
            f"expected ledgers of {', '.join(paths)} in {stated}, found none; name the folder that "
            "run --ledgers named, or leave --ledgers out"
        )
    if not there:
        return {}
    from hubbub.desk.cli.ledger_books import spending  # a plan alone needs nothing of ledgers

    return {name: spending(path, made) for name, path in there.items()}


def _show_spending(made: Plan, spent: Mapping[str, PlannedSpending]) -> None:
    """The same for people."""
    if not spent:
        return
    goal = made.study.privacy
    table(
        f"Spent in all by these records (at delta {goal.delta:g}, {goal.relation}, "
        "if they were fixed before the first)",
        ("silo", "epsilon so far", "with this study", "its cap"),
        [(name, number(one.spent), number(one.after), one.words) for name, one in spent.items()],
    )


def show_plan(made: Plan) -> None:
    """The plan as tables for people."""
    study, plain = made.study, made.to_dict()
    for words in broken(plain):
        say(f"note: {words}")
    table(
        f"{study.name}: what each adversary can learn about one {study.data.unit} "
        f"(delta {study.privacy.delta:g}, {study.privacy.relation})",
        ("adversary", "noise left (sigma / C)", "epsilon"),
        [
            (
                exposure.adversary + ("  <- promised" if exposure == made.stated else ""),
                number(exposure.noise_multiplier),
                number(exposure.epsilon),
            )
            for exposure in made.exposures
        ]
        + _patient_row(made),
    )
    if made.joint_batches:
        table(
            "Joint batches beside Poisson sampling, at the same noise",
            ("adversary", "records owned", "joint batches", "Poisson"),
            as_table(made.joint_batches),
        )
    upload = made.upload_bytes_per_step
    table(
        "How",
        ("what follows", "value"),
        [
            ("noise multiplier, against the promised adversary", number(made.noise_multiplier, 6)),
            ("noise multiplier of the whole sum", number(made.total_noise_multiplier, 6)),
            ("each silo's noise share (standard deviation)", number(made.share_sigma, 6)),
            ("the least share in grid steps", number(made.share_sigma_grid)),
            *_mask_partners(made),
            *map(_option_row, option_rows(plain)),
            ("word", f"{made.word_bits} bits"),
            (f"{study.data.unit}s in one direction that fit a word", str(made.sum_limit)),
            ("silos needed in a round", f"{made.quorum} of {study.parties.silos}"),
            ("a silo sends per step", "unknown" if upload is None else f"{upload:,} bytes"),
            (
                "an attack that wrongly accuses 1 in 100 finds at most",
                f"{at_most(100 * made.attack_power)} in 100",
            ),
        ],
    )
    _show_expected(made)
    _show_validation(made)
    if study.attestation:
        from hubbub.core.verification.attestation.policy import policy_of

        for role, asked in study.attestation.asked().items():
            say(f"evidence of every {role}: {policy_of(asked).words()}")
    for warning in made.warnings:
        say(f"note: {warning}")
    if study.own_code:
        say(
            f"code: {' and '.join(study.own_code)} will run on the machine of everybody who runs "
            "or joins this study, and sees records there; nothing of it has run yet: read it first"
        )


def _mask_partners(made: Plan) -> list[tuple[str, str]]:
    """With how many silos each shares masks, if with silos."""
    if made.study.parties.compute_nodes:
        return []
    return [("silos with which each shares masks", str(made.degree))]


def _option_row(row: PlanRow) -> tuple[str, str]:
    """What an option of the study says of itself."""
    value = row.value
    if value is None:
        shown = number(inf) if row.upper else "unknown"
    else:
        shown = value if isinstance(value, str) else number(value)
    return f"{row.name}: {row.words}", shown


def _patient_row(made: Plan) -> list[tuple[str, str, str]]:
    """What the promised adversary can learn about a patient, where the study speaks of patients."""
    patient = made.patient
    if patient is None:
        return []
    shown = "no account" if patient.epsilon is None else number(patient.epsilon)
    who = f"{made.stated.adversary}, about {patient.who}"
    return [(who, number(made.stated.noise_multiplier), shown)]


def _show_validation(made: Plan) -> None:
    """On which records the model will be scored, and how exactly, before any is touched."""
    foreseen = foreseen_validation(made)
    if foreseen is None:
        return
    much = foreseen["flatters"]
    flattered = "not known" if much is None else f"up to about {much:.2g}"
    rows = [
        (
            f"{name} records" + ("  <- taken" if name == foreseen["records"] else ""),
            "beyond 1" if error is None else f"{error:.2g}",
            "nothing" if name == "held-back" else flattered,
        )
        for name, error in foreseen["errors"].items()
    ]
    if not made.study.data.records:
        rows = [(foreseen["records"], "not known: state data.records", "")]
    asked = made.study.validation
    share = "" if foreseen["rate"] is None else f", if {foreseen['rate']:.3g} have the outcome"
    if share and asked is not None and not asked.rate:
        share += " (say how many with validation.rate)"
    table(
        f"Private validation: the {validation_name(foreseen['score'])} of the trained model{share}",
        ("compared with", "standard error, noise and chance together", "may flatter by"),
        rows,
        texts=3,
    )


def _show_expected(made: Plan) -> None:
    """What will be said of each statistic, before any record is touched."""
    study = made.study
    if study.statistics is None:
        return
    kinds, answers = dict(study.statistics.named), planned_answers(made)
    rows = [(name, kinds[name].kind, *_foreseen(one)) for name, one in answers.items()]
    table("Statistics, before any record is touched", _HEAD, rows, texts=len(_HEAD))


def _foreseen(answer: PlannedAnswer) -> tuple[str, str, str, str]:
    """Whether something will be answered, from which epsilon on, its part, and how well."""
    expected, part = answer.expected, _percent(answer.part)
    if expected is None:
        return "not known", "", part, "state data.records, the public number of records"
    word = "yes" if expected.answered else "perhaps" if expected.possible else "no"
    least = "none" if answer.least_epsilon is None else f"{answer.least_epsilon:g}"
    return word, least, part, expected.sentence


def _percent(part: float) -> str:
    """A part of epsilon, to two digits."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"
