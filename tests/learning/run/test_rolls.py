"""What `hubbub verify` makes of sessions without everybody, and of who bends them (P29).

Transcripts of one attempt with true signatures, written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from hubbub.core.errors import IntegrityError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.verification.replay.course import Course
from hubbub.core.verification.replay.replayed_session import Replay, ReplayedSession
from hubbub.core.verification.transcript.frame_records import path_of, read_header
from hubbub.core.verification.transcript.writer import Transcript
from protocol.parties import DIMENSION, SESSION, STUDY, World, set_up, world

HERE = (1, 2, 4)
W = world(5, quorum=3)


def answered(w: World, silos: Sequence[int], named: Sequence[int]) -> list[bytes]:
    """A MODEL that names some silos, and their answers as their session has them."""
    sessions = set_up(w, silos=silos)
    model = w.model(named)
    frames = [model]
    for silo in named:
        masking = w.masking(sessions[silo])
        unit = np.eye(DIMENSION, dtype=np.int64)[silo - 1]
        frames.append(masking.masked(masking.accept(model), ring.to_residues(unit, 32)))
    return frames


def played(
    folder: Path, frames: Sequence[bytes], w: World = W, course: Course | None = None
) -> ReplayedSession:
    """The transcript with these frames, played again."""
    given = {"study": STUDY, "session": SESSION, "roster": w.roster}
    numbers = w.round_parameters
    with Transcript(
        folder, **given, full=True, purpose="training", round_parameters=numbers
    ) as transcript:
        for frame in frames:
            transcript.keep(frame)
        transcript.seal()
    path = path_of(folder, SESSION)
    return Replay(read_header(path), numbers, course).play(path)


def test_a_session_of_some_is_played_and_its_sum_is_theirs(tmp_path: Path) -> None:
    found = played(tmp_path, [W.rolled(HERE)[0], *answered(W, HERE, HERE)])
    assert found.silos == set(HERE)
    assert found.sums[1].tolist() == [1, 1, 0, 1, 0]


def test_without_a_roll_there_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="expected a ROLL before this"):
        played(tmp_path, answered(W, HERE, HERE))


def test_a_model_that_names_an_absent_silo_does_not_fit(tmp_path: Path) -> None:
    """The worst attack: the quorum is padded, and fewer noise shares are in the sum."""
    with pytest.raises(IntegrityError, match="the silos 3, which did not take part"):
        played(tmp_path, [W.rolled(HERE)[0], W.model((1, 2, 3))])


def test_two_rolls_do_not_fit(tmp_path: Path) -> None:
    rolls = [W.rolled(HERE)[0], W.rolled((1, 2, 3, 4))[0]]
    with pytest.raises(IntegrityError, match="one ROLL in a session, got a second"):
        played(tmp_path, [*rolls, *answered(W, HERE, HERE)])


def test_a_roll_of_too_few_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="at least 3 silos in a session, got 2"):
        played(tmp_path, [W.rolled((1, 2))[0]])


def test_a_roll_of_a_silo_does_not_fit(tmp_path: Path) -> None:
    forged = W.forge(2, Tag.ROLL, W.round_parameters.bitmap(HERE))
    with pytest.raises(IntegrityError, match="a ROLL of the aggregator"):
        played(tmp_path, [forged])


def test_anchors_of_outsiders_do_not_fit(tmp_path: Path) -> None:
    w = world(5, quorum=3, joint=True)
    anchors = [w.seeds(index).anchor() for index in (1, 2, 3, 4)]
    with pytest.raises(IntegrityError, match="from silo-3"):
        played(tmp_path, [w.rolled(HERE)[0], *anchors, w.model(HERE)], w)


def test_correlated_noise_has_an_absent_silo_in_none_of_the_sessions_sums(tmp_path: Path) -> None:
    w = world(5, quorum=3, correlation=(60_000, -20_000))
    models = [w.model(HERE, row=1), w.model((1, 2, 3, 4), round=2, row=2)]
    with pytest.raises(IntegrityError, match="the silos 3, which did not take part"):
        played(tmp_path, [w.rolled(HERE)[0], *models], w)


@pytest.mark.parametrize("signers", [(1, 2), (1, 2, 3), HERE], ids=str)
def test_p32_a_model_after_a_result_is_for_those_who_signed_it_alone(
    tmp_path: Path, signers: tuple[int, ...]
) -> None:
    """As many words of others are no substitute for one's own."""
    silos, model = (1, 2, 3, 4), b"a model"
    words = [W.forge(one, Tag.RESULT_SIGNED, sha256(model).digest()) for one in signers]
    shown = [W.rolled(silos)[0], W.forge(0, Tag.RESULT, model), *words]
    frames = [*shown, *answered(W, silos, HERE)]
    if signers == HERE:
        assert played(tmp_path, frames, course=mock.Mock()).signers == set(HERE)
    else:
        with pytest.raises(IntegrityError, match="for silos that had signed the RESULT"):
            played(tmp_path, frames, course=mock.Mock())
