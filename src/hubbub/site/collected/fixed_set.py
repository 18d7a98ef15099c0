"""Whose deposits are summed: a set with the digest of exactly these deposits, signed once.

A SET names silos by a bitmap, so that each is in it once, and gives the digest of the DEPOSIT of
each. All that nodes promise and tell is for the digest of one SET.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.site.collected.collection_opening import Opening
from hubbub.site.collected.deposit import ReadDeposit, read_deposit


@dataclass(frozen=True, kw_only=True)
class FixedSet:
    """A SET that was verified.

    Args:
        digest: of the frame, which stands for all of it.
        deposits: by silo, the digest of its DEPOSIT.
    """

    digest: bytes
    deposits: Mapping[int, bytes] = field(repr=False)

    @classmethod
    def read(cls, opening: Opening, data: bytes, numbers: RoundParameters) -> FixedSet:
        """The set in a frame.

        Raises:
            ProtocolError: it is not the aggregator's, of another opening, below the quorum (P3), or
                not as long as its silos say.
        """
        frame = opening.place.parsed(data, Tag.SET, 0)
        sender, payload = opening.place.roster.name(0), bytes(frame.payload)
        bits = DIGEST_BYTES + (numbers.silos + 7) // 8
        if payload[:DIGEST_BYTES] != opening.q:
            raise ProtocolError(
                "expected a SET of this opening, got one of another: the parties were shown "
                "different things",
                culprit=sender,
            )
        everybody = frozenset(opening.place.roster.silos)
        silos = sorted(numbers.read_silos(payload[DIGEST_BYTES:bits], sender, everybody))
        if len(payload) != bits + DIGEST_BYTES * len(silos):
            raise ProtocolError(
                f"expected the digests of {len(silos)} deposits in a SET, got others",
                culprit=sender,
            )
        starts = range(bits, len(payload), DIGEST_BYTES)
        digests = (payload[start : start + DIGEST_BYTES] for start in starts)
        return cls(digest=frame.digest, deposits=dict(zip(silos, digests, strict=True)))

    def of(self, opening: Opening, deposits: Sequence[bytes]) -> dict[int, ReadDeposit]:
        """The deposits of just this set, by silo.

        Raises:
            ProtocolError: one is missing, doubled, another, or for another opening.
        """
        deposits_read: dict[int, ReadDeposit] = {}
        for data in deposits:
            deposit = read_deposit(opening.place, data)
            if deposit.silo in deposits_read or self.deposits.get(deposit.silo) != deposit.digest:
                raise ProtocolError(
                    "expected the deposits of the SET, each once, got another or one twice",
                    culprit="relay",
                )
            check_opening(opening, deposit)
            deposits_read[deposit.silo] = deposit
        if len(deposits_read) < len(self.deposits):
            raise ProtocolError(
                f"expected the {len(self.deposits)} deposits of the SET, got {len(deposits_read)}",
                culprit="relay",
            )
        return deposits_read


def fixed_set(
    opening: Opening, keys: Keys, deposits: Mapping[int, bytes], numbers: RoundParameters
) -> bytes:
    """The aggregator's SET of these deposits, by silo the digest of its DEPOSIT."""
    digests = b"".join(deposits[silo] for silo in sorted(deposits))
    payload = opening.q + numbers.bitmap(deposits) + digests
    return opening.place.frame(Tag.SET, 0, payload).sealed(keys)


def check_opening(opening: Opening, deposit: ReadDeposit) -> None:
    """Refuse a deposit for another opening.

    Raises:
        ProtocolError: it is for another; the silo was shown other frames, or lies.
    """
    if deposit.q != opening.q:
        raise ProtocolError(
            f"expected a deposit of {opening.place.roster.name(deposit.silo)} for this opening, "
            "got one for another: it was shown other frames",
            culprit="relay",
        )
