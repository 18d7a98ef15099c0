"""A replay believes no frame that its sender has not signed, or that does not belong there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.correlated_noise import UNIT
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.verification.replay.replayed_session import Replay
from hubbub.core.verification.transcript.frame_records import Header, Kept
from protocol.parties import SESSION, STUDY, flipped, refused, world

W = world(4, quorum=3)
ALL, ZEROS = (1, 2, 3, 4), np.zeros(2, dtype=np.float32)
CORRELATED = replace(W.round_parameters, correlation=(UNIT // 2, UNIT // 4), announced_shares=0)


def kept(data: bytes) -> Kept:
    """A frame as a transcript has it."""
    frame = unverified(data)
    return Kept(
        tag=frame.tag,
        study=frame.study,
        session=frame.session,
        round=frame.round,
        attempt=frame.attempt,
        sender=frame.sender,
        receiver=frame.receiver,
        size=len(frame.payload),
        payload=bytes(frame.payload),
        short=frame.short,
        digest=frame._hash,
        signature=data[-SIGNATURE_BYTES:],
        words=data[:HEADER_BYTES],
        head=b"",
    )


def model(numbers: RoundParameters, silos: tuple[int, ...], row: int = 1) -> bytes:
    payload = numbers.model_payload(silos, ZEROS, row)
    return W.forge(0, Tag.MODEL, payload, round=row)


def begun(numbers: RoundParameters = W.round_parameters) -> Replay:
    """A session of all four silos."""
    header = Header(study=STUDY, session=SESSION, purpose="training", number=0, roster=W.roster)
    one = Replay(header, numbers, None)
    one._take(kept(W.rolled(ALL)[0]))
    return one


def answer(asked: bytes) -> bytes:
    payload = bytes(W.round_parameters.masked_bytes) + unverified(asked).digest
    return W.forge(1, Tag.MASKED, payload, round=1, receiver=0)


def test_p4_a_frame_with_a_false_signature_is_not_believed() -> None:
    replay, asked = begun(), model(W.round_parameters, ALL)
    for data in (asked, answer(asked)):
        with refused("", "false signature"):
            replay._take(kept(flipped(data, len(data) - 1)))
        replay._take(kept(data))


def test_p4_an_answer_to_another_model_names_the_aggregator() -> None:
    replay = begun()
    replay._take(kept(model(W.round_parameters, ALL)))
    with refused("aggregator", "it was shown another"):
        replay._take(kept(answer(model(W.round_parameters, (1, 2, 3)))))


def test_p29_a_session_of_fewer_than_the_quorum_is_none() -> None:
    replay = begun()
    replay._roll_call._roll = None
    with refused("aggregator", "at least 3 silos in a session"):
        replay._take(kept(W.rolled((1, 2))[0]))


@pytest.mark.parametrize(("row", "silos"), [(2, ALL), (3, (1, 2, 3))])
def test_p25_nobody_comes_back_in_a_replay_and_no_attempt_is_left_out(
    row: int, silos: tuple[int, ...]
) -> None:
    replay = begun(CORRELATED)
    replay._take(kept(model(CORRELATED, (1, 2, 3))))
    with pytest.raises(ProtocolError, match=r"to stay away|expected attempt 2"):
        replay._take(kept(model(CORRELATED, silos, row)))
