"""A replay believes no frame that its sender has not signed, or that does not belong there."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.primitives.correlated_noise import UNIT
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.offer import SessionOffer
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
    payload = b"".join(numbers.model_parts(silos, ZEROS, row))
    return W.forge(0, Tag.MODEL, payload, round=row)


def begun(numbers: RoundParameters = W.round_parameters, course: Any = None) -> Replay:
    """A session of all four silos."""
    header = Header(study=STUDY, session=SESSION, purpose="training", number=0, roster=W.roster)
    one = Replay(header, numbers, course)
    one._take(kept(W.rolled(ALL)[0]))
    return one


def answer(asked: bytes, silo: int = 1) -> bytes:
    payload = bytes(W.round_parameters.masked_bytes) + unverified(asked).digest
    return W.forge(silo, Tag.MASKED, payload, round=unverified(asked).round, receiver=0)


def answered(replay: Replay, numbers: RoundParameters, silos: tuple[int, ...] = ALL) -> None:
    """The first round, answered by these silos."""
    replay._take(kept(asked := model(numbers, ALL)))
    for silo in silos:
        replay._take(kept(answer(asked, silo)))


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


def test_p25_who_was_not_in_the_nodes_total_does_not_come_back_either() -> None:
    w = world(4, nodes=2)
    numbers = replace(w.round_parameters, correlation=CORRELATED.correlation)
    header = Header(study=STUDY, session=SESSION, purpose="training", number=0, roster=w.roster)
    replay = Replay(header, numbers, None)
    replay._take(kept(w.rolled(ALL)[0]))
    asked = w.forge(0, Tag.MODEL, b"".join(numbers.model_parts(ALL, ZEROS, 1)), round=1)
    replay._take(kept(asked))
    for silo in (1, 2, 3):
        payload = bytes(numbers.masked_bytes) + unverified(asked).digest
        replay._take(kept(w.forge(silo, Tag.MASKED, payload, round=1, receiver=0)))
    request = numbers.named_payload((1, 2, 3), unverified(asked).digest)
    for node in w.roster.nodes:
        replay._take(kept(w.forge(0, Tag.REQUEST, request, round=1, receiver=node)))
    later = w.forge(0, Tag.MODEL, b"".join(numbers.model_parts(ALL, ZEROS, 2)), round=2)
    with refused("aggregator", "expected 4 to stay away"):
        replay._take(kept(later))


def offered(purpose: str = "training", sender: int = 0, **changed: Any) -> Kept:
    offer = SessionOffer.of(purpose, replace(W.round_parameters, **changed))
    return kept(W.forge(sender, Tag.OPEN, offer.payload()))


def test_an_offer_is_the_aggregators_for_the_sum_and_in_the_numbers_of_the_transcript() -> None:
    replay = begun()
    for one in (offered("evaluation"), offered(sender=1), offered(steps=8), offered(quorum=2)):
        with pytest.raises(ProtocolError, match="expected"):
            replay._take(one)
        assert replay._played.offer is None
    replay._take(offered())
    with refused("aggregator", "one OPEN, before all rounds"):
        replay._take(offered())


def test_no_offer_comes_after_a_round() -> None:
    replay = begun()
    replay._take(kept(model(W.round_parameters, ALL)))
    with refused("aggregator", "one OPEN, before all rounds"):
        replay._take(offered())


def test_a_frame_of_another_session_or_version_is_no_part_of_this_one() -> None:
    replay, one = begun(), kept(model(W.round_parameters, ALL))
    for changed in ({"session": bytes(16)}, {"study": bytes(32)}):
        with refused("", "of this session"):
            replay._take(replace(one, **changed))
    with pytest.raises(IntegrityError, match="found frames of 3"):
        replay._take(replace(one, words=b"\x03" + one.words[1:]))


def test_a_model_of_anybody_but_the_aggregator_opens_nothing() -> None:
    payload = b"".join(W.round_parameters.model_parts(ALL, ZEROS))
    for sender, receiver in ((1, 0xFFFFFFFF), (0, 1)):
        data = W.forge(sender, Tag.MODEL, payload, round=1, receiver=receiver)
        with pytest.raises(ProtocolError, match="from the aggregator to everybody"):
            begun()._take(kept(data))


def test_whoever_had_a_sum_asks_for_the_round_no_second_time() -> None:
    again = b"".join(W.round_parameters.model_parts(ALL, ZEROS))
    second = W.forge(0, Tag.MODEL, again, round=1, attempt=1)
    replay = begun()
    answered(replay, W.round_parameters)
    with refused("aggregator", "no further attempt at a round that all had answered"):
        replay._take(kept(second))
    spoilt = begun()
    answered(spoilt, W.round_parameters, ALL[:3])
    spoilt._take(kept(second))


def test_attempts_answers_and_sums_are_counted_as_they_were() -> None:
    replay = begun()
    answered(replay, W.round_parameters, ALL[:3])  # an answer is missing
    again = b"".join(W.round_parameters.model_parts(ALL, ZEROS))
    replay._take(kept(W.forge(0, Tag.MODEL, again, round=1, attempt=1)))  # nobody answers
    replay._take(kept(asked := model(W.round_parameters, ALL, 2)))
    for silo in ALL:
        replay._take(kept(answer(asked, silo)))
    assert replay._close()
    played = replay._played
    assert (played.begun, played.attempts, played.spoilt, played.unseen) == (3, 2, 1, 0)
    assert played.answers == {1: 2, 2: 2, 3: 2, 4: 1}
    assert {round: total.tolist() for round, total in played.sums.items()} == {2: [0.0] * 5}


def test_a_sum_of_vectors_that_were_not_kept_is_not_seen_here() -> None:
    replay = begun()
    replay._take(kept(asked := model(W.round_parameters, ALL)))
    for silo in ALL:
        one = kept(answer(asked, silo))
        replay._take(replace(one, payload=None) if silo == 1 else one)
    assert replay._close()
    assert (replay._played.unseen, replay._played.withheld, replay._played.sums) == (1, 1, {})


def test_p8_p9_no_sum_counts_whose_silos_drew_nothing_together() -> None:
    replay = begun(replace(W.round_parameters, batch=2, records=9))
    replay._seeds = mock.sentinel.seeds
    answered(replay, W.round_parameters)
    with refused("", "a link of every active silo"):
        replay._close()


def test_p8_p9_links_are_needed_also_where_no_vector_was_kept() -> None:
    """No sum is made again that would miss them."""
    replay = begun(replace(W.round_parameters, batch=2, records=9))
    replay._seeds = mock.sentinel.seeds
    replay._take(kept(asked := model(W.round_parameters, ALL)))
    for silo in ALL:
        replay._take(replace(kept(answer(asked, silo)), payload=None))
    with refused("", "a link of every active silo"):
        replay._close()


def test_a_course_is_shown_every_round_every_model_and_every_sum() -> None:
    course = mock.Mock()
    replay = begun(course=course)
    answered(replay, W.round_parameters)
    replay._close()
    names = [name for name, _, _ in course.method_calls]
    assert names == ["reach", "expect", "step"]
    assert course.reach.call_args.args == (1,)
    (sent, numbers), (round, total) = course.expect.call_args.args, course.step.call_args.args
    assert (sent.tolist(), numbers) == ([0.0, 0.0], W.round_parameters)
    assert (round, total.tolist()) == (1, [0.0] * 5)


RESULT = b"the model"
SIGNED = hashlib.sha256(RESULT).digest()


def shown(course: Any = None, *signers: int) -> Replay:
    """A session at whose beginning a RESULT was shown, and signed by these silos."""
    replay = begun(course=course or mock.Mock())
    replay._take(kept(W.forge(0, Tag.RESULT, RESULT)))
    for silo in signers:
        replay._take(kept(W.forge(silo, Tag.RESULT_SIGNED, SIGNED)))
    return replay


def test_a_result_is_the_aggregators_once_and_each_silos_word_is_for_that_one() -> None:
    with refused("silo-1", "one RESULT before all rounds"):
        begun(course=mock.Mock())._take(kept(W.forge(1, Tag.RESULT, RESULT)))
    with refused("silo-1", "one RESULT before all rounds"):  # there is none yet
        begun(course=mock.Mock())._take(kept(W.forge(1, Tag.RESULT_SIGNED, SIGNED)))
    course = mock.Mock()
    replay = shown(course, 1)
    course.begin_at.assert_called_once_with(RESULT)
    for sender, tag, payload in (
        (0, Tag.RESULT, RESULT),
        (1, Tag.RESULT_SIGNED, SIGNED),
        (2, Tag.RESULT_SIGNED, bytes(32)),
        (0, Tag.RESULT_SIGNED, SIGNED),
    ):
        with refused(W.roster.name(sender), "one RESULT before all rounds"):
            replay._take(kept(W.forge(sender, tag, payload)))
    assert replay._played.signers == {1}


def test_no_result_and_no_word_for_one_comes_after_a_round() -> None:
    for tag, sender, replay in (
        (Tag.RESULT, 0, begun(course=mock.Mock())),
        (Tag.RESULT_SIGNED, 2, shown(None, 1, 3, 4)),
    ):
        replay._take(kept(model(W.round_parameters, (1, 3, 4))))
        payload = RESULT if sender == 0 else SIGNED
        with refused(W.roster.name(sender), "one RESULT before all rounds"):
            replay._take(kept(W.forge(sender, tag, payload)))


def test_no_model_is_for_a_silo_that_has_not_signed_the_result() -> None:
    asked = kept(model(W.round_parameters, ALL))
    for signers in ((), (1,), (1, 2, 4)):
        with refused("aggregator", "for silos that had signed the RESULT"):
            shown(None, *signers)._take(asked)
    shown(None, *ALL)._take(asked)
