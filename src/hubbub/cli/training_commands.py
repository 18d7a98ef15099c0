"""`hubbub demo`, `plan` and `run`: from a study to a model."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.assurance.attestation import policy_of
from hubbub.cli.output import add_command, answer, bar, emit, finite, number, say, table
from hubbub.errors import UserError
from hubbub.planning import Plan, as_table, plan
from hubbub.study import Study

if TYPE_CHECKING:
    from hubbub.training import Result

_WORDS = {
    "federated": "hubbub: all hospitals together, nobody trusted",
    "trusted": "all together, if somebody could be trusted",
    "local-dp": "all together, each alone adding all the noise",
    "alone": "each hospital by itself (mean)",
    "non-private": "all together, no privacy at all",
}
_PLACES = {
    "network": "each party a process, over TLS",
    "in-process": "all parties in one process",
}
AUDIT_WORDS = "file of hubbub audit --out, which the evidence will hold"
_COPIED = (
    "the study's attempts are used up: another copy of this folder, or a run beside it, has made "
    "those that are missing here, and they count as spent"
)
_SPLITS = 20
_NODES = 2  # compute nodes of the demo over the network


def add_commands(commands: Any) -> None:
    """Register the commands."""
    demo = add_command(commands, "demo", "the four-hospital study, end to end", _demo)
    demo.add_argument("--out", type=Path, help="folder for the run; default runs/demo-<time>")
    demo.add_argument("--splits", type=int, help="train/test splits to average over; default 20")
    demo.add_argument(
        "--network", action="store_true", help="every party a process of its own, over NATS"
    )
    demo.add_argument(
        "--tee",
        action="store_true",
        help="with --network: silos are believed, by evidence of a software that shows nothing",
    )
    words = "what a study means: noise, epsilon per adversary"
    planned = add_command(commands, "plan", words, _plan)
    planned.add_argument("study", type=Path, help="the study's TOML file")
    trained = add_command(commands, "run", "train a study with all parties in this process", _run)
    trained.add_argument("study", type=Path, nargs="?", help="the study's TOML file")
    trained.add_argument("--out", type=Path, help="folder for the run; default runs/<name>-<time>")
    trained.add_argument("--ledgers", type=Path, help="folder of the silos' ledgers")
    trained.add_argument("--baseline", help="trusted, local-dp, alone or non-private")
    trained.add_argument("--audit", type=Path, help=AUDIT_WORDS)
    trained.add_argument(
        "--resume", type=Path, metavar="DIR", help="go on with the run in this folder instead"
    )
    trained.add_argument(
        "--device", default="auto", help="auto (a GPU if there is one), cpu or cuda; default auto"
    )


def _plan(options: argparse.Namespace) -> int:
    made = plan(Study.load(options.study))
    if options.json:
        emit({**made.to_dict(), "own_code": made.study.own_code})
    else:
        show_plan(made)
    return 0


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    result = _resumed(options) if options.resume else _started(options)
    seconds = time.perf_counter() - start
    study, out = result.plan.study, result.folder
    assert out is not None  # noqa: S101  # the command always names one
    asked, made = study.training.steps, result.steps
    stopped = result.is_copied and made < asked
    said = f"{made} steps" if made == asked else f"{made} of {asked} steps"
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
        },
        f"{study.name}: {said} in {seconds:.1f} s; {_note(result.final)}",
        f"epsilon {number(result.epsilon)} at delta {study.privacy.delta:g} against the "
        f"{result.plan.stated.adversary}",
        f"written to {out}; open {out / 'report.html'}",
        *([_COPIED] if stopped else []),
    )
    return int(stopped)


def _started(options: argparse.Namespace) -> Result:
    """A new run."""
    from hubbub.training.run_study import run

    if options.study is None:
        raise UserError("expected a study file, or --resume DIR, got neither; name one of them")
    study = Study.load(options.study)
    out = options.out or _new_folder(study.name)
    with bar(study.name, study.training.steps, quiet=options.json) as progress:
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
    from hubbub.training import resume

    for name in ("study", "out", "ledgers", "baseline", "audit"):
        if getattr(options, name) is not None:
            raise UserError(
                f"expected --resume alone, got {name} too; the run's folder says all of it: leave "
                f"{name} out"
            )
    toml = options.resume / "study.toml"
    steps = Study.load(toml).training.steps if toml.is_file() else 0
    with bar("resuming", steps, quiet=options.json) as progress:
        return resume(
            options.resume,
            progress=lambda step, row: progress.reach(step, _note(row)),
            device=options.device,
            notice=progress.note,
        )


def _demo(options: argparse.Namespace) -> int:
    from hubbub.training import MODES, compare

    if options.network:
        return _demo_network(options)
    if options.tee:
        raise UserError("expected --tee with --network, got it alone; add --network")
    splits: int = _SPLITS if options.splits is None else options.splits
    if splits < 1:
        raise UserError(f"expected --splits of at least 1, got {splits}; raise it")
    study = Study.parse(_heart())
    start = time.perf_counter()
    out = options.out or _new_folder("demo")
    with bar("training", splits * len(MODES), quiet=options.json) as progress:
        found = compare(study, splits=splits, out=out, progress=progress.advance)
    seconds = time.perf_counter() - start
    if options.json:
        emit(
            {
                found.metric: dict(found.mean),
                "spread": dict(found.spread),
                "epsilon": found.plan.stated.epsilon,
                "delta": study.privacy.delta,
                "adversary": found.plan.stated.adversary,
                "splits": splits,
                "seconds": seconds,
                "out": str(out),
            }
        )
        return 0
    show_plan(found.plan)
    metric, epsilon = found.metric.upper(), number(found.plan.stated.epsilon, 3)
    shown = dict.fromkeys(MODES, epsilon) | {"non-private": "none"}
    table(
        f"Is joining worth it? {metric} on public test data, mean of {splits} splits",
        ("", metric, "±", "epsilon"),
        [
            (_WORDS[mode], f"{found.mean[mode]:.3f}", f"{found.spread[mode]:.3f}", shown[mode])
            for mode in MODES
        ],
    )
    say(f"{seconds:.0f} s; written to {out}; open {out / 'report.html'}")
    return 0


def _demo_network(options: argparse.Namespace) -> int:
    """The same study twice: among processes over NATS, and in this one."""
    from hubbub.cli.main import main
    from hubbub.network.demo import attested, run_demo

    if options.splits is not None:
        raise UserError("expected --network without --splits, got both; it makes one run, leave it")
    start = time.perf_counter()
    out = options.out or _new_folder("demo-network")
    told = (lambda _: None) if options.json else say
    toml = attested(_heart()) if options.tee else _heart()
    apart = run_demo(out, toml, nodes=_NODES, told=told, command=main)
    from hubbub.training.run_study import (
        run,  # reads torch, which those processes did for themselves
    )

    began = time.perf_counter()
    study = Study.load(out / "study.toml")
    study = replace(study, toml="", parties=replace(study.parties, roster=""))  # keys of this run
    with bar("in one process", study.training.steps, quiet=options.json) as progress:
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


def _heart() -> str:
    """The study of the four hospitals."""
    return (resources.files("hubbub.study.datasets") / "heart.toml").read_text(encoding="utf-8")


def show_plan(made: Plan) -> None:
    """The plan as tables for people."""
    study = made.study
    table(
        f"{study.name}: what each adversary can learn about one record "
        f"(delta {study.privacy.delta:g}, {study.privacy.relation})",
        ("adversary", "noise left (sigma / C)", "epsilon"),
        [
            (
                one.adversary + ("  <- promised" if one == made.stated else ""),
                number(one.noise_multiplier),
                number(one.epsilon),
            )
            for one in made.exposures
        ],
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
        ("", ""),
        [
            ("noise multiplier, against the promised adversary", number(made.noise_multiplier, 6)),
            ("noise multiplier of the whole sum", number(made.total_noise_multiplier, 6)),
            ("each silo's noise share (standard deviation)", number(made.share_sigma, 6)),
            ("the same in grid steps", number(made.share_sigma_grid)),
            ("word", f"{made.word_bits} bits"),
            ("records in one direction that fit a word", str(made.capacity)),
            ("silos needed in a round", f"{made.quorum} of {study.parties.silos}"),
            ("a silo sends per step", "unknown" if upload is None else f"{upload:,} bytes"),
            (
                "an attack that wrongly accuses 1 in 100 finds at most",
                f"{100 * made.attack_power:.2f} in 100",
            ),
        ],
    )
    for role, asked in (study.attestation.asked() if study.attestation else {}).items():
        say(f"evidence of every {role}: {policy_of(asked).words()}")
    for warning in made.warnings:
        say(f"note: {warning}")
    if study.own_code:
        say(
            f"code: {' and '.join(study.own_code)} will run on the machine of everybody who runs "
            "or joins this study, and sees records there; nothing of it has run yet: read it first"
        )


def _note(row: Mapping[str, float]) -> str:
    """The newest metrics in a few words."""
    shown = [f"epsilon {row['epsilon']:.3f}"] if "epsilon" in row else []
    shown += [f"{key} {row[key]:.3f}" for key in ("auc", "accuracy") if key in row]
    return ", ".join(shown)


def _new_folder(name: str) -> Path:
    """A folder below runs/ that does not exist yet; the run makes it once it is sure to start."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    return Path("runs") / f"{safe}-{stamp}-{secrets.token_hex(3)}"
