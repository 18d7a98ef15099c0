"""`hubbub ledger` and `hubbub budget`: what a data set has spent, and the most it may spend."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from hubbub.cli.output import add_json, emit, say, table
from hubbub.errors import UserError
from hubbub.privacy import parameters
from hubbub.runners.ledger import Cap, Ledger


def add_commands(commands: Any) -> None:
    """Register the commands."""
    ledger = commands.add_parser(
        "ledger", help="what a data set has spent", description="what a data set has spent"
    )
    actions = ledger.add_subparsers(metavar="ACTION", required=True)
    for name, words, function in (
        ("show", "what was spent, by study", _show),
        ("verify", "recompute the chain and its signatures", _verify),
        ("export", "all entries as JSON", _export),
    ):
        parser = actions.add_parser(name, help=words, description=words)
        parser.add_argument("ledger", type=Path, help="the ledger's file")
        if name == "show":
            parser.add_argument("--delta", type=float, default=1e-5, help="default 1e-5")
            _add_relation(parser)
        if name == "verify":
            parser.add_argument("--head", help="a head that `show` printed, noted elsewhere")
        add_json(parser)
        parser.set_defaults(command=function)
    budget = commands.add_parser(
        "budget",
        help="the most that a data set may spend",
        description="the most that a data set may spend",
    )
    actions = budget.add_subparsers(metavar="ACTION", required=True)
    setter = actions.add_parser("set", help="set the cap", description="set the cap")
    setter.add_argument("ledger", type=Path, help="the ledger's file; made if absent")
    setter.add_argument("--epsilon", type=float, required=True, help="all studies together")
    setter.add_argument("--delta", type=float, required=True, help="at which epsilon is counted")
    _add_relation(setter)
    add_json(setter)
    setter.set_defaults(command=_set)


def _add_relation(parser: argparse.ArgumentParser) -> None:
    words = "which data sets are neighbours"
    parser.add_argument(
        "--relation", choices=parameters.RELATIONS, default="add-remove", help=words
    )


def _show(options: argparse.Namespace) -> int:
    delta = parameters.delta(options.delta)
    with _existing(options.ledger) as ledger:
        spent = ledger.epsilon(delta=delta, relation=options.relation)
        cap, head = ledger.cap, ledger.head.hex()
        studies = Counter(entry.study.hex() for entry in ledger.entries())
    if options.json:
        emit(
            {
                "entries": studies.total(),
                "epsilon": spent if spent < float("inf") else None,
                "delta": delta,
                "relation": options.relation,
                "cap": None if cap is None else cap.plain(),
                "studies": dict(studies),
                "head": head,
            }
        )
        return 0
    table(str(options.ledger), ("study", "steps"), [(s[:16], str(n)) for s, n in studies.items()])
    say(f"epsilon {spent:.4g} at delta {delta:g} ({options.relation}) over all studies")
    say("no cap is set" if cap is None else f"cap: epsilon {cap.epsilon:g} at delta {cap.delta:g}")
    say(f"head {head}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    head = None if options.head is None else _digest(options.head)
    with _existing(options.ledger) as ledger:
        entries = ledger.verify(head=head)
    if options.json:
        emit({"entries": entries, "intact": True})
    else:
        say(f"{entries} entries, chain and signatures intact")
    return 0


def _export(options: argparse.Namespace) -> int:
    with _existing(options.ledger) as ledger:
        entries = [entry.plain() for entry in ledger.entries()]
        emit({"head": ledger.head.hex(), "entries": entries})
    return 0


def _set(options: argparse.Namespace) -> int:
    cap = Cap(epsilon=options.epsilon, delta=options.delta, relation=options.relation)
    with Ledger(options.ledger) as ledger:
        ledger.set_cap(cap)
    if options.json:
        emit({"cap": cap.plain()})
    else:
        say(f"at most epsilon {cap.epsilon:g} at delta {cap.delta:g}, all studies together")
    return 0


def _existing(path: Path) -> Ledger:
    """A ledger that is there; a mistyped path must not make an empty one."""
    if not path.is_file() or path.stat().st_size == 0:
        raise UserError(f"expected the ledger file {path}, found none there; check the path")
    return Ledger(path)


def _digest(text: str) -> bytes:
    """The 32 bytes of a head."""
    try:
        head = bytes.fromhex(text)
    except ValueError:
        head = b""
    if len(head) != 32:
        raise UserError(
            f"expected --head to be 64 hexadecimal digits, got {text!r}; copy what `hubbub ledger "
            "show` printed"
        )
    return head
