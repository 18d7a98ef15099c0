"""Who takes part in a session, and the set-up by which they come to share secrets.

Set-up is written out in the order in which the messages travel; what each party does with them is
in `protocol/agreement/key_agreement.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hubbub.protocol.agreement import mask_graph
from hubbub.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.protocol.agreement.key_agreement import SESSION_BYTES, Agreement, Session, sent_digest
from hubbub.protocol.agreement.mask_stream import MaskStream
from hubbub.protocol.identity import Keys, Roster
from hubbub.protocol.randomness import SecureSource
from hubbub.protocol.round import Aggregator, ComputeNode, Masking, RoundParameters


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many parties there are, and who shares masks with whom.

    Args:
        names: the silos.
        nodes: compute nodes; 0 for pairwise masks.
        nodes_per_silo: 0 for all of them.
        degree: of the mask graph; None for the complete one.
    """

    names: tuple[str, ...]
    nodes: int = 0
    nodes_per_silo: int = 0
    degree: int | None = None

    def keys(self) -> list[Keys]:
        """Fresh keys of everybody, in the order of the roster."""
        return [
            Keys.generate("aggregator", "aggregator"),
            *(Keys.generate(name, "silo") for name in self.names),
            *(Keys.generate(f"node-{number}", "node") for number in range(1, self.nodes + 1)),
        ]

    def neighbours(self, index: int, seed: bytes) -> Sequence[int]:
        """Roster indices of those with whom a party shares masks."""
        silos = len(self.names)
        if self.nodes == 0:
            each = silos - 1 if self.degree is None else self.degree
            return [1 + k for k in mask_graph.neighbours_of(index - 1, silos, each, seed)]
        each = self.nodes_per_silo or self.nodes
        if index <= silos:
            return [1 + silos + node for node in _nodes_of(index - 1, each, self.nodes)]
        node = index - silos - 1
        return [1 + k for k in range(silos) if node in _nodes_of(k, each, self.nodes)]


def _nodes_of(silo: int, each: int, nodes: int) -> list[int]:
    """The nodes that a silo uses: consecutive on a circle (docs/privacy.md P4)."""
    return sorted((silo + step) % nodes for step in range(each))


@dataclass(frozen=True, kw_only=True)
class JointSeeds:
    """Everybody's part of the joint seeds of a session.

    Args:
        anchors: the silos' commitments, as everybody was shown them.
        check: of the parties without a chain of their own: aggregator and compute nodes.
        silos: by roster index.
    """

    anchors: tuple[bytes, ...]
    check: SeedCheck = field(repr=False)
    silos: Mapping[int, JointSeed] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Members:
    """Everybody's keys and sessions, before they are given anything to do."""

    roster: Roster
    keys: Sequence[Keys] = field(repr=False)
    sessions: Mapping[int, Session] = field(repr=False)
    sources: Mapping[int, SecureSource] = field(repr=False)
    study: bytes
    session: bytes
    joint: JointSeeds | None = field(default=None, repr=False)

    @classmethod
    def gather(
        cls,
        layout: Layout,
        *,
        study: bytes,
        source: Callable[[int], SecureSource] | None = None,
        terms: RoundParameters | None = None,
        keys: Sequence[Keys] | None = None,
    ) -> Members:
        """Make keys and set up a session among all parties.

        Args:
            layout: who there is.
            study: the study id.
            source: a party's randomness by its index; the operating system's if None.
            terms: of rounds that may need joint seeds; None where they surely do not.
            keys: everybody's, in the order of the roster; fresh ones if None.
        """
        draw = source or (lambda _: SecureSource())
        keys = keys or layout.keys()
        roster = Roster.of(keys)
        session = SecureSource().bytes(SESSION_BYTES)
        sources = {index: draw(index) for index in range(1, len(keys))}
        joint, context = None, dict.fromkeys(sources, b"")
        if terms is not None and terms.joint:
            joint, context = _joint_seeds(keys, roster, study, session, sources, terms)
        sessions = agree(layout, keys, roster, study, session, sources, context)
        return cls(
            roster=roster,
            keys=keys,
            sessions=sessions,
            sources=sources,
            study=study,
            session=session,
            joint=joint,
        )

    def aggregator(self, terms: RoundParameters) -> Aggregator:
        """The aggregator."""
        return Aggregator(
            keys=self.keys[0],
            roster=self.roster,
            terms=terms,
            study=self.study,
            session=self.session,
            seeds=self.joint.check if self.joint else None,
        )

    def masking(self, index: int, terms: RoundParameters, mask_stream: MaskStream) -> Masking:
        """A silo's side of the wire."""
        return Masking(
            keys=self.keys[index],
            roster=self.roster,
            terms=terms,
            session=self.sessions[index],
            mask_stream=mask_stream,
            source=self.sources[index],
        )

    def nodes(self, terms: RoundParameters, mask_stream: MaskStream) -> dict[int, ComputeNode]:
        """The compute nodes."""
        return {
            index: ComputeNode(
                keys=self.keys[index],
                roster=self.roster,
                terms=terms,
                session=self.sessions[index],
                mask_stream=mask_stream,
            )
            for index in self.roster.nodes
        }


def agree(
    layout: Layout,
    keys: Sequence[Keys],
    roster: Roster,
    study: bytes,
    session: bytes,
    sources: Mapping[int, SecureSource],
    context: Mapping[int, bytes],
) -> dict[int, Session]:
    """The set-up, all parties in turn (see `Agreement` for what each phase proves)."""
    # With joint seeds all silos compare what they saw, also those that share no honest node.
    comparing = roster.silos if not layout.nodes or any(context.values()) else ()
    parties = {
        index: Agreement(
            keys=keys[index],
            roster=roster,
            index=index,
            study=study,
            session=session,
            neighbours=partial(layout.neighbours, index),
            witnesses=comparing if index in comparing else (),
            source=source,
            context=context[index],
        )
        for index, source in sources.items()
    }
    if not layout.nodes:
        commits = [party.commit() for party in parties.values()]
        reveals = [party.reveal(commits) for party in parties.values()]
        for party in parties.values():
            party.learn_seed(reveals)
    sent = {index: party.contribute() for index, party in parties.items()}
    digests = bytes(32) + b"".join(sent_digest(sent[index]) for index in sorted(sent))
    inbox = _delivered(sent)
    confirmed = {i: party.confirm(inbox[i], digests) for i, party in parties.items()}
    checks = _delivered({index: found[1] for index, found in confirmed.items()})
    confirms = {index: found[0] for index, found in confirmed.items()}
    return {
        index: party.finish([confirms[i] for i in party.witnesses], checks[index])
        for index, party in parties.items()
    }


def _joint_seeds(
    keys: Sequence[Keys],
    roster: Roster,
    study: bytes,
    session: bytes,
    sources: Mapping[int, SecureSource],
    terms: RoundParameters,
) -> tuple[JointSeeds, dict[int, bytes]]:
    """The silos' commitments to their links, and what each party saw of them."""
    steps, attempts = terms.steps, terms.attempts
    check = SeedCheck(roster=roster, study=study, session=session, steps=steps, attempts=attempts)
    silos = {
        index: JointSeed(
            keys=keys[index],
            roster=roster,
            index=index,
            study=study,
            session=session,
            steps=steps,
            attempts=attempts,
            source=sources[index],
        )
        for index in roster.silos
    }
    anchors = [silo.anchor() for silo in silos.values()]
    seen = dict.fromkeys(sources, check.learn_anchors(anchors))
    seen |= {index: silo.learn_anchors(anchors) for index, silo in silos.items()}
    return JointSeeds(anchors=tuple(anchors), check=check, silos=silos), seen


def _delivered(sent: Mapping[int, Mapping[int, bytes]]) -> dict[int, list[bytes]]:
    """From what each party sends to whom, to what each party receives."""
    inbox: dict[int, list[bytes]] = {index: [] for index in sent}
    for frames in sent.values():
        for receiver, frame in frames.items():
            inbox[receiver].append(frame)
    return inbox
