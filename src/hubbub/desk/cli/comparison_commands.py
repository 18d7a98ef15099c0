"""Whether joining is worth it: `compare`, `rehearse`, and `demo`, which compares real hospitals."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubbub.core.errors import DataError, UserError
from hubbub.core.number_format import at_most, several
from hubbub.core.planning.study_plan import steps_of
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.desk.cli.run_commands import new_folder
from hubbub.desk.cli.study_commands import show_plan
from hubbub.desk.cli.terminal import (
    LEDGERS,
    STUDY,
    add_command,
    argument,
    bar,
    emit,
    say,
    show,
    show_answers,
    table,
    warnings_told,
)
from hubbub.desk.report.arrangements import interval, table_of, verdict
from hubbub.desk.report.scores import score_name
from hubbub.desk.report.sheet import Sheet
from hubbub.learning.metric_words import words_of

if TYPE_CHECKING:
    from hubbub.desk.report.comparison import Comparison
    from hubbub.learning.runs.result import Result


_MOST = 10_000


def add_commands(commands: Any) -> None:
    """Register the commands."""
    add_command(
        commands,
        "compare",
        "is joining worth it? run a study and its baselines several times",
        _compare,
        STUDY,
        argument("--repeats", "runs of each; default 10", int, default=10),
        argument(
            "--baselines", "some of trusted,local-dp,alone,non-private; default all", default=""
        ),
        argument("--metric", "metric to compare by; default: the usual one for the target"),
        argument("--out", "folder for hubbub's run and the report", Path),
        LEDGERS,
    )
    add_command(
        commands,
        "rehearse",
        "show what a run would give, without protection: for public or synthetic records only",
        _rehearse,
        STUDY,
        argument("--repeats", "number of rehearsals; default 1", int, default=1),
    )
    add_command(
        commands,
        "demo",
        "studies of real hospitals from start to end, compared with the alternatives",
        _demo,
        argument("--out", "folder for the runs; default runs/demo-<time>", Path),
        argument("--splits", "train/test splits to average over; default 20 and 80", int),
        argument("--network", "run every party as a process of its own, over NATS", bool),
        argument(
            "--tee",
            "with --network: silos show software evidence of attestation, which proves nothing",
            bool,
        ),
    )


def _compare(options: argparse.Namespace) -> int:
    from hubbub.desk.report.comparison import MODES, compare

    study, repeats = Study.load(options.study), _repeats(options)
    named = [name.strip() for name in options.baselines.split(",") if name.strip()]
    if strange := [name for name in named if name not in MODES]:
        raise UserError(
            f"expected baselines out of {', '.join(MODES[1:])}, got {strange[0]!r}; correct it"
        )
    modes = tuple(dict.fromkeys((MODES[0], *named))) if named else MODES
    out = options.out or new_folder(f"compare-{study.name}")
    with (
        warnings_told(),
        bar(study.name, repeats * len(modes), quiet=options.json, lines="run") as progress,
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
    _show_means(comparison, "runs")
    say(shown.how)
    say(shown.note)
    say(f"written to {out}; open {out / 'report.html'}")
    return 0


def _show_means(comparison: Comparison, what: str, names: Mapping[str, str] | None = None) -> None:
    words, means = words_of(comparison.metric), comparison.table()
    way = f", {words.better} is better" if words.better else ""
    title = f"Is joining worth it? {words.name}, mean of {comparison.repeats} {what}{way}"
    show(Sheet(title="", tables=(table_of(means, title, names),)))


def _rehearse(options: argparse.Namespace) -> int:
    from hubbub.desk.report.comparison import rehearse

    study, repeats = Study.load(options.study), _repeats(options)
    if study.training is None:
        raise UserError(
            "expected a study that trains a model, got one with statistics only; hubbub plan shows "
            "how precise they will be, and hubbub.rehearse answers them on synthetic records"
        )
    measured = silo_records.has_test_set(study) or study.training.evaluate or study.validation
    if not measured:
        raise UserError(
            "expected a study that scores its model, got one without; add data.test, or "
            "[validation]"
        )
    with bar(study.name, repeats, quiet=options.json, lines="rehearsal") as progress:
        rehearsal = rehearse(study, repeats=repeats, progress=progress.advance)
    plan, privacy = rehearsal[0].plan, study.privacy
    scores = [_scores(result) for result in rehearsal]
    names = [name for name in scores[0] if all(name in own for own in scores)]
    values = {name: [own[name] for own in scores] for name in names}
    cost = (
        "a rehearsal protects nobody: on private records each rehearsal is a release of its own, "
        f"so choosing among {repeats} of them costs up to epsilon {repeats * privacy.epsilon:g} at "
        f"delta {repeats * privacy.delta:g}, on top of the run itself"
    )
    if options.json:
        means = {name: float(np.mean(column)) for name, column in values.items()}
        told = {"mean": means, "values": values, "epsilon": plan.stated.epsilon, "note": cost}
        emit({"rehearsal": True, "repeats": repeats, **told})
        return 0
    table(
        f"REHEARSAL of {study.name}: results to expect from a run at epsilon "
        f"{at_most(plan.stated.epsilon)} ({several(repeats, 'rehearsal')})",
        ("", "mean", "± (95 %)"),
        [
            (_score_name(name), f"{np.mean(column):.3f}", _margin(column))
            for name, column in values.items()
        ],
    )
    say(cost)
    return 0


def _scores(result: Result) -> dict[str, float]:
    final = {key: value for key, value in result.final.items() if key not in ("step", "epsilon")}
    validated = (result.validation or {}).get("all") or {"scores": {}}
    own = {f"validation: {name}": one["value"] for name, one in validated["scores"].items()}
    return final | own


def _score_name(name: str) -> str:
    """A score of a rehearsal as people call it."""
    before, sign, score = name.rpartition(": ")
    return before + sign + score_name(score)


def _repeats(options: argparse.Namespace) -> int:
    """How often, at least once."""
    if not 1 <= options.repeats <= _MOST:
        raise UserError(
            f"expected --repeats between 1 and {_MOST}, got {options.repeats}; choose one in that "
            "range"
        )
    return int(options.repeats)


# `hubbub demo`: stories from real hospitals, or the first of them among processes.

_PLACES = {"network": "each party a process, over TLS", "in-process": "all parties in one process"}
_NODES = 2  # compute nodes of the demo over the network


@dataclass(frozen=True, kw_only=True)
class _Story:
    """One study of the demo."""

    key: str  # in the JSON object, and of its folder
    file: str  # of the study, beside the data sets
    words: Mapping[str, str]  # what is shown of each mode, in this order
    repeats: int  # train/test splits to average over
    moral: str  # what the table shows


_OTHERS = {
    "trusted": "all together, with one trusted party",
    "local-dp": "all together, each silo adding all the noise",
}
_FEW = _Story(
    key="few",
    file="heart.toml",
    words={
        "federated": "hubbub: all hospitals together, no trusted party",
        **_OTHERS,
        "alone": "each hospital alone (mean)",
        "non-private": "all together, without privacy",
    },
    repeats=20,
    moral="the four hospitals gain by joining; with so few, full noise at each costs little more",
)
_MANY = _Story(
    key="many",
    file="dialysis.toml",
    words={
        "federated": "hubbub: 67 centres together, no trusted party, 5 may collude",
        **_OTHERS,
        "non-private": "all together, without privacy",
    },
    repeats=80,
    moral="with many silos, hubbub is as good as a trusted party, and full noise at each silo "
    "is not",
)
# Where the data of _MANY cannot be fetched: the hospitals' records dealt to practices.
_PRACTICES = "hubbub: 60 practices together, no trusted party, 5 may collude"
_DEALT = replace(_MANY, file="practices.toml", words={**_MANY.words, "federated": _PRACTICES})


def _demo(options: argparse.Namespace) -> int:
    if options.network:
        return _demo_network(options)
    if options.tee:
        raise UserError("expected --tee only with --network, got it alone; add --network")
    if options.splits is not None and options.splits < 1:
        raise UserError(f"expected --splits of at least 1, got {options.splits}; raise it")
    start = time.perf_counter()
    out = options.out or new_folder("demo")
    if out.is_dir() and any(out.iterdir()):
        raise UserError(
            f"expected an empty or new folder for the runs, got {out}, which contains "
            "files; choose another --out"
        )
    many = _many(options)
    results = {story.key: _compared(story, out, options) for story in (_FEW, many)}
    # Statistics of the same places: of those that are shipped, and of those that are fetched.
    file = "dialysis_statistics.toml" if many is _MANY else "heart_statistics.toml"
    answers = _statistics(file, out / "statistics", options)
    seconds = time.perf_counter() - start
    if options.json:
        few, more = (_content(results[key]) for key in ("few", "many"))
        emit({**few, "many": more, "statistics": answers, "seconds": seconds})
    else:
        pages = " and ".join(str(out / key / "report.html") for key in ("few", "statistics"))
        say(f"{seconds:.0f} s; open {pages}")
    return 0


def _statistics(file: str, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A study of statistics alone: its answers as plain values, by name."""
    from hubbub.learning.runs.run_study import run

    study = Study.parse(study_text(file))
    with bar(study.name, steps_of(study), quiet=options.json) as progress:
        result = run(study, out, progress=lambda step, _: progress.reach(step))
    answers = {name: answer.to_dict() for name, answer in result.statistics.items()}
    if not options.json:
        show_answers(answers)
        say(
            f"{study.parties.silos} silos answered in one noisy sum, epsilon "
            f"{at_most(result.epsilon)}: intervals and tests include the noise"
        )
    return answers


def _many(options: argparse.Namespace) -> _Story:
    """The study of many silos, whose records may have to be fetched first."""
    from hubbub.learning.datasets import dialysis

    title = "fetching the records of 67 dialysis centres (47 MB, once)"
    try:
        with bar(title, 1, quiet=options.json):
            dialysis("test")
    except DataError:
        if not options.json:
            say(
                "note: the dialysis records cannot be downloaded here; the hospitals' "
                "records, divided among 60 practices, replace them"
            )
        return _DEALT
    return _MANY


def _compared(story: _Story, out: Path, options: argparse.Namespace) -> Comparison:
    """A story's study in every mode, shown with its plan."""
    from hubbub.desk.report.comparison import compare

    study = Study.parse(study_text(story.file))
    repeats = story.repeats if options.splits is None else options.splits
    runs = repeats * len(story.words)
    with bar(study.name, runs, quiet=options.json, lines="run") as progress:
        found = compare(
            study,
            repeats=repeats,
            modes=tuple(story.words),
            out=out / story.key,
            ledgers=out / "ledgers",
            progress=progress.advance,
        )
    if options.json:
        return found
    show_plan(found.plan)
    _show_means(found, "splits, on public test data", story.words)
    say(story.moral)
    say(found.table().note)
    return found


def _content(found: Comparison) -> dict[str, Any]:
    return {
        found.metric: found.mean,
        "spread": found.spread,
        "epsilon": found.plan.stated.epsilon,
        "delta": found.plan.study.privacy.delta,
        "adversary": found.plan.stated.adversary,
        "splits": found.repeats,
        "note": found.table().note,
        "out": str(found.first.folder),
    }


def _demo_network(options: argparse.Namespace) -> int:
    """The four hospitals twice: among processes over NATS, and in this one."""
    from hubbub.desk.cli.main import main
    from hubbub.site.network.demo import attested, run_demo

    if options.splits is not None:
        raise UserError(
            "expected --network without --splits, got both; it makes a single run, leave it"
        )
    start = time.perf_counter()
    out = options.out or new_folder("demo-network")
    told = (lambda _: None) if options.json else say
    toml = study_text(_FEW.file)
    toml = attested(toml) if options.tee else toml
    apart = run_demo(out, toml, nodes=_NODES, tell=told, command=main)
    from hubbub.learning.runs.run_study import run

    began = time.perf_counter()
    study = Study.load(out / "study.toml")
    study = study.changed(parties=replace(study.parties, roster=""))  # keys of this run
    with bar("in one process", steps_of(study), quiet=options.json) as progress:
        beside = run(study, out / "in-process", progress=lambda step, _: progress.reach(step))
    end = time.perf_counter()
    seconds = {"network": began - start, "in-process": end - began}
    finals = {"network": apart["final"], "in-process": beside.final}
    if options.json:
        aucs = {place: final["auc"] for place, final in finals.items()}
        spent = {"epsilon": beside.plan.stated.epsilon, "delta": study.privacy.delta}
        emit({"auc": aucs, **spent, "seconds": end - start, "out": str(out)})
        return 0
    rows = [
        (_PLACES[key], f"{final['auc']:.3f}", at_most(final["epsilon"]), f"{seconds[key]:.0f}")
        for key, final in finals.items()
    ]
    title = f"The same study twice (delta {study.privacy.delta:g}, {study.privacy.relation})"
    table(title, ("", "AUC", "epsilon", "seconds"), rows)
    say("one run each, with its own noise: AUCs this far apart are what this much noise causes")
    say(f"written to {out}; check the first with hubbub verify {apart['out']}")
    return 0


def study_text(file: str) -> str:
    """The text of a study that lies beside the data sets."""
    return (resources.files("hubbub.learning.datasets") / file).read_text(encoding="utf-8")


def _margin(values: Sequence[float]) -> str:
    """Half the width of a mean's 95 % interval, for a table; nothing of a single value."""
    low, high = interval(values)
    return "" if low is None or high is None else f"{(high - low) / 2:.3f}"
