"""`hubbub demo`: stories from real hospitals, or the first of them among processes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import DataError, UserError
from hubbub.core.planning.study_plan import steps_of
from hubbub.core.study.study import Study
from hubbub.desk.cli.plan_command import show_plan
from hubbub.desk.cli.terminal import add_command, bar, emit, number, say, show_answers, table
from hubbub.desk.cli.training_commands import margin, new_folder

if TYPE_CHECKING:
    from hubbub.desk.report.comparison import Comparison

_PLACES = {
    "network": "each party a process, over TLS",
    "in-process": "all parties in one process",
}
_NODES = 2  # compute nodes of the demo over the network


@dataclass(frozen=True, kw_only=True)
class _Story:
    """One study of the demo.

    Args:
        key: in the JSON object, and of its folder.
        file: of the study, beside the data sets.
        words: what is shown of each mode, in this order.
        repeats: train/test splits to average over.
        moral: what the table shows.
    """

    key: str
    file: str
    words: Mapping[str, str]
    repeats: int
    moral: str


_OTHERS = {
    "trusted": "all together, if somebody could be trusted",
    "local-dp": "all together, each alone adding all the noise",
}
_FEW = _Story(
    key="few",
    file="heart.toml",
    words={
        "federated": "hubbub: all hospitals together, nobody trusted",
        **_OTHERS,
        "alone": "each hospital by itself (mean)",
        "non-private": "all together, no privacy at all",
    },
    repeats=20,
    moral="four hospitals gain by joining; with so few, noise for each alone costs little more",
)
_MANY = _Story(
    key="many",
    file="dialysis.toml",
    words={
        "federated": "hubbub: 67 centres together, nobody trusted, 5 may collude",
        **_OTHERS,
        "non-private": "all together, no privacy at all",
    },
    repeats=80,
    moral="with many silos hubbub is as good as somebody trusted, and noise for each alone is not",
)
# The fallback where the data of _MANY cannot be fetched: the hospitals' records dealt to practices.
_DEALT = replace(
    _MANY,
    file="practices.toml",
    words={
        **_MANY.words,
        "federated": "hubbub: 60 practices together, nobody trusted, 5 may collude",
    },
)


# Statistics of the same places: of those whose records are shipped, and of those that are fetched.
_ASKED = ("heart_statistics.toml", "dialysis_statistics.toml")
_SAID = (
    "{silos} silos answered in one noisy sum, epsilon {epsilon}: intervals and tests include the "
    "noise"
)


def add_commands(commands: Any) -> None:
    """Register the command."""
    words = "studies of real hospitals, end to end, beside what else could be done"
    demo = add_command(commands, "demo", words, _demo)
    demo.add_argument("--out", type=Path, help="folder for the runs; default runs/demo-<time>")
    demo.add_argument(
        "--splits", type=int, help="train/test splits to average over; default 20 and 80"
    )
    demo.add_argument(
        "--network", action="store_true", help="every party a process of its own, over NATS"
    )
    demo.add_argument(
        "--tee",
        action="store_true",
        help="with --network: silos are believed, by evidence of a platform that shows nothing",
    )


def _demo(options: argparse.Namespace) -> int:
    if options.network:
        return _demo_network(options)
    if options.tee:
        raise UserError("expected --tee with --network, got it alone; add --network")
    if options.splits is not None and options.splits < 1:
        raise UserError(f"expected --splits of at least 1, got {options.splits}; raise it")
    start = time.perf_counter()
    out = options.out or new_folder("demo")
    if out.is_dir() and any(out.iterdir()):
        raise UserError(
            f"expected an empty or new folder for the runs, got {out} with files in it; choose "
            "another --out"
        )
    results, many = {}, _many(options)
    for story in (_FEW, many):
        results[story.key] = told = _told(story, out, options)
        if not options.json:
            _show(story, told)
    answers = _asked(_ASKED[many is _MANY], out / "statistics", options)
    seconds = time.perf_counter() - start
    if options.json:
        more = {"many": _content(results["many"]), "statistics": answers}
        emit({**_content(results["few"]), **more, "seconds": seconds})
    else:
        pages = " and ".join(str(out / key / "report.html") for key in ("few", "statistics"))
        say(f"{seconds:.0f} s; open {pages}")
    return 0


def _asked(file: str, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A study of statistics alone: its answers as plain values, by name."""
    from hubbub.learning.runs.run_study import run

    study = Study.parse(study_text(file))
    with bar(study.name, steps_of(study), quiet=options.json) as progress:
        result = run(study, out, progress=lambda step, _: progress.reach(step))
    answers = {name: one.to_dict() for name, one in result.statistics.items()}
    if not options.json:
        show_answers(answers)
        say(_SAID.format(epsilon=number(result.epsilon, 3), silos=study.parties.silos))
    return answers


def _many(options: argparse.Namespace) -> _Story:
    """The study of many silos, whose records may have to be fetched first."""
    from hubbub.learning.datasets import dialysis

    try:
        with bar(
            "fetching the records of 67 dialysis centres (47 MB, once)", 1, quiet=options.json
        ):
            dialysis("test")
    except DataError:
        if not options.json:
            say(
                "note: the dialysis records cannot be fetched here; the hospitals' records, dealt "
                "to 60 practices, stand in for them"
            )
        return _DEALT
    return _MANY


def _told(story: _Story, out: Path, options: argparse.Namespace) -> Comparison:
    """The study in every mode."""
    from hubbub.desk.report.comparison import compare

    study = Study.parse(study_text(story.file))
    repeats = story.repeats if options.splits is None else options.splits
    with bar(study.name, repeats * len(story.words), quiet=options.json) as progress:
        return compare(
            study,
            repeats=repeats,
            modes=tuple(story.words),
            out=out / story.key,
            ledgers=out / "ledgers",
            progress=progress.advance,
        )


def _show(story: _Story, found: Comparison) -> None:
    """A story's plan and its table."""
    show_plan(found.plan)
    metric, epsilon = found.metric.upper(), number(found.plan.stated.epsilon, 3)
    title = f"Is joining worth it? {metric} on public test data, mean of {found.repeats} splits"
    rows = [
        (
            words,
            f"{found.mean[mode]:.3f}",
            margin(found.values[mode]),
            "none" if mode == "non-private" else epsilon,
        )
        for mode, words in story.words.items()
    ]
    table(title, ("", metric, "± (95 %)", "epsilon"), rows)
    say(story.moral)
    say(found.table().note)


def _content(found: Comparison) -> dict[str, Any]:
    """A comparison for machines."""
    plan = found.plan
    return {
        found.metric: found.mean,
        "spread": found.spread,
        "epsilon": plan.stated.epsilon,
        "delta": plan.study.privacy.delta,
        "adversary": plan.stated.adversary,
        "splits": found.repeats,
        "note": found.table().note,
        "out": str(found.first.folder),
    }


def _demo_network(options: argparse.Namespace) -> int:
    """The four hospitals twice: among processes over NATS, and in this one."""
    from hubbub.desk.cli.main import main
    from hubbub.site.network.demo import attested, run_demo

    if options.splits is not None:
        raise UserError("expected --network without --splits, got both; it makes one run, leave it")
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
        emit(
            {
                "auc": {place: final["auc"] for place, final in finals.items()},
                "epsilon": beside.plan.stated.epsilon,
                "delta": study.privacy.delta,
                "seconds": end - start,
                "out": str(out),
            }
        )
        return 0
    rows = [
        (_PLACES[key], f"{final['auc']:.3f}", number(final["epsilon"], 3), f"{seconds[key]:.0f}")
        for key, final in finals.items()
    ]
    title = f"The same study twice (delta {study.privacy.delta:g}, {study.privacy.relation})"
    table(title, ("", "AUC", "epsilon", "seconds"), rows)
    say("one run each, with noise of its own: AUCs so far apart are what so much noise makes")
    say(f"written to {out}; check the first with hubbub verify {apart['out']}")
    return 0


def study_text(file: str) -> str:
    """The text of a study that lies beside the data sets."""
    return (resources.files("hubbub.learning.datasets") / file).read_text(encoding="utf-8")
