"""Lists that nobody cheats at: what everybody has in the end, progress, all cores."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.shuffled_list import OwnedTokens, shuffled_list
from hypothesis import given, settings
from hypothesis import strategies as st

import hubbub
from hubbub.core.errors import HubbubError, StudyError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.token_lists import onion_layers
from hubbub.core.protocol.token_lists.onion_layers import Done, Peel, Wrap, in_this_thread
from hubbub.core.protocol.token_lists.process_pool import process_pool as opened_pool
from sampling.silos import COUNTS, KEYS, ROSTER, SESSION, STUDY, Play, input_of, payload_of

# The module, whose name its function has too.
MODULE = sys.modules["hubbub.core.protocol.token_lists.process_pool"]


def whole(made: OwnedTokens) -> list[int]:
    """All places of all silos' tokens."""
    return sorted(place for places in made.positions.values() for place in places.tolist())


def test_every_record_has_one_place_and_every_place_one_record() -> None:
    made = shuffled_list(KEYS, ROSTER, np.array(COUNTS), study=STUDY)
    assert whole(made) == list(range(sum(COUNTS)))
    assert [made.positions[i].size for i in ROSTER.silos] == list(COUNTS)
    assert made.tokens.size == sum(COUNTS)


def test_all_parties_as_machines_over_bytes_have_the_same_list() -> None:
    owned = Play().make()
    assert len({one.tokens.digest for one in owned.values()}) == 1
    places = [place for one in owned.values() for place in one.positions.tolist()]
    assert sorted(places) == list(range(sum(COUNTS)))


def test_p9_with_its_list_a_silo_forgets_by_what_its_shuffle_could_be_undone() -> None:
    play = Play()
    keys = {i: one._private for i, one in play.mixers.items()}
    play.make()
    for i, one in play.mixers.items():
        assert keys[i]
        held = [value for value in vars(one).values() if isinstance(value, bytes)]
        assert keys[i] not in held
        assert not one._own


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(0, 6), min_size=2, max_size=4).filter(any),
    number=st.integers(1, 2**32 - 1),
)
def test_any_numbers_of_records_and_silos_make_a_list(counts: list[int], number: int) -> None:
    roster = Roster(parties=ROSTER.parties[: 1 + len(counts)])
    made = shuffled_list(KEYS, roster, counts, study=STUDY, number=number)
    assert whole(made) == list(range(sum(counts)))
    assert [places.size for places in made.positions.values()] == counts


def test_two_lists_of_one_session_have_nothing_in_common() -> None:
    one, other = (
        shuffled_list(KEYS, ROSTER, COUNTS, study=STUDY, session=SESSION, number=number)
        for number in (1, 2)
    )
    names = [set(onion_layers.names_in(made.tokens.names).tolist()) for made in (one, other)]
    assert not names[0] & names[1]
    assert one.tokens.digest != other.tokens.digest


def test_all_forms_of_a_list_have_one_length_and_no_form_is_in_two_lists() -> None:
    play = Play()
    play.make()
    for step, frames in play.forms.items():
        size = onion_layers.form_bytes(4 - step)
        assert sum(len(payload_of(frame)) for frame in frames) == size * sum(COUNTS)
    names = [input_of(frame)[0] for frame in play.names[0]]
    names += [payload_of(frame) for frames in play.names[1:] for frame in frames]
    every = np.concatenate([onion_layers.names_in(one) for one in names])
    assert np.unique(every).size == every.size == 5 * sum(COUNTS)


def test_nothing_secret_is_in_the_texts_of_a_mixer_or_its_results() -> None:
    play = Play()
    owned = play.make()
    texts = [*map(repr, play.mixers.values()), *map(repr, owned.values())]
    assert not any("positions" in text or "_private" in text for text in texts)
    job = Wrap(tokens=b"secret", publics=(), places=())
    assert "secret" not in repr(job)
    assert "secret" not in repr(Peel(private=b"secret", place=b"", forms=b"", size=1))


# Work ----------------------------------------------------------------------------------------


def test_progress_never_falls_and_ends_at_the_whole() -> None:
    seen: list[tuple[int, int]] = []
    shuffled_list(
        KEYS, ROSTER, COUNTS, study=STUDY, progress=lambda done, all_: seen.append((done, all_))
    )
    assert seen == sorted(seen)
    assert seen[-1] == (72, 72)


def test_processes_and_this_thread_do_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(MODULE, "cores", lambda: 2)
    private, watched = onion_layers.fresh_private(), []
    places = (b"a" * 32, b"b" * 32)
    tokens = secrets.token_bytes(16 * 150)
    with opened_pool(1, watched.append) as executor:
        forms, names = onion_layers.wrapped(
            tokens, [onion_layers.public_of(private)], places, executor
        )
        garbled = forms.copy()
        garbled[[3, 140]] = 0
        size = onion_layers.form_bytes(1)
        args = (private, places[1], garbled.tobytes(), size)
        near, far = (onion_layers.peeled(*args, how) for how in (executor, in_this_thread))
        seals = np.array_split(np.arange(len(forms)), 3)
        jobs = [
            Peel(private=private, place=places[1], forms=forms[part].tobytes(), size=size)
            for part in seals
        ]
        assert b"".join(done.forms for done in executor(jobs)) == tokens
    assert near == far
    assert near.bad == (3, 140)
    assert onion_layers.named(places[1], tokens, 16) == names[1].tobytes()
    assert sum(watched) == 150 * 3


def test_a_worker_finds_the_hubbub_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE.subprocess, "Popen", lambda *_, env, **__: env)
    first = MODULE._started()["PYTHONPATH"].split(os.pathsep)[0]
    assert Path(first) == Path(hubbub.__file__).parents[1]


def test_a_worker_that_dies_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(MODULE, "cores", lambda: 2)
    started, begin = [], MODULE._started
    monkeypatch.setattr(MODULE, "_started", lambda: started.append(begin()) or started[-1])
    job = Wrap(tokens=bytes(16), publics=(), places=(bytes(32),))
    with opened_pool(1) as executor:
        assert len(list(executor([job] * 5))) == 5
        for process in started:
            process.kill()
            process.wait()
        with pytest.raises(HubbubError, match="it ended"):
            list(executor([job] * 5))


@given(st.binary(max_size=64), st.binary(max_size=64), st.lists(st.integers(0, 1000), max_size=5))
def test_what_is_done_survives_the_way_between_processes(
    forms: bytes, names: bytes, bad: list[int]
) -> None:
    done = Done(forms=forms, names=names, bad=tuple(bad))
    assert Done.unpacked(done.packed()) == done


@given(
    st.binary(max_size=64),
    st.lists(st.binary(min_size=32, max_size=32), max_size=3),
    st.lists(st.binary(min_size=32, max_size=32), max_size=3),
)
def test_jobs_survive_the_way_between_processes(
    tokens: bytes, publics: list[bytes], places: list[bytes]
) -> None:
    wrap = Wrap(tokens=tokens, publics=tuple(publics), places=tuple(places))
    assert onion_layers.unpacked_job(wrap.packed()) == wrap
    peel = Peel(private=tokens, place=tokens, forms=tokens, size=64)
    assert onion_layers.unpacked_job(peel.packed()) == peel


def test_keys_of_every_silo_are_needed() -> None:
    with pytest.raises(StudyError, match="got none of silo-3"):
        shuffled_list([*KEYS[:3], KEYS[4]], ROSTER, COUNTS, study=STUDY)


def test_names_that_ascend_are_each_there_once() -> None:
    first, second = (bytes([number]) * onion_layers.NAME_BYTES for number in (1, 2))
    cases = {first + second: True, second + first: False, first + first: False, first: True}
    for names, ascending in cases.items():
        assert onion_layers.is_ascending(onion_layers.names_in(names)) is ascending
