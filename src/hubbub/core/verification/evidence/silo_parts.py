"""What silos have signed of their own ledgers, and what follows from it for the whole run.

A count of attempts is known if every silo of the study has signed its last word: one after which it
answers no attempt (docs/privacy.md P15). Where one is silent, the count is the aggregator's own.
Messages that the file lists bound it from below. So many silos as may collude may also lie about
their counts: theirs are disputed and accuse nobody, while one more cannot all be lying. This file
makes no plan and knows no frames.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

from hubbub.core.errors import ProtocolError, UserError
from hubbub.core.number_format import at_most, several
from hubbub.core.planning.study_plan import main_of
from hubbub.core.protocol.agreement.key_agreement import RollCall
from hubbub.core.protocol.primitives.identity import Identity, Roster
from hubbub.core.protocol.primitives.wire import Channel, Tag
from hubbub.core.session.attestation_exchange import AttestedSession, digest_of
from hubbub.core.session.offer import RefusedError, SessionOffer
from hubbub.core.session.setup import kept_of_set_up
from hubbub.core.study.attested_roles import Attestation
from hubbub.core.study.study import Study
from hubbub.core.verification.attestation.study_attestation import StudyAttestation
from hubbub.core.verification.evidence.evidence_file import (
    Finding,
    Plain,
    judged,
    not_checked,
    not_verifiable,
    part_words,
    rederived,
    signed,
    wrong,
)
from hubbub.core.verification.transcript.frame_records import (
    files,
    plain_roster,
    read,
    read_header,
    roster_of,
)

_MANY = 12  # silos beyond which each is mentioned only if something is wrong with it


@dataclass(frozen=True, kw_only=True)
class SiloWords:
    """What the silos of a study have signed, as far as it is rightly signed and about this run.

    Args:
        wrongs: what is wrong with each part of the file, in its order; "" if nothing is.
        spoken: silos that have rightly signed a last word about this study.
        doubtful: the study's others.
        disputed: silos that count more than epsilon was counted for, where all of them may lie.
        attempts: the most that one of the others has charged.
        sessions: in which some have charged an attempt, hexadecimal.
        vouched: those of them that more silos name than may lie.
        unlisted: those of them of which there is no transcript.
    """

    wrongs: tuple[str, ...]
    doubtful: tuple[str, ...]
    disputed: tuple[str, ...] = ()
    spoken: frozenset[str] = frozenset()
    attempts: int = 0
    sessions: frozenset[str] = frozenset()
    vouched: frozenset[str] = frozenset()
    unlisted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, content: Plain, study: Study) -> SiloWords:
        """What silos have signed; one of MALFORMED if the file is not what the format says."""
        roster, parts = roster_of(content["roster"]), content["silos"]
        silos = {party.name: party for party in roster.parties if party.role == "silo"}
        sessions = {transcript["session"] for transcript in content["transcripts"]}
        other = study.parties.roster not in ("", roster.digest.hex())
        wrongs = tuple(
            "the roster is not the one that the study names"
            if other
            else _wrong_in(part, silos, sessions, study)
            for part in parts
        )
        wrongs, disputed = _counts_judged(content, wrongs, study)
        right = [one for one, why in zip(parts, wrongs, strict=True) if not why]
        spoken = frozenset(one["silo"] for one in right)
        unlisted = frozenset(name for one in right for name in one["unlisted"])
        told = Counter(name for one in right for name in {*one["sessions"]})
        return cls(
            wrongs=wrongs,
            doubtful=tuple(name for name in study.parties.names if name not in spoken),
            disputed=disputed,
            spoken=spoken,
            attempts=max(
                (one["attempts"] for one in right if one["silo"] not in disputed), default=0
            ),
            sessions=unlisted.union(told),
            vouched=frozenset(name for name in told if told[name] > study.parties.colluders),
            unlisted=unlisted,
        )

    @property
    def are_final(self) -> bool:
        """Whether every silo has signed its last word, and none a count that is disputed."""
        return not self.doubtful and not self.disputed

    def show(self, study: Study) -> bool:
        """Whether one silo at least that is honest has signed that it took part in this study."""
        return len(self.spoken) > study.parties.colluders

    @property
    def doubt(self) -> str:
        """Who has not, or what is disputed, as a clause."""
        if not self.doubtful:
            return f"{_some(self.disputed)} signed a final statement with a higher count"
        return f"{_some(self.doubtful)} did not sign a final statement"


def part_claims(content: Plain, study: Study, words: SiloWords) -> Iterator[Finding]:
    """Whether the roster is the study's, and how each silo's part stands."""
    roster, parts, wrongs = roster_of(content["roster"]), content["silos"], words.wrongs
    names = [roster.name(index) for index in roster.silos]
    why = "" if names == list(study.parties.names) else f"it lists {', '.join(names)}"
    nodes = study.parties.compute_nodes
    if len(roster.nodes) != nodes:
        why = f"it lists {len(roster.nodes)} compute nodes, the study has {nodes}"
    listed = "the roster lists the study's silos, and as many compute nodes"
    yield judged(listed, why).covering("roster")
    yield from (one.covering("silos") for one in _spoken(names, parts, wrongs))
    if words.disputed:
        told = {part["silo"]: part["attempts"] for part in parts}
        said = [f"{name} ({told[name]})" for name in words.disputed]
        yield not_verifiable(
            f"who is right about attempts: epsilon was counted for {content['epsilon']['attempts']}"
            f", {_some(said)} signed to have charged more; so few silos may lie, in a study that "
            f"expects {study.parties.colluders} to collude, or the aggregator does"
        )


def _spoken(names: list[str], parts: list[Plain], wrongs: tuple[str, ...]) -> Iterator[Finding]:
    """How each silo's part stands."""
    spoken = [part["silo"] for part in parts]
    yield from (wrong(_said_by(p), why) for p, why in zip(parts, wrongs, strict=True) if why)
    if len(set(spoken)) < len(spoken):
        yield wrong("every silo speaks once", "one speaks twice")
    if len(parts) > _MANY:
        yield signed(f"{wrongs.count('')} silos state what their ledgers contain")
    else:
        right = (part for part, why in zip(parts, wrongs, strict=True) if not why)
        yield from (signed(_said_by(part)) for part in right)
    silent = [name for name in names if name not in spoken]
    if silent:
        yield not_verifiable(f"what the ledgers of {_some(silent)} contain: they have not signed")


def _counts_judged(
    content: Plain, wrongs: tuple[str, ...], study: Study
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parts' faults with those of too high counts, or else the silos of disputed counts."""
    counted = count_of(content["epsilon"]["attempts"])
    above = [
        not why and count_of(part["attempts"]) > paid_for(counted, study)
        for part, why in zip(content["silos"], wrongs, strict=True)
    ]
    named = [
        part["silo"] for part, is_above in zip(content["silos"], above, strict=True) if is_above
    ]
    names = tuple(dict.fromkeys(named))
    # P15: so few may all be lying. Of more one is honest, so the aggregator's count is wrong.
    if len(names) <= study.parties.colluders:
        return wrongs, names
    why = f"epsilon was counted for {counted} attempts only"
    return tuple(why if high else one for high, one in zip(above, wrongs, strict=True)), ()


def _wrong_in(part: Plain, silos: Mapping[str, Identity], sessions: Set[str], study: Study) -> str:
    """What is wrong with a silo's part; "" if nothing is."""
    silo = silos.get(part["silo"])
    if silo is None or not silo.verifies(bytes.fromhex(part["signature"]), part_words(part)):
        return "the signature is not that of a silo of the roster"
    if part["study"] != study.id.hex():
        return "it is about another study"
    if part.get("closed") is not True:  # P15: more attempts may have been answered after it
        return "it is no last word"
    if not set(part["sessions"]) <= sessions:
        return "it names a session of which there is no transcript"
    count_of(part["attempts"])
    return ""


def _said_by(part: Plain) -> str:
    """A silo's part in words."""
    ledger, total = part["ledger"], part["data_set"]
    words = (
        f"{part['silo']}: {several(part['attempts'], 'attempt')} charged; its ledger has "
        f"{ledger['rows']} rows and the head {ledger['head'][:16]}…"
    )
    if total is None:
        return f"{words}; it does not state what its data set has spent in total"
    return (
        f"{words}; its data set has spent epsilon {at_most(total['epsilon'])} at delta "
        f"{total['delta']:g} ({total['relation']}) in total"
    )


def count_of(value: object) -> int:
    """A count; ValueError if it is no whole number: half an attempt is none."""
    if type(value) is not int or value < 0:
        raise ValueError("a count that is no whole number")
    return value


def paid_for(attempts: int, study: Study) -> int:
    """Attempts that are paid for where so many are made: whole epochs of a kept list (P9)."""
    epoch = main_of(study).mechanism.epoch
    return epoch * ceil(attempts / epoch)


def least_attempts(content: Plain, study: Study) -> int:
    """So many attempts at least belong to the messages that the file lists of the main query.

    No attempt has more messages than one that everybody answers, and one message more, as an OPEN
    that was kept for its standardisation, makes no attempt.
    """
    silos, nodes = study.parties.silos, study.parties.compute_nodes
    mechanism = main_of(study).mechanism
    linked = mechanism.needs_joint_seed
    shared = study.parties.shares == "full"
    most = 1 + silos * (1 + linked) + nodes * (3 + (2 + silos) * shared)
    before = kept_of_set_up(silos, nodes, linked=linked, attested=study.attestation is not None)
    mine = [
        transcript
        for transcript in content["transcripts"]
        if transcript["purpose"] == mechanism.purpose
    ]
    return sum(max(0, count_of(one["frames"]) - before) // most for one in mine)


def _some(names: tuple[str, ...] | list[str]) -> str:
    """Names, as far as they can be read at once."""
    more = f" and {len(names) - _MANY} others" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more


# The evidence that parties showed in a run's sessions, kept in `evidence.json` and verified again.
#
# Kept are the frames themselves: the aggregator's offer with the time of verification, its ROLL,
# the silos' nonces, and everybody's evidence with its collateral. They are signed by those who sent
# them, so whoever has the file can verify them as the silos did, at the time that they did it.

_TAGS = (Tag.OPEN, Tag.ROLL, Tag.NONCE, Tag.EVIDENCE)


def attested_of(folder: Path, roster: Roster) -> list[Plain]:
    """What was shown in every session of a run in which there was a round, from its transcripts.

    Of one that was interrupted before, not all may have been kept. A run in one process has other
    keys when it is resumed: then a session has a roster of its own.
    """
    return [one for path in files(folder) if (one := _attested(path, roster))]


def _attested(path: Path, roster: Roster) -> Plain:
    """What was shown in one session; nothing without a round."""
    frames, asked = [], False
    for kept in read(path):
        asked = asked or kept.tag is Tag.MODEL
        if kept.tag in _TAGS:
            frames.append(b64encode(kept.frame).decode())
    header = read_header(path)
    same = header.roster.digest == roster.digest
    own = {} if same else {"roster": plain_roster(header.roster)}
    return {"session": header.session.hex(), "frames": frames, **own} if asked else {}


def attested_findings(content: Plain, study: Study, words: SiloWords) -> Iterator[Finding]:
    """How evidence stands that is verified again, session by session."""
    roster = roster_of(content["roster"])
    asked, shown = study.attestation, content.get("attested")
    if asked is None or shown is None:
        why = "the study asks for evidence" if asked else "the study asks for none"
        if asked is not None or shown is not None:
            yield wrong("parties showed evidence as the study asks", f"{why}, unlike the file")
        return
    rosters = [roster_of(one["roster"]) if "roster" in one else roster for one in shown]
    listed = {one["session"] for one in content["transcripts"]}
    findings = [
        _finding(one, asked, study, own, _difference(own, roster, study))
        if one["session"] in listed
        else wrong("evidence is of the run's sessions", "of one there is no transcript")
        for one, own in zip(shown, rosters, strict=True)
    ]
    yield _of_every_session(content, rosters, words, findings)
    yield from findings
    for one, own in zip(shown, rosters, strict=True):
        if own.digest != roster.digest:
            yield not_verifiable(
                f"that the keys in the session {one['session'][:16]}… are the parties': they are "
                "not those of the roster, as happens when a run in one process is resumed"
            )


def _of_every_session(
    content: Plain,
    rosters: list[Roster],
    words: SiloWords,
    found: list[Finding],
) -> Finding:
    """Whether evidence that holds is there of every session with an attempt that was charged."""
    claim = "parties showed evidence in every session with an attempt"
    shown = [one["session"] for one in content["attested"]]
    listed = {one["session"]: one["frames"] for one in content["transcripts"]}
    roster = roster_of(content["roster"])
    most = 2 + len(roster.parties) + 2 * len(roster.silos)  # no more come before the first round
    long = {session for session, frames in listed.items() if frames > most}
    if len(set(shown)) < len(shown):
        return wrong(claim, "a session is shown twice")
    # Which had an attempt, the silos have signed; how many messages one had, the aggregator says.
    missing = ((words.vouched - words.unlisted) | long) - set(shown)
    if missing:
        return wrong(claim, f"{min(missing)[:16]}… is without")
    others = {one for one, own in zip(shown, rosters, strict=True) if own.digest != roster.digest}
    if unshown := words.sessions - words.unlisted - set(shown):
        doubt = f"so few silos as may lie say that they answered in {min(unshown)[:16]}…"
    elif not all(one.holds and one.is_checked for one in found):
        doubt = "what was shown in some does not hold, or was not checked"
    elif words.unlisted:
        doubt = f"of {min(words.unlisted)[:16]}… there is no transcript"
    elif others & words.sessions:
        doubt = f"in {min(others & words.sessions)[:16]}… it was shown for other keys"
    else:
        doubt = "" if words.are_final else words.doubt
    if doubt:
        return not_verifiable(f"that {claim}: {doubt}")
    return rederived(claim)


def _difference(own: Roster, roster: Roster, study: Study) -> str:
    """Why a session cannot have had a roster of its own; "" if it can."""
    names = [(party.name, party.role) for party in own.parties]
    if names != [(party.name, party.role) for party in roster.parties]:
        return "its roster has other parties"
    other = study.parties.roster and own.digest.hex() != study.parties.roster
    return "the study names another roster" if other else ""


def _finding(
    one: Plain, asked: Attestation, study: Study, roster: Roster, wrong_roster: str
) -> Finding:
    """One session, verified again."""
    who = ", ".join(f"{role} ({table['platform']})" for role, table in asked.to_dict().items())
    claim = f"in the session {str(one['session'])[:16]}… the evidence holds of every {who}"
    try:
        at = _replayed(one, asked, study, roster)
    except (ProtocolError, RefusedError) as error:
        return wrong(claim, error)
    except UserError as error:  # what verifies it is not installed
        return not_checked(f"{claim} ({error})")
    return judged(
        f"{claim}, verified at {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC, as the offer "
        "states it",
        wrong_roster,
    )


def _replayed(one: Plain, asked: Attestation, study: Study, roster: Roster) -> int:
    """When a session's evidence held; ProtocolError or RefusedError if it did not."""
    channel = Channel(roster=roster, study=study.id, session=bytes.fromhex(one["session"]))
    frames = [b64decode(text, validate=True) for text in one["frames"]]
    opening = channel.parse(frames[0])
    if opening.tag is not Tag.OPEN or opening.sender != 0:
        raise ProtocolError("expected the aggregator's offer first, got another frame")
    offer = SessionOffer.read(opening.payload, roster.name(0))
    attested = AttestedSession(**vars(channel), attests=StudyAttestation(asked=asked), at=offer.at)
    # P29: there must be enough silos.
    quorum = study.parties.silos - study.parties.dropouts
    silos, shown = RollCall(channel, quorum=quorum).take(frames[1]).silos, frames[2:]
    nonces, evidence = shown[: len(silos)], shown[len(silos) :]
    attested.checked(evidence, digest_of(attested.nonces_of(nonces, silos)), silos)
    return offer.at
