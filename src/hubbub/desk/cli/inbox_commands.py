"""`hubbub propose` and `inbox`: a study goes to all parties, and each one's people answer."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubbub.core.errors import HubbubError, UserError, printable
from hubbub.core.number_format import at_most
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.study import Study
from hubbub.desk.cli.consortium_commands import decided, plans_beside, review, show_study
from hubbub.desk.cli.ledger_books import LedgerBooks, spending
from hubbub.desk.cli.main import actor
from hubbub.desk.cli.terminal import (
    PASSPHRASE,
    add_command,
    answer,
    argument,
    moment,
    say,
    table,
    unlock,
)
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.party_folder import HOME, LEDGER, PartyFolder
from hubbub.site.network.proposals import (
    ABSENT,
    DECLINED,
    MOST_REASON,
    PENDING,
    Inbox,
    Outbox,
    Proposal,
    Standing,
    Verdict,
)

_HOME = argument("--home", "this party's folder", Path, default=HOME)


def add_commands(commands: Any) -> None:
    """Register the commands."""
    add_command(
        commands,
        "propose",
        "propose a study, approved here, to all parties over the relay",
        _propose,
        argument("study", "the study's TOML file", Path),
        _HOME,
        argument("--relay", "URL of a relay that runs; default: start one here"),
        argument("--wait", "seconds for parties that are away; default 30", float, default=30.0),
        PASSPHRASE,
    )
    add_command(
        commands,
        "inbox",
        "studies that are proposed here: what each would cost; approve or decline one",
        _inbox,
        argument("id", "the first digits of its id, or its name", nargs="?"),
        argument("--approve", "take part in it, after the same review as hubbub approve", bool),
        argument("--decline REASON", "take no part in it, for this reason"),
        _HOME,
        argument("--ledger", "the data set's ledger; default in --home", Path),
        argument("--data", "for a silo: the folder of records; default --home", Path),
        argument("--yes", "do not ask for confirmation; scripts need this", bool),
        PASSPHRASE,
    )


def _propose(options: argparse.Namespace) -> int:
    from hubbub.site.network.aggregator_process import propose

    party_folder = PartyFolder.opened(options.home, unlock(options))
    study = Study.load(options.study)
    event_log = EventLog(party=party_folder.name, say=(lambda _: None) if options.json else say)
    standings = propose(party_folder, study, event_log, url=options.relay, seconds=options.wait)
    verdict = Verdict.of(study, party_folder.roster, standings)
    away = [name for name, one in standings.items() if one.state == ABSENT]
    content = {"study_id": study.id.hex(), "parties": _plain(standings), **vars(verdict)}
    if not options.json:
        _show_standings(study, standings)
    words = "hubbub serve asks the undecided parties again"
    if verdict.hopeless:
        words = "too many have declined it: it cannot run"
    elif verdict.enough:
        words = "enough have approved it: hubbub serve runs it"
    answer(options, content, words)
    return 1 if verdict.hopeless or away else 0


def _plain(standings: Mapping[str, Standing]) -> dict[str, dict[str, str]]:
    return {name: dict(vars(one)) for name, one in standings.items()}


def _show_standings(
    study: Study, standings: Mapping[str, Standing], *, is_over: bool = False
) -> None:
    rows = [(name, one.state, one.reason) for name, one in standings.items()]
    head = ("party", "study", "reason")
    over = " (it is over)" if is_over else ""
    table(f"{study.name}, {study.id.hex()[:16]}{over}: decisions", head, rows, texts=3)


def _inbox(options: argparse.Namespace) -> int:
    party_folder = PartyFolder.opened(options.home, unlock(options))
    if party_folder.role == "aggregator":
        return _sent(options, party_folder)
    inbox = Inbox(party_folder)
    if options.id is None:
        if options.approve or options.decline is not None:
            raise UserError("expected the id of a proposal, got none; hubbub inbox lists them")
        return _listed(options, inbox)
    if options.approve and options.decline is not None:
        raise UserError("expected --approve or --decline, got both; leave one out")
    proposal = inbox.proposal(options.id)
    options.about = {"id": proposal.id.hex(), "name": proposal.name}  # for the command log
    if options.decline is not None:
        return _decline(options, inbox, proposal)
    study, ledger = proposal.study(), options.ledger or options.home / LEDGER
    if options.approve:
        if options.yes and options.id != study.id.hex():
            raise UserError(
                "expected the full id with --approve --yes, because the aggregator chooses names "
                f"and may choose first digits, got {printable(options.id)}; write all 64 digits, "
                "or leave --yes out"
            )
        return review(options, party_folder, study, party_folder.roster)
    if options.json:
        answer(options, {**_row(inbox, proposal, ledger), "study": study.as_toml()})
    else:
        from hubbub.core.study import foreign_code

        hashes = foreign_code.code_hashes(study)
        show_study(party_folder, study, party_folder.roster, options.ledger, hashes)
    return 0


def _decline(options: argparse.Namespace, inbox: Inbox, proposal: Proposal) -> int:
    reason = options.decline.strip()
    if not reason or len(reason) > MOST_REASON or not reason.isprintable():
        raise UserError(
            f"expected a reason of 1 to {MOST_REASON} printable characters, which the aggregator "
            f"is told, got {printable(reason[:40])!r}; say it in a line"
        )
    standing = inbox.stands(proposal.id, proposal) or Standing(state=PENDING)
    if standing.state != PENDING:
        raise UserError(
            f"expected a proposal that nobody has decided on, {proposal.name} is {standing.state} "
            "here; hubbub approve --withdraw takes an approval back"
        )
    question = (
        f"Decline {proposal.name}? It stays declined if it is proposed again unchanged; only "
        "hubbub approve, with its file, can overrule that."
    )
    if not decided(question, options, inbox, proposal.id):
        say("not declined; nothing was changed")
        return 1
    inbox.say(proposal.id, DECLINED, actor(), reason)
    content = {"study_id": proposal.id.hex(), "declined": True, "reason": reason}
    answer(options, content, f"declined: {proposal.name}, id {proposal.id.hex()}")
    return 0


def _listed(options: argparse.Namespace, inbox: Inbox) -> int:
    """All that have come, with what the pending ones would cost."""
    ledger = options.ledger or options.home / LEDGER
    rows = [_row(inbox, proposal, ledger) for proposal in inbox.proposals()]
    if not options.json and rows:
        head = ("study", "id", "since", "state", "costs", "budget here")
        shown = [
            (
                row["name"],
                row["study_id"][:16],
                moment(row["received"])[:10],
                f"{row['state']}: {row['reason']}" if row["reason"] else row["state"],
                _cost(row),
                row.get("cap_says") or row.get("unknown") or "",
            )
            for row in rows
        ]
        table("Proposed studies; hubbub inbox ID shows one in full", head, shown, texts=len(head))
    waiting = sum(row["state"] == PENDING for row in rows)
    answer(options, {"proposals": rows}, f"{waiting} of {len(rows)} wait for a decision")
    return 0


def _cost(row: Mapping[str, Any]) -> str:
    promised = row.get("promised")
    return "" if promised is None else f"epsilon {at_most(promised)} at delta {row['delta']:g}"


def _row(inbox: Inbox, proposal: Proposal, ledger: Path) -> dict[str, Any]:
    """A proposal as plain values; of one that may be approved, also what it would cost here."""
    standing = inbox.stands(proposal.id, proposal) or Standing(state=PENDING)
    row = {
        "study_id": proposal.id.hex(),
        "name": proposal.name,
        "received": proposal.received,
        **vars(standing),
        "said": [dict(line) for line in proposal.said],
    }
    if standing.state != PENDING:
        return row
    try:
        return row | _costs(proposal.study(), ledger, inbox.party_folder)
    except HubbubError as error:  # of one that cannot be planned here; others are shown
        return row | {"unknown": printable(str(error))}


def _costs(study: Study, ledger: Path, party_folder: PartyFolder) -> dict[str, Any]:
    """What a study would spend: for each adversary, and beside what is spent and left here."""
    made = plan(study)
    costs = {
        "epsilon": made.to_dict()["epsilon"],
        "promised": made.stated.epsilon,
        "delta": study.privacy.delta,
        "relation": study.privacy.relation,
        "spent": 0.0,
        "after": made.stated.epsilon,
        "cap": study.privacy.cap or None,
        "left": study.privacy.cap or None,
        "cap_says": "nothing is spent yet" if party_folder.role == "silo" else "holds no records",
    }
    if not ledger.is_file():
        return costs
    books = LedgerBooks.of(ledger)
    spent = spending(ledger, made, plans_beside(party_folder, study))
    cap = None if books.cap is None else books.cap.epsilon
    said = {"spent": spent.spent, "after": spent.after, "cap": cap, "left": books.left}
    return costs | said | {"cap_says": spent.words}


def _sent(options: argparse.Namespace, party_folder: PartyFolder) -> int:
    """What the aggregator has proposed, and what parties say."""
    if options.id or options.approve or options.decline is not None:
        raise UserError(
            "expected a silo or a node to decide on a proposal, got the aggregator, which sends "
            "them; hubbub approve and hubbub propose are its commands"
        )
    outbox = Outbox(party_folder)
    sent = [(study, outbox.standings(study.id)) for study in outbox.studies()]
    over = {study.id for study, _ in sent if party_folder.has_ended(study.id)}
    for study, standings in () if options.json else sent:
        _show_standings(study, standings, is_over=study.id in over)
    rows = [
        {"study_id": study.id.hex(), "name": study.name, "over": study.id in over}
        | {"parties": _plain(standings)}
        for study, standings in sent
    ]
    answer(options, {"proposed": rows}, f"proposed studies: {len(rows)}")
    return 0
