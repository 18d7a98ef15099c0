"""What playing the sessions of a run showed: of each session, and of all attempts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

from hubbub.core.number_format import several
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.tabular.records import STANDARDISED
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import (
    RESTORE,
    Finding,
    Plain,
    judged,
    not_verifiable,
    read_whole,
    rederived,
    signed,
    wrong,
)
from hubbub.core.verification.replay.replayed_session import ReplayedSession
from hubbub.core.verification.transcript.frame_records import Header, plain_roster

Sessions = Sequence[tuple[Header, ReplayedSession]]


def replay_findings(
    name: str, header: Header, played: ReplayedSession, *, steps: bool
) -> Iterator[Finding]:
    """What playing a session showed."""
    purpose, silos = f" ({header.purpose})", len(header.roster.silos)
    yield rederived(
        f"{name}{purpose}: {played.frames} messages of {len(header.roster.parties)} parties, their "
        f"signatures and order; {several(played.attempts, 'attempt')}, each with one MODEL and at "
        "most one answer of each party"
    ).covering("replay.frames")
    if 0 < len(played.silos) < silos:
        yield signed(
            f"{name}: set up with {len(played.silos)} of {silos} silos, as the "
            "aggregator's ROLL says; no sum contains others"
        )
    if played.result is not None:
        yield signed(
            f"{name}: the sums were taken at the model that {len(played.signers)} silos "
            "had signed as the RESULT"
        )
    if played.spoilt:
        yield not_verifiable(
            f"that {played.spoilt} attempts in {name} gave no sum: an answer is missing, "
            "as after a dropout or an interruption; only the aggregator says that it did "
            "not see that answer and leave it out"
        )
    if played.held:
        yield rederived(
            f"{name}: {played.held} words of nodes are about the very shares that silos signed for "
            "them, and about the one MODEL"
        )
    if played.unseen:
        why = "sums were projected layer by layer for a model of the study's own"
        if played.withheld:
            why = 'masked vectors were not kept (transcript = "hashes")'
        yield not_verifiable(
            f"the sums of {several(played.unseen, 'round')} in {name}, and the steps after them: "
            f"{why}"
        )
    elif steps:
        yield rederived(f"{name}: every sum, and every step along it, bit for bit")


def told_findings(
    folder: Path, plan: Plan, name: str, header: Header, played: ReplayedSession
) -> Iterator[Finding]:
    """Whether silos were told the shifts and scales that the run has kept.

    A DEPOSIT is signed for the COLLECT that its silo was shown (P30); of an OPEN only the
    aggregator's own signature is kept.
    """
    planned, offer = plan.planned(header.purpose), played.offer
    standardises = plan.study.data.standardise is not None
    if planned is None or planned.query.takes_raw_records or not (standardises or offer):
        return
    claim = f"{name}: features were standardised as silos were told, as recorded in {STANDARDISED}"
    if offer is None:
        yield not_verifiable(
            f"that in {name} silos were told the shifts and scales of {STANDARDISED}: no OPEN was "
            "kept, as in one process"
        )
        return
    path, scaling = folder / STANDARDISED, offer.standardisation
    kept = read_whole(path) if path.exists() else b""
    if kept == (scaling.to_json().encode() if scaling else b""):
        yield rederived(claim) if played.is_collection else signed(claim)
    else:
        yield wrong(claim, f"silos were told others; {RESTORE}, or rely on no answer from it")


def key_findings(name: str, header: Header, content: Plain | None) -> Iterator[Finding]:
    """A session is the parties' own if it has the keys with which they sign the evidence."""
    if content is not None and plain_roster(header.roster) != content["roster"]:
        yield not_verifiable(
            f"that the keys in {name} are the parties': they are not those of {FILE}, as "
            "happens when a run in one process is resumed"
        )


def query_count_findings(
    plan: Plan, sessions: Sessions, content: Plain | None
) -> Iterator[Finding]:
    """What was asked of the silos besides the training, over all sessions (P16)."""
    sums: Counter[str] = Counter()
    for header, played in sessions:
        sums[header.purpose] += played.attempts
    counted = plan.mechanism.steps if content is None else content["epsilon"]["attempts"]
    for planned in plan.beside:
        purpose, most = planned.purpose, planned.mechanism.due_by(int(counted))
        if sums[purpose] < most:
            yield not_verifiable(
                f"that no sum for {purpose} was left out: the transcripts have "
                f"{sums[purpose]} of {most} that are due"
            )
        why = "the claimed epsilon does not hold" if sums[purpose] > most else ""
        claim = f"the transcripts have {several(sums[purpose], 'sum')} for {purpose}, of {most} due"
        yield judged(f"{claim} after {several(int(counted), 'attempt')}", why)


def attempts_paid(planned: PlannedQuery[Query], sessions: Sessions) -> int:
    """Attempts at a query that pay for those in the transcripts: a row may be for an epoch (P9)."""
    epoch = planned.mechanism.epoch
    return sum(epoch * ceil(begun / epoch) for begun in _begun(planned, sessions))


def attempts_shown(planned: PlannedQuery[Query], sessions: Sessions) -> int:
    """The same, but of the last session no more than was begun, not its whole last epoch.

    Whoever cuts a transcript within its last epoch may have chosen among sums.
    """
    last = _begun(planned, sessions)[-1:]
    return attempts_paid(planned, sessions) - -sum(last) % planned.mechanism.epoch


def _begun(planned: PlannedQuery[Query], sessions: Sessions) -> list[int]:
    """Attempts that were begun in each session of a query, where there were any."""
    mine = [played.begun for header, played in sessions if header.purpose == planned.purpose]
    return [begun for begun in mine if begun]


def attempts_within(plan: Plan, sessions: Sessions, counted: int, step: int) -> tuple[int, int]:
    """The least and the most attempts that were charged when the main query took a step.

    Those that some silo answered were charged. Of the others that the evidence counts, as after an
    interruption, nothing says when.
    """
    by_round, answered = dict[int, int](), 0
    for header, played in sessions:
        if header.purpose == plan.main.purpose:
            by_round |= {number: answered + n for number, n in played.answered_by.items()}
            answered += played.attempts
    least = max(1, step, by_round.get(step, 0))
    return least, max(least, counted - answered + by_round.get(step, answered))


def attempt_findings(plan: Plan, sessions: Sessions, content: Plain | None) -> Iterator[Finding]:
    """Attempts of the main query that somebody answered, against what may be and what was charged.

    Nobody's word is needed for those that are in a transcript; of those that are not, a full one
    has at least the MODEL.
    """
    mine = [played for header, played in sessions if header.purpose == plan.main.purpose]
    answered, steps = sum(played.attempts for played in mine), plan.mechanism.steps
    why = "" if answered <= steps else "the claimed epsilon does not hold"
    claim = f"the transcripts have {several(answered, 'attempt')}, of {steps} that the study allows"
    yield judged(claim, why).covering("replay.attempts")
    if content is None:
        return
    counted = content["epsilon"]["attempts"]
    why = "" if answered <= counted else f"the evidence counts {counted}"
    yield judged("no attempt of the transcripts is missing from the epsilon of the evidence", why)
    paid = attempts_paid(plan.main, sessions)
    if (missing := counted - paid) > 0:
        claim = "every charged attempt is in the transcripts, answered or not"
        why = f"{missing} are missing: each is recorded before it is asked; {RESTORE}"
        # Who names sessions of which there is no transcript may have answered them there.
        agreeing = sum(p["attempts"] > paid and not p["unlisted"] for p in content["silos"])
        # P15: of more than T silos that say so, one is honest.
        is_shown = agreeing > plan.study.parties.colluders
        yield wrong(claim, why) if is_shown else not_verifiable(f"that {claim}: {why}")
    if (unseen := min(counted, steps) - answered) > 0:
        yield not_verifiable(
            f"that no sum was left out: {unseen} charged attempts have no answer in a "
            "transcript, as happens after an interruption"
        )
    answers: Counter[str] = Counter()
    for header, played in sessions:
        if header.purpose == plan.main.purpose:
            answers.update({header.roster.name(silo): n for silo, n in played.answers.items()})
    charged = {part["silo"]: part["attempts"] for part in content["silos"]}
    uncharged = [name for name, number in charged.items() if answers[name] > number]
    why = f"{', '.join(uncharged)} answered more attempts than were charged" if uncharged else ""
    if charged:
        yield judged("every silo that signed has charged what it answered", why)
    if silent := sorted(answers.keys() - charged.keys()):
        yield not_verifiable(f"that {', '.join(silent[:12])} charged what they answered")
