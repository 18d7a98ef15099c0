"""The bytes of a networked study, to the byte: what each kind of party receives and sends.

They follow from the plan, from `wire.py` and from the formats of what frames travel in, whose sizes
the layers that write them tell. Counted is a session of the training that nobody misses and in
which no silo has paid for an attempt before. This file knows no seconds and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from hubbub.errors import StudyError
from hubbub.planning.pairing import WITHOUT_REPLACEMENT, attempts_of_list
from hubbub.planning.study_plan import Plan
from hubbub.protocol.agreement.joint_seed import LINK_BYTES
from hubbub.protocol.agreement.pair_secrets import CHECK_BYTES, CONTRIBUTION_BYTES, SHARE_SEAL_BYTES
from hubbub.protocol.identity import SEAL_OVERHEAD
from hubbub.protocol.token_lists.list_context import statement_bytes
from hubbub.protocol.token_lists.onion_layers import KEY_BYTES, NAME_BYTES, form_bytes
from hubbub.protocol.wire import DIGEST_BYTES, OVERHEAD

_FLOAT, _SHORT = 4, 2


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Bytes that messages are packed in.

    Args:
        request: of a request without parts.
        answer: of an answer without parts.
        part: that each frame in one of them adds.
        opening: of the payload that opens a session.
        silo_ready, node_ready: of what a party says to it.
    """

    request: int
    answer: int
    part: int
    opening: int
    silo_ready: int
    node_ready: int

    def framed(self, payload: int) -> int:
        """A frame with this payload as a part."""
        return self.part + OVERHEAD + payload


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Bytes that a party receives and sends."""

    received: int
    sent: int

    def __add__(self, other: Flow) -> Flow:
        return Flow(received=self.received + other.received, sent=self.sent + other.sent)

    def times(self, count: int) -> Flow:
        """Of so many parties together."""
        return Flow(received=count * self.received, sent=count * self.sent)

    def turned(self) -> Flow:
        """The same seen from the other end."""
        return Flow(received=self.sent, sent=self.received)


NOTHING = Flow(received=0, sent=0)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large a study is: its parties, who shares secrets with whom, its vectors.

    Args:
        silos: how many.
        users: of every compute node, the silos that use it; empty with pairwise masks.
        neighbours: with how many a silo shares masks.
        joint: whether attempts have joint seeds.
        full: whether silos send full shares.
        parameters: of the model.
        numbers: in a sum.
        model: bytes of a model on its way down.
        vector: bytes of a vector of residues.
        counts: records of each silo, where batches are joint.
        lists: how many lists of tokens the whole study takes, if no session is lost.
    """

    silos: int
    users: Sequence[int]
    neighbours: int
    joint: bool
    full: bool
    parameters: int
    numbers: int
    model: int
    vector: int
    counts: Sequence[int] = ()
    lists: int = 0

    @classmethod
    def of(cls, plan: Plan) -> Sizes:
        """The sizes that follow from a plan.

        Raises:
            StudyError: the study's batches are joint and it does not say how many records each
                silo has, or the model's size is not known.
        """
        training, parties = plan.study.training, plan.study.parties
        listed = training.sampling == WITHOUT_REPLACEMENT
        if listed and not plan.study.data.counts:
            raise StudyError(
                'expected data.counts with training.sampling = "without-replacement" where parties '
                "run apart, got none; state how many records each silo has"
            )
        if plan.dimension is None or plan.numbers is None:
            raise StudyError(
                "expected a model whose size is known, got one that is not; state model.inputs, "
                "and install hubbub[learn] where the model must be built for it"
            )
        nodes, each = parties.compute_nodes, plan.nodes_per_silo
        return cls(
            silos=parties.silos,
            users=users_of(parties.silos, nodes, each),
            neighbours=each if nodes else plan.degree,
            joint=bool(training.projection) or listed,
            full=parties.shares == "full",
            parameters=plan.dimension,
            numbers=plan.numbers,
            model=plan.dimension * (_SHORT if training.download == "bfloat16" else _FLOAT),
            vector=plan.numbers * plan.word_bits // 8,
            counts=plan.study.data.counts if listed else (),
            lists=ceil(training.steps / attempts_of_list(plan.study)) if listed else 0,
        )

    @property
    def pairwise(self) -> bool:
        """Whether silos mask with each other."""
        return not self.users

    @property
    def parties(self) -> int:
        """Everybody but the aggregator."""
        return self.silos + len(self.users)

    @property
    def bitmap(self) -> int:
        """Bytes of a set of silos."""
        return ceil(self.silos / 8)

    @property
    def copies(self) -> int:
        """Vectors that a silo sends."""
        return self.neighbours if self.full else 1


def users_of(silos: int, nodes: int, each: int) -> list[int]:
    """How many silos use each compute node, where silo k uses `each` nodes from number k on."""
    if not nodes:
        return []
    turns, rest = divmod(silos, nodes)
    changes = [0] * (2 * nodes + 1)
    for first in range(rest):
        changes[first] += 1
        changes[first + each] -= 1
    using = list(accumulate(changes))
    return [turns * each + using[node] + using[node + nodes] for node in range(nodes)]


def silo_setup(sizes: Sizes, formats: Formats) -> Flow:
    """A session's set-up at a silo."""
    witnesses = sizes.silos - 1 if sizes.pairwise else sizes.neighbours
    if sizes.joint and not sizes.pairwise:
        witnesses += sizes.silos - 1
    flow = _agreement(sizes, formats, sizes.neighbours, witnesses)
    own = formats.framed(formats.silo_ready)
    if sizes.joint:
        own += formats.framed(LINK_BYTES)
    if not sizes.pairwise:
        return flow + Flow(received=0, sent=own)
    # The joint seed of the mask graph is committed to, and revealed.
    public = formats.framed(DIGEST_BYTES)
    received = 2 * (formats.request + sizes.silos * public)
    return flow + Flow(received=received, sent=own + 2 * (formats.answer + public))


def node_setup(sizes: Sizes, formats: Formats, users: int) -> Flow:
    """A session's set-up at a compute node that so many silos use."""
    flow = _agreement(sizes, formats, users, users)
    return flow + Flow(received=0, sent=formats.framed(formats.node_ready))


def _agreement(sizes: Sizes, formats: Formats, neighbours: int, witnesses: int) -> Flow:
    """What every party does: PING, OPEN, CONTRIBUTE, CONFIRM, FINISH."""
    calls = 5
    secrets = neighbours * (
        formats.framed(SEAL_OVERHEAD + CONTRIBUTION_BYTES) + formats.framed(CHECK_BYTES)
    )
    confirm = formats.framed(DIGEST_BYTES)
    anchors = sizes.silos * formats.framed(LINK_BYTES) if sizes.joint else 0
    digests = formats.part + DIGEST_BYTES * (sizes.parties + 1)
    shown = formats.framed(formats.opening) + anchors + digests + witnesses * confirm
    return Flow(
        received=calls * formats.request + shown + secrets,
        sent=calls * formats.answer + secrets + confirm,
    )


def silo_step(sizes: Sizes, formats: Formats) -> Flow:
    """A step at a silo: the model comes, a masked vector goes."""
    received = formats.request + formats.framed(sizes.bitmap + sizes.model)
    sent = formats.answer + formats.framed((0 if sizes.full else sizes.vector) + DIGEST_BYTES)
    if sizes.full:
        sent += sizes.copies * formats.framed(sizes.vector + SHARE_SEAL_BYTES)
    if sizes.joint:
        received += formats.request + sizes.silos * formats.framed(LINK_BYTES)
        sent += formats.answer + formats.framed(LINK_BYTES)
    return Flow(received=received, sent=sent)


def node_step(sizes: Sizes, formats: Formats, users: int) -> Flow:
    """A step at a compute node that so many silos use: who arrived comes, a total goes."""
    received = formats.request + formats.framed(sizes.bitmap)
    if sizes.full:
        received += users * formats.framed(sizes.vector + SHARE_SEAL_BYTES)
    return Flow(received=received, sent=formats.answer + formats.framed(sizes.vector))


def silo_list(sizes: Sizes, formats: Formats, silo: int) -> Flow:
    """One list of tokens at a silo, numbered from 1 in the order in which silos mix.

    Everybody is shown all names in every step; the forms go from one mixer to the next.
    """
    silos, whole, own = sizes.silos, sum(sizes.counts), sizes.counts[silo - 1]
    calls = silos + 6  # LIST, WRAP, SHOW, MIX, TAKE, and LOOK after every step and before them

    def once(each: int) -> int:
        """A frame with so many bytes for each record."""
        return formats.framed(each * whole)

    def of_all(each: int) -> int:
        """One such frame of every silo about its own records."""
        return sum(formats.framed(each * count) for count in sizes.counts)

    key, repeats = formats.framed(KEY_BYTES), silos * statement_bytes()
    commit = formats.framed(DIGEST_BYTES + repeats)
    seen = formats.framed(repeats) + silos * formats.framed(statement_bytes())
    names = of_all(NAME_BYTES) + silos * repeats + silos * once(NAME_BYTES)
    before, after = form_bytes(silos - silo + 1), form_bytes(silos - silo)
    forms = of_all(before) if silo == 1 else once(before)
    shown = formats.framed(NAME_BYTES * own + repeats) + formats.framed(form_bytes(silos) * own)
    mixed = once(NAME_BYTES) + (once(after) if silo < silos else 0)
    return Flow(
        received=calls * formats.request + silos * (key + commit + seen) + names + forms,
        sent=calls * formats.answer + key + commit + shown + seen + mixed,
    )


def lists_at(sizes: Sizes, formats: Formats) -> list[Flow]:
    """One list of tokens, silo by silo; nothing where there are none."""
    return [silo_list(sizes, formats, silo) for silo in range(1, 1 + len(sizes.counts))]
