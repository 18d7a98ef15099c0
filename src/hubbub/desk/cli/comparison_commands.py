"""`compare` and `rehearse`: whether joining is worth it, and what a run would give."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.core.errors import UserError
from hubbub.core.planning.plan_rows import spoken
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.desk.cli.terminal import add_command, bar, emit, number, say, table, warnings_told
from hubbub.desk.cli.training_commands import margin, new_folder
from hubbub.desk.report.arrangements import verdict
from hubbub.desk.report.trust_models import called
from hubbub.learning.metric_words import words_of

_REPEATS, _MOST = 10, 10_000


def add_commands(commands: Any) -> None:
    """Register the commands."""
    words = "is joining worth it? a study beside its baselines, several times over"
    compared = add_command(commands, "compare", words, _compare)
    compared.add_argument("study", type=Path, help="the study's TOML file")
    compared.add_argument("--repeats", type=int, default=_REPEATS, help="runs of each; default 10")
    compared.add_argument(
        "--baselines", default="", help="some of trusted,local-dp,alone,non-private; default all"
    )
    compared.add_argument(
        "--metric", help="which to compare by; default: the telling one of the target's kind"
    )
    compared.add_argument("--out", type=Path, help="folder for hubbub's run and the report")
    compared.add_argument("--ledgers", type=Path, help="folder of the silos' ledgers")
    words = "what a run would give, without its protection: for public or made-up records"
    rehearsed = add_command(commands, "rehearse", words, _rehearse)
    rehearsed.add_argument("study", type=Path, help="the study's TOML file")
    rehearsed.add_argument("--repeats", type=int, default=1, help="how often; default 1")


def _compare(options: argparse.Namespace) -> int:
    from hubbub.desk.report.comparison import compare

    study, repeats = Study.load(options.study), _repeats(options)
    modes = _modes(options.baselines)
    out = options.out or new_folder(f"compare-{study.name}")
    with (
        warnings_told(),
        bar(study.name, repeats * len(modes), quiet=options.json, lines=True) as progress,
    ):
        comparison = compare(
            study,
            repeats=repeats,
            modes=modes,
            out=out,
            ledgers=options.ledgers,
            metric=options.metric,
            progress=progress.advance,
        )
    shown = comparison.table()
    if options.json:
        emit({"verdict": verdict(shown), **shown.to_dict(), "repeats": repeats, "out": str(out)})
        return 0
    if said := verdict(shown):
        say(said)
    words = words_of(comparison.metric)
    metric, way = words.name, f", {words.better} is better" if words.better else ""
    table(
        f"Is joining worth it? {metric}, mean of {repeats}{way}",
        ("", metric, "± (95 %)", "epsilon", "against"),
        [
            (
                called(arrangement.name),
                words.shown(arrangement.mean),
                margin(comparison.values[arrangement.name]),
                "none" if arrangement.epsilon is None else number(arrangement.epsilon, 3),
                "nobody" if arrangement.adversary is None else spoken(arrangement.adversary),
            )
            for arrangement in shown.arrangements
        ],
    )
    say(shown.how)
    say(shown.note)
    say(f"written to {out}; open {out / 'report.html'}")
    return 0


def _modes(baselines: str) -> tuple[str, ...]:
    """Hubbub and the baselines that were named, with commas."""
    from hubbub.desk.report.comparison import MODES

    named = [name.strip() for name in baselines.split(",") if name.strip()]
    if strange := [name for name in named if name not in MODES]:
        raise UserError(
            f"expected baselines out of {', '.join(MODES[1:])}, got {strange[0]!r}; correct it"
        )
    return tuple(dict.fromkeys((MODES[0], *named))) if named else MODES


def _rehearse(options: argparse.Namespace) -> int:
    from hubbub.desk.report.comparison import rehearse

    study, repeats = Study.load(options.study), _repeats(options)
    if study.training is None:
        raise UserError(
            "expected a study that trains a model, got one of statistics alone; hubbub plan says "
            "how exact they will be, and hubbub.rehearse gives answers to made-up records"
        )
    measured = silo_records.has_test_set(study) or study.training.evaluate or study.validation
    if not measured:
        raise UserError(
            "expected something to measure a rehearsal by, got a study without; state data.test, "
            "or [validation]"
        )
    with bar(study.name, repeats, quiet=options.json, lines=True) as progress:
        rehearsal = rehearse(study, repeats=repeats, progress=progress.advance)
    plan, privacy = rehearsal[0].plan, study.privacy
    held = [name for name in rehearsal[0].final if name not in ("step", "epsilon")]
    names = [name for name in held if all(name in result.final for result in rehearsal)]
    values = {name: [result.final[name] for result in rehearsal] for name in names}
    cost = (
        f"a rehearsal protects nobody: on private records each one is a release of its own, so "
        f"choosing among {repeats} of them costs up to epsilon {repeats * privacy.epsilon:g} at "
        f"delta {repeats * privacy.delta:g}, beside that of the run"
    )
    if options.json:
        emit(
            {
                "rehearsal": True,
                "repeats": repeats,
                "mean": {name: float(np.mean(column)) for name, column in values.items()},
                "values": values,
                "epsilon": plan.stated.epsilon,
                "note": cost,
            }
        )
        return 0
    table(
        f"REHEARSAL of {study.name}: what {repeats} such runs would give, at epsilon "
        f"{number(plan.stated.epsilon, 3)} each",
        ("", "mean", "± (95 %)"),
        [(name, f"{np.mean(column):.3f}", margin(column)) for name, column in values.items()],
    )
    say(cost)
    return 0


def _repeats(options: argparse.Namespace) -> int:
    """How often, at least once."""
    if not 1 <= options.repeats <= _MOST:
        raise UserError(
            f"expected --repeats between 1 and {_MOST}, got {options.repeats}; choose one in that "
            "range"
        )
    return int(options.repeats)
