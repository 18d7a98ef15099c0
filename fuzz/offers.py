"""What opens a session or a collection: ROLLs, and the words of OPEN, COLLECT and RECEIPT.

The first byte chooses. ROLLs are changed and signed anew; laws: a `ProtocolError`, or the silos of
a session, of the quorum at least, all of the study and the receiver among them; one ROLL is taken,
and a refusal changes nothing. Words are bytes; laws: a `ProtocolError` that blames their sender, or
words that survive being written anew, and that fit the receiver's own numbers or are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fuzz.frames import edited
from fuzz.reading import Reader, hold
from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import RollCall
from hubbub.core.session.offer import RefusedError, SessionOffer
from hubbub.core.tabular.records import Standardisation
from hubbub.site.collected.collection_request import until_of
from hubbub.site.collected.party_sides import said_in
from protocol.parties import world

_WORLD = world(4, quorum=3)
_QUORUM, _RECEIVER, _MOST_ROLLS = 3, 1, 6
_ROLL, _OFFER, _UNTIL, _RECEIPT = range(4)
_SENDER = "aggregator"


def check(data: bytes) -> None:
    """One input."""
    kind, rest = (data[0] % 4, data[1:]) if data else (_ROLL, b"")
    if kind == _ROLL:
        _rolls(Reader(rest))
        return
    read: dict[int, Callable[[bytes], None]] = {
        _OFFER: _offer,
        _UNTIL: _until,
        _RECEIPT: _receipt,
    }
    try:
        read[kind](rest)
    except ProtocolError as error:
        hold(error.culprit == _SENDER, f"{error.culprit} is blamed for another's words")


def seeds() -> list[bytes]:
    """Honest ROLLs and words, and some that are changed a little."""
    numbers = _WORLD.round_parameters
    scaling = Standardisation.of_plain({"shift": [0.5, -1], "scale": [1, 2.5]})
    words = [
        SessionOffer.of("training", numbers).payload(),
        SessionOffer.of("statistics", numbers, scaling, at=7).payload(),
    ]
    until = [json.dumps(json.loads(one) | {"until": 1798156800}).encode() for one in words]
    receipts = [
        json.dumps({"until": 1, "come": 2, "quorum": 2, "taken": taken}).encode()
        for taken in ("", "ab" * 32)
    ]
    honest = [(_OFFER, words), (_UNTIL, until), (_RECEIPT, receipts)]
    rolls = [bytes([_ROLL, bits, 0, bits ^ other, 0]) for bits in (15, 7, 11) for other in (0, 8)]
    changed = [bytes([_ROLL, 15, 1, edit, 3, 7, 1]) for edit in range(14)]
    strange = [b"", b"[]", b"{}", b"null", b"[" * 3000, b'{"until": 1e999, "come": true}', b"\xff"]
    return [
        *rolls,
        *changed,
        *(bytes([kind]) + one for kind, each in honest for one in each),
        *(bytes([kind]) + one[:-9] for kind, each in honest for one in each),
        *(bytes([kind]) + one for kind, _ in honest for one in strange),
    ]


def _rolls(reader: Reader) -> None:
    """A few ROLLs, one after the other, at one silo."""
    call = RollCall(_WORLD.channel(), quorum=_QUORUM, index=_RECEIVER)
    taken = None
    for _ in range(_MOST_ROLLS):
        if not reader.more:
            return
        bits = reader.number()
        silos = [silo for silo in _WORLD.roster.silos if bits >> (silo - 1) & 1] or [1]
        frame = edited(reader, _WORLD, _WORLD.rolled(silos)[0])
        try:
            roll = call.take(frame)
        except ProtocolError:
            hold(_known(call) == taken, "a refusal leaves a trace")
            continue
        hold(taken is None, "two ROLLs of one session")
        hold(len(roll.silos) >= _QUORUM, "a ROLL below the quorum")
        hold(roll.silos <= {*_WORLD.roster.silos}, "a silo that the study has not")
        hold(_RECEIVER in roll.silos, "a ROLL without its receiver")
        taken = roll


def _known(call: RollCall) -> object:
    """What the receiver has taken."""
    try:
        return call.roll
    except ProtocolError:
        return None


def _offer(words: bytes) -> None:
    offer = SessionOffer.read(words, _SENDER)
    again = SessionOffer.read(offer.payload(), _SENDER)
    hold(again.payload() == offer.payload(), "other words than were read")
    try:
        offer.check(_WORLD.round_parameters)
    except RefusedError as error:
        hold(error.why in ("plan", "version"), "another reason than its numbers")


def _until(words: bytes) -> None:
    hold(type(until_of(words, _SENDER)) is int, "no time")


def _receipt(words: bytes) -> None:
    said = said_in(words, _SENDER)
    hold(set(said) == {"until", "come", "quorum", "taken"}, "other words than a RECEIPT has")
    hold(said_in(json.dumps(said).encode(), _SENDER) == said, "other words than were read")
