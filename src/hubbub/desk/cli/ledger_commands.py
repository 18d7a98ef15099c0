"""`hubbub ledger` and `hubbub budget`: what a data set has spent, and the most it may spend."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.disk import json_value, read_bytes, read_text, why_of
from hubbub.core.errors import HubbubError, IntegrityError, UserError
from hubbub.core.ledger.entry import Cap, LedgerMechanism
from hubbub.core.ledger.head_statement import HeadStatement, Witness, Witnessed
from hubbub.core.ledger.privacy_filter import PrivacyFilter
from hubbub.core.ledger.privacy_ledger import Content, Ledger
from hubbub.core.ledger.tally import Certified, Tally, kind_of
from hubbub.core.number_format import at_most, no_less, several
from hubbub.core.privacy import arguments
from hubbub.core.privacy.remaining_budget import ReferenceLaw
from hubbub.core.tabular.cells import csv_text
from hubbub.desk.cli.ledger_books import (
    HEAD,
    LedgerBooks,
    LedgerHistory,
    counted_at,
    spent_by_study,
    trail,
)
from hubbub.desk.cli.terminal import (
    Argument,
    add_command,
    add_family,
    answer,
    argument,
    bar,
    emit,
    finite,
    say,
    table,
)

if TYPE_CHECKING:
    from hubbub.core.study.study import Study


def add_commands(commands: Any) -> None:
    """Register the commands."""
    ledger = argument("ledger", "the ledger's file", Path)

    def relation(default: str | None, words: str) -> Argument:
        words = f"which data sets are neighbours; default: {words}"
        return argument("--relation", words, choices=arguments.RELATIONS, default=default)

    actions = add_family(commands, "ledger", "what a data set has spent", "ACTION")
    add_command(
        actions,
        "show",
        "what was spent by each study, and what is left",
        _show,
        ledger,
        argument("--delta", "default: the cap's, or 1e-5", float),
        relation(None, "the cap's, or add-remove"),
    )
    add_command(
        actions,
        "verify",
        "recompute the chain and its signatures",
        _verify,
        ledger,
        argument("--head", "a head that `show` printed and you noted elsewhere"),
        argument(
            "--witness FILE",
            "statements that other parties kept (what `head` or `witness` printed with --json)",
            Path,
            nargs="+",
            action="extend",
            default=[],
        ),
    )
    add_command(
        actions,
        "export",
        "all entries as JSON, or their cost; or the party's audit trail, as CSV",
        _export,
        ledger,
        argument(
            "others",
            "with csv: more ledgers, or the folders of parties that have none, in the same file",
            Path,
            nargs="*",
        ),
        argument(
            "--format",
            "curve: epsilon at many deltas, from below and above, in place of the entries; "
            "dp-event: the entries as dp-accounting's DpEvent, under add-remove; csv: rows and the "
            "commands typed at each party in one order, with times, studies and the epsilon after "
            "each",
            choices=("entries", "curve", "dp-event", "csv"),
            default="entries",
        ),
        relation(None, "the cap's for csv, or add-remove"),
    )
    words = "a signed statement of the newest row, for others to witness"
    add_command(actions, "head", words, _head, ledger)
    add_command(
        actions,
        "witness",
        "sign a statement of another party's ledger, and remember it",
        _witness,
        argument("statement", "the output of `hubbub ledger head --json`", Path),
        argument(
            "--key NAME.key",
            "the witness's key; if it does not exist it is created, with a list beside "
            "it of what it signed",
            Path,
            required=True,
        ),
    )
    add_command(
        actions,
        "missing",
        "rows that a ledger lacks although its silo has answered, as after restoring an "
        "older backup",
        _missing,
        ledger,
        argument("silo", "its name in the study"),
        argument("run", "folder of the study's run, from the aggregator", Path),
    )
    budget = add_family(commands, "budget", "the most that a data set may spend", "ACTION")
    add_command(
        budget,
        "set",
        "set the cap",
        _set,
        ledger,
        argument("--epsilon", "all studies together", float, required=True),
        argument("--delta", "delta at which epsilon is counted", float, required=True),
        argument("--new", "make a ledger where there is none", bool),
        argument(
            "--fixed-studies",
            "all studies were fixed before the first one: the cap then reaches further, "
            "but guarantees nothing if any study was chosen after seeing results",
            bool,
        ),
        argument(
            "--law NOISE RATE STEPS",
            "reserve room for this many training steps, with at most this rate and at "
            "least this noise; reserved steps cost nothing extra for being chosen late. "
            "State it before the first study",
            nargs=3,
        ),
        relation("add-remove", "add-remove"),
    )


def _show(options: argparse.Namespace) -> int:
    with _existing(options.ledger) as ledger:
        books = LedgerBooks.of(ledger)
        tally, cap, head = ledger.tally, ledger.cap, ledger.head.hex()
    delta, relation = counted_at(cap, options.delta, options.relation)
    studies = spent_by_study(tally, LedgerHistory.beside(options.ledger), delta, relation)
    spent = finite(tally.epsilon(delta=delta, relation=relation))
    if options.json:
        content: dict[str, Any] = {"entries": len(tally), "epsilon": spent, "unit": tally.unit}
        content |= {"delta": delta, "relation": relation}
        content |= {"cap": None if cap is None else cap.to_dict(), "left": books.left}
        content |= {"least_cap": books.least_cap, **books.law_unused}
        steps = {study["study"]: study["steps"] for study in studies}
        emit({**content, "studies": steps, "by_study": studies, "head": head})
        return 0
    _show_studies(str(options.ledger), studies)
    counted_as = f"at delta {delta:g} ({relation})"
    say(
        f"total spent: epsilon {at_most(spent)} {counted_as}, if all studies were fixed before "
        "the first"
    )
    if tally.unit == "patient":
        say("this is per patient: all records of a patient in the data set together")
    if tally.is_mixed:
        say(
            "a study of records does not limit how many a patient has "
            "(data.most_per_patient), so nothing is guaranteed to patients"
        )
    for line in (*books.words, f"head {head}"):
        say(line)
    return 0


def _show_studies(title: str, studies: list[dict[str, Any]]) -> None:
    """A table; where it is known of any, with the name and the last day of a study."""
    day = "last_session" if any(study["last_session"] for study in studies) else "approved"
    known = [key for key in ("name", day) if any(study[key] for study in studies)]
    rows = [
        (
            study["study"][: 8 if "name" in known else 16],
            *(study[key] if key == "name" else study[key][:10] for key in known),
            *(str(study["steps"]), str(study["sessions"]), at_most(study["epsilon"])),
        )
        for study in studies
    ]
    head = ("study", *(key.replace("_", " ") for key in known), "attempts", "sessions")
    if rows:
        table(title, (*head, "epsilon alone"), rows, texts=1 + len(known))


def _verify(options: argparse.Namespace) -> int:
    head = None
    if options.head is not None:
        with suppress(ValueError):
            head = bytes.fromhex(options.head)
        if head is None or len(head) != 32:
            raise UserError(
                f"expected --head to be 64 hexadecimal digits, got {options.head!r}; copy what "
                "`hubbub ledger show` printed"
            )
    kept = [_kept(path) for path in options.witness]
    statements = [own.statement if isinstance(own, Witnessed) else own for own in kept]
    with (
        _existing(options.ledger) as ledger,
        bar("verifying", 100, quiet=options.json) as shown,  # of work of any length
    ):
        entries = ledger.verify(
            head=head,
            witnessed=statements,
            progress=lambda done, of: shown.reach(100 * done // of, "percent"),
        )
    result: dict[str, Any] = {"entries": entries, "intact": True}
    lines = [f"chain and signatures are intact; entries: {entries}"]
    for own, statement in zip(kept, statements, strict=True):
        who = f"witness {own.witness.hex()}" if isinstance(own, Witnessed) else "nobody else"
        lines.append(
            f"contains the {statement.rows} rows stated at {statement.time}, signed by {who}"
        )
    if kept:
        result["witnessed"] = [own.to_dict() for own in kept]
    elif head is None:
        lines.append("whether this is the newest copy, only --head or --witness can show")
    answer(options, result, *lines)
    return 0


def _export(options: argparse.Namespace) -> int:
    if options.format == "csv":
        return _export_trails(options)
    if options.others:
        raise UserError("expected several ledgers with --format csv alone, got them; name one")
    with _existing(options.ledger) as ledger:
        head = ledger.head.hex()
        if options.format == "dp-event":
            emit(event_of(dict(ledger.tally.counts())))
        elif options.format == "curve":
            relation = options.relation or "add-remove"
            points = [
                {"delta": delta, "epsilon_lower": finite(low), "epsilon_upper": finite(high)}
                for delta, low, high in ledger.tally.curve(relation)
            ]
            emit({"head": head, "relation": relation, "curve": points})
        else:
            emit({"head": head, "entries": [entry.to_dict() for entry in ledger.entries()]})
    return 0


# A ledger's entries as an event of Google's dp-accounting, in the form of
# `DpEvent.to_named_tuple`, with tuples as objects. Neighbours are those of add-remove, and
# certificates (docs/privacy.md P4 to P6) are not in it. What that library has no event for is
# refused by name: nothing is left out, or put in a cheaper event's place.


def event_of(counts: Mapping[LedgerMechanism, int]) -> dict[str, Any]:
    """All entries, by kind, as one composed event.

    UserError: a kind is none of dp-accounting's, or not all have the same unit.
    """
    fault = ""
    if len({kind.unit for kind in counts}) > 1:
        fault = "of one unit, got some of records and some of patients"
    for kind in sorted(counts):
        # P8 (6): by layers, records are clipped after the projection, and the step is one without.
        if kind.projection not in ("", "layers"):
            fault = fault or f"{_HAS_EVENT} a {kind.projection} projection"
        if kind.sampling == "without-replacement" or kind.records:
            fault = fault or (
                f"{_HAS_EVENT} batches drawn without replacement, where the number of records is "
                "in the view"
            )
    if fault:
        raise UserError(f"expected entries {fault}; export the entries or the curve instead")
    events = []
    for kind, count in sorted(counts.items()):
        step = _event("GaussianDpEvent", noise_multiplier=kind.noise_multiplier)
        if kind.sampling == "poisson" and kind.sample_rate < 1:
            rate = kind.sample_rate
            step = _event("PoissonSampledDpEvent", sampling_probability=rate, event=step)
        events.append(_event("SelfComposedDpEvent", event=step, count=count))
    return _event("ComposedDpEvent", events=events)


_HAS_EVENT = "that dp-accounting has an event for, got"


def _event(name: str, **fields: Any) -> dict[str, Any]:
    return {"module_name": "dp_accounting.dp_event", "class_name": name, **fields}


def _export_trails(options: argparse.Namespace) -> int:
    """What was typed and what was charged at each party, one line each, in one order."""
    from hubbub.site.network.party_folder import LEDGER

    heads, placed = dict[str, str](), list[tuple[str, dict[str, Any]]]()
    for path in (options.ledger, *options.others):
        is_home = path.is_dir()
        history = LedgerHistory.beside(path / LEDGER if is_home else path)
        cap, contents = None, list[Content]()
        if not is_home or (path / LEDGER).is_file():
            with _existing(path / LEDGER if is_home else path) as ledger:
                cap, contents = ledger.cap, list(ledger.contents())
                heads[history.party] = ledger.head.hex()
        delta, relation = counted_at(cap, None, options.relation)
        at = ""  # a line without a time stands behind the one before it
        for line in trail(contents, history, delta=delta, relation=relation):
            placed.append((at := max(at, line["time"]), line))
    lines = [line for _, line in sorted(placed, key=lambda pair: pair[0])]
    if options.json:
        emit({"head": next(iter(heads.values()), None), "heads": heads, "trail": lines})
    else:
        for line in lines:
            spent = line["epsilon"]
            line["epsilon"] = at_most(None) if spent is None else no_less(spent, 6)
        sys.stdout.write(csv_text([HEAD, *(tuple(line.values()) for line in lines)]))
    return 0


def _study_of_silo(options: argparse.Namespace) -> Study:
    """The study of a run's folder, of which a silo has this ledger."""
    from hubbub.core.study.study import Study
    from hubbub.site.network.folder_files import read_identity
    from hubbub.site.network.party_folder import IDENTITY

    try:
        study = Study.parse(read_text(options.run / "study.toml"))
    except (OSError, UnicodeDecodeError):
        raise UserError(
            f"expected the folder of a run, found no study.toml in {options.run}; name the one "
            "that hubbub serve has made"
        ) from None
    if options.silo not in study.parties.names:
        raise UserError(
            f"expected a silo of {study.name}, got {options.silo!r}; name one of "
            f"{', '.join(study.parties.names)}"
        )
    own = options.silo
    with suppress(HubbubError):  # it need not lie in a party's folder
        own = read_identity(options.ledger.parent / IDENTITY).name
    if own != options.silo:
        raise UserError(
            f"expected the ledger of {options.silo}, {options.ledger} lies in the folder of {own}; "
            "name that silo, or the other ledger"
        )
    return study


def _missing(options: argparse.Namespace) -> int:
    """Rows that were there, as an answer follows its row, or may have been (P15)."""
    from hubbub.core.planning.study_plan import plan
    from hubbub.core.runs.run_folder import answers_in

    study = _study_of_silo(options)
    answers, made = list(answers_in(options.run)), plan(study)
    with _existing(options.ledger) as ledger:
        cap, before = ledger.cap, ledger.tally
        charged = Counter(one.session for one in ledger.entries() if one.study == study.id)
    with_lost = before.copy()
    lost = {query.purpose: 0 for query in made.queries}
    unanswered = dict(lost)  # attempts, whose rows may have been there
    # An answer in a transcript followed its row, so rows that are fewer have been lost; those of
    # another run of the study are in place of none.
    for header, *counts in answers:
        if (query := made.planned(header.purpose)) is None:
            continue
        rows, most = (ceil(count[options.silo] / query.mechanism.epoch) for count in counts)  # P9
        there = charged[header.session]
        gone, perhaps = max(0, rows - there), max(0, most - max(rows, there))
        lost[query.purpose] += gone
        unanswered[query.purpose] += perhaps
        if gone + perhaps:
            session = Certified(study.id, header.session, query.certificate)
            with_lost.add_rows(kind_of(query), gone + perhaps, session)
    incomplete = any((*lost.values(), *unanswered.values()))
    goal = cap or study.privacy
    spent, truly = (
        finite(tally.epsilon(delta=goal.delta, relation=goal.relation))
        for tally in (before, with_lost)
    )
    answer(
        options,
        {"study": study.id.hex(), "missing": lost, "unanswered": unanswered}
        | {"epsilon": spent, "epsilon_with": truly}
        | {"delta": goal.delta, "relation": goal.relation},
        *(f"{purpose}: {several(rows, 'row')} missing" for purpose, rows in lost.items() if rows),
        *(
            f"{purpose}: {several(rows, 'row')} may be missing, of attempts without an answer"
            for purpose, rows in unanswered.items()
            if rows
        ),
        (
            f"total spent: epsilon {at_most(spent)} according to the ledger, {at_most(truly)} "
            f"with these rows, at delta {goal.delta:g} ({goal.relation}); lower the cap by the "
            "difference"
        )
        if incomplete
        else "according to the transcripts no row is missing",
    )
    return int(incomplete)


def _head(options: argparse.Namespace) -> int:
    with _existing(options.ledger) as ledger:
        statement = ledger.statement(datetime.now(UTC).isoformat(timespec="seconds"))
    answer(
        options,
        statement.to_dict(),
        f"ledger {statement.ledger.hex()}",
        f"rows   {statement.rows}, including caps and the first row",
        f"head   {statement.head.hex()}",
        f"time   {statement.time}",
        "--json prints the signed statement: give that to other parties, who run `hubbub "
        "ledger witness`",
    )
    return 0


def _witness(options: argparse.Namespace) -> int:
    kept = _kept(options.statement)
    statement = kept.statement if isinstance(kept, Witnessed) else kept
    if options.key.suffix != ".key":
        raise UserError(
            f"expected --key to name a file that ends with .key, got {options.key}; the "
            "list of signed statements is kept beside it, under the name without .key"
        )
    with Witness(options.key.with_suffix("")) as witness:
        witnessed = witness.sign(statement)
    answer(
        options,
        witnessed.to_dict(),
        f"ledger  {statement.ledger.hex()}: {statement.rows} rows, witnessed",
        f"witness {witnessed.witness.hex()}",
        "--json prints the signature: keep it for `hubbub ledger verify --witness`",
    )
    return 0


def _kept(path: Path) -> HeadStatement | Witnessed:
    """A statement that somebody kept in a file, witnessed or not."""
    try:
        plain = json_value(read_bytes(path))
    except OSError as error:
        raise UserError(
            f"expected a statement in {path}, got: {why_of(error)}; check the path"
        ) from None
    except ValueError:
        plain = None
    try:
        witnessed = isinstance(plain, dict) and "witness" in plain
        return (Witnessed if witnessed else HeadStatement).of(plain)
    except IntegrityError as error:
        raise IntegrityError(f"{path}: {error}") from None


def _set(options: argparse.Namespace) -> int:
    cap = Cap(
        epsilon=options.epsilon,
        delta=options.delta,
        relation=options.relation,
        studies="fixed" if options.fixed_studies else "adaptive",
        law=None if options.law is None else _law(*options.law),
    )
    if options.new and _is_begun(options.ledger):
        raise UserError(f"expected no {options.ledger} with --new, found one; leave --new out")
    if options.new:
        _check_law(PrivacyFilter.beginning(cap, Tally()), Tally())
    with Ledger(options.ledger) if options.new else _existing(options.ledger) as ledger:
        _check_law(ledger.filter_under(cap), ledger.tally)
        ledger.set_cap(cap)
        books = LedgerBooks.of(ledger)
    answer(options, {"cap": cap.to_dict()}, *books.words)
    return 0


def _law(noise: str, rate: str, steps: str) -> ReferenceLaw:
    try:
        return ReferenceLaw(
            noise_multiplier=float(noise), sample_rate=float(rate), steps=int(steps)
        )
    except ValueError:
        raise UserError(
            f"expected --law with two numbers and a whole number, got {noise} {rate} {steps}; "
            "state the least noise multiplier, the largest sample rate, and the number of steps"
        ) from None


def _check_law(after: PrivacyFilter, tally: Tally) -> None:
    """Refuse a law that its cap has no room for (P24)."""
    if not after.keeps_its_law:
        raise UserError(
            f"expected a cap with room for its law, got epsilon {after.cap.epsilon:g} where at "
            f"least {at_most(after.epsilon(tally))} is needed; raise the cap or state fewer steps"
        )


def _existing(path: Path) -> Ledger:
    """A ledger that is there; a mistyped path must not make an empty one."""
    if not _is_begun(path):
        raise UserError(
            f"expected the ledger file {path}, found none there; check the path: a run makes it, "
            "or hubbub budget set --new"
        )
    return Ledger(path)


def _is_begun(path: Path) -> bool:
    """Whether there is a ledger; a crash as one was made leaves an empty file."""
    return path.is_file() and path.stat().st_size > 0
