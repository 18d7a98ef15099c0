"""What silos have signed of their own ledgers, and what follows from it for the whole run.

A count of attempts is known if every silo of the study has signed its last word: one after which it
answers no attempt (docs/privacy.md P15). Where one is silent, or has signed a word of an older
form, after which more may have been answered, the count is the aggregator's own. Messages that the
file lists bound it from below. So many silos as may collude may also lie about their counts: theirs
are disputed and accuse nobody, while one more cannot all be lying. This file makes no plan and
knows no frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from math import ceil

from hubbub.core.number_format import at_most
from hubbub.core.planning.study_queries import main_of
from hubbub.core.protocol.primitives.identity import Identity
from hubbub.core.session.setup import kept_of_set_up
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.evidence_file import Plain, part_words
from hubbub.core.verification.evidence.finding import Finding, judged, not_verifiable, signed, wrong
from hubbub.core.verification.transcript.transcript_header import roster_of

_MANY = 12  # silos beyond which each is mentioned only if something is wrong with it


@dataclass(frozen=True, kw_only=True)
class SiloWords:
    """What the silos of a study have signed, as far as it is rightly signed and about this run.

    Args:
        wrongs: what is wrong with each part of the file, in its order; "" if nothing is.
        spoken: silos that have rightly signed a part about this study.
        doubtful: silos of the study without a last word.
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
        final = [one for one in right if one.get("closed") is True]
        last = {one["silo"] for one in final}
        unlisted = frozenset(name for one in final for name in one["unlisted"])
        told = Counter(name for one in final for name in {*one["sessions"]})
        return cls(
            wrongs=wrongs,
            doubtful=tuple(name for name in study.parties.names if name not in last),
            disputed=disputed,
            spoken=frozenset(one["silo"] for one in right),
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
            return f"{_some(self.disputed)} signed a last word that says more"
        return f"{_some(self.doubtful)} did not sign a last word about it"


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
    older = [part["silo"] for part in parts if part.get("closed") is not True]
    if older:
        yield not_verifiable(
            f"that {_some(older)} answered no attempt after signing: their words are of an older "
            "form, which does not say so"
        )
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
        yield signed(f"{wrongs.count('')} silos say what their ledgers hold")
    else:
        right = (part for part, why in zip(parts, wrongs, strict=True) if not why)
        yield from (signed(_said_by(part)) for part in right)
    silent = [name for name in names if name not in spoken]
    if silent:
        yield not_verifiable(f"what the ledgers of {_some(silent)} hold: they have not signed")


def _counts_judged(
    content: Plain, wrongs: tuple[str, ...], study: Study
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parts' faults with those of too high counts, or else the silos whose counts are disputed.

    Of more silos than may collude one is honest, so the aggregator's count is wrong (P15).
    """
    counted = count_of(content["epsilon"]["attempts"])
    above = [
        not why and count_of(part["attempts"]) > paid_for(counted, study)
        for part, why in zip(content["silos"], wrongs, strict=True)
    ]
    named = [
        part["silo"] for part, is_above in zip(content["silos"], above, strict=True) if is_above
    ]
    names = tuple(dict.fromkeys(named))
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
    if not set(part["sessions"]) <= sessions:
        return "it names a session of which there is no transcript"
    count_of(part["attempts"])
    return ""


def _said_by(part: Plain) -> str:
    """A silo's part in words."""
    ledger, total = part["ledger"], part["data_set"]
    words = (
        f"{part['silo']}: {part['attempts']} attempts charged; its ledger has {ledger['rows']} "
        f"rows and the head {ledger['head'][:16]}…"
    )
    if total is None:
        return f"{words}; what its data set has spent in all, it does not tell"
    return (
        f"{words}; its data set has spent epsilon {at_most(total['epsilon'])} at delta "
        f"{total['delta']:g} ({total['relation']}) in all"
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
    silos, nodes, mechanism = (
        study.parties.silos,
        study.parties.compute_nodes,
        main_of(study).mechanism,
    )
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
