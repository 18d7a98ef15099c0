"""Whoever takes frames of joint seeds or of a shuffled token list refuses what is wrong.

Whatever arrives, the only error is a `ProtocolError` that names somebody; nothing hangs, and
nothing is remembered of what was refused. The laws of a whole session are those of the fuzzer.
"""

from __future__ import annotations

import gc
import importlib
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement import joint_seed
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.token_list import ListContext
from protocol.parties import SESSION, STUDY, world

W = world(3, quorum=2, joint=True)
NAMES = {"relay", *(party.name for party in W.roster.parties)}
TIME = (3, 1)


@pytest.fixture(scope="module")
def targets() -> Iterator[dict[str, ModuleType]]:
    """The fuzzer's targets, imported from the root of the sources."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).resolve().parents[3])
        yield {name: importlib.import_module(f"fuzz.{name}") for name in ("joint", "mixing")}


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=300))
def test_no_session_of_joint_seeds_breaks_a_law(
    targets: dict[str, ModuleType], data: bytes
) -> None:
    targets["joint"].check(data)


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=120))
def test_no_making_of_a_list_breaks_a_law(targets: dict[str, ModuleType], data: bytes) -> None:
    targets["mixing"].check(data)


# Any frame at any receiver ---------------------------------------------------------------------

SEEDS = {index: W.seeds(index) for index in W.roster.silos}
ANCHORS = [one.anchor() for one in SEEDS.values()]
for _one in SEEDS.values():
    _one.learn_anchors(ANCHORS)
LINKS = [one.reveal(*TIME) for one in SEEDS.values()]


def mixers() -> dict[int, Mixer]:
    place = ListContext(roster=W.roster, study=STUDY, session=SESSION, number=0)
    return {
        i: Mixer(keys=W.keys[i], index=i, list_context=place, counts=(1, 1, 1))
        for i in W.roster.silos
    }


def checker() -> SeedCheck:
    check = W.seed_check()
    check.learn_anchors(ANCHORS)
    return check


def drawer() -> JointSeed:
    """Silo 1, which has committed to nothing that anybody has seen."""
    return W.seeds(1)


def committing() -> Mixer:
    one = mixers()[1]
    one.key()
    return one


def submitting() -> Mixer:
    silos = mixers()
    keys = [one.key() for one in silos.values()]
    silos[1].commit(keys)
    return silos[1]


def looking() -> Mixer:
    silos = mixers()
    keys = [one.key() for one in silos.values()]
    commits = [one.commit(keys) for one in silos.values()]
    silos[1].submit(commits)
    return silos[1]


RECEIVERS: dict[str, Callable[[], Callable[[Sequence[bytes]], object]]] = {
    "anchors, without a chain": lambda: W.seed_check().learn_anchors,
    "anchors": lambda: drawer().learn_anchors,
    "links": lambda: lambda frames: checker().seed(*TIME, {1, 2, 3}, frames),
    "keys": lambda: committing().commit,
    "commitments": lambda: submitting().submit,
    "names": lambda: looking().look,
    "a complaint": lambda: lambda frames: mixers()[1].give_up(*(frames[:1] or [b""])),
}


def forged() -> st.SearchStrategy[bytes]:
    """Frames with a true signature, whatever they claim and hold."""
    where = {
        "round": st.sampled_from([0, TIME[0], 2**32 - 1]),
        "attempt": st.sampled_from([0, TIME[1], 2**32 - 1]),
        "receiver": st.sampled_from([0, 1, EVERYBODY]),
        "session": st.sampled_from([SESSION, bytes(16)]),
    }
    sizes = st.sampled_from([0, 1, 31, 32, 33, 185, 32 + 3 * 185, 3 * 185])
    payload = st.one_of(st.binary(max_size=40), sizes.map(bytes))
    return st.builds(
        lambda sender, tag, payload, changes: W.forge(sender, tag, payload, **changes),
        st.integers(0, 3),
        st.sampled_from(list(Tag)),
        payload,
        st.fixed_dictionaries(where),
    )


FRAMES = st.lists(
    st.one_of(st.binary(max_size=200), st.sampled_from(ANCHORS + LINKS), forged()), max_size=5
)


@pytest.mark.quick_cases("anchors")
@pytest.mark.parametrize("receiver", RECEIVERS.values(), ids=RECEIVERS)
@settings(max_examples=60, deadline=None)
@given(frames=FRAMES)
def test_whatever_arrives_is_taken_or_refused_with_a_name(
    receiver: Callable[[], Callable[[Sequence[bytes]], Any]], frames: list[bytes]
) -> None:
    assert culprit(receiver(), frames) in NAMES | {None}


def culprit(take: Callable[[Sequence[bytes]], Any], frames: list[bytes]) -> str | None:
    """Who is named for the frames, if they are refused."""
    try:
        take(frames)
    except ProtocolError as error:
        return error.culprit
    return None


# Time and memory -------------------------------------------------------------------------------


def test_a_false_link_costs_no_more_hashes_than_the_chain_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed, below, check = [], joint_seed._below, checker()
    monkeypatch.setattr(joint_seed, "_below", lambda *args: hashed.append(args[1]) or below(*args))
    wrong = W.forge(2, Tag.SEED_LINK, bytes(32), round=9, attempt=1)
    with pytest.raises(ProtocolError, match="committed to"):
        check.seed(9, 1, {2}, [wrong])
    assert len(hashed) == W.round_parameters.steps * W.round_parameters.attempts


def test_what_is_refused_is_not_remembered() -> None:
    """Hundreds of false links of a thousand bytes leave nothing behind."""
    check = checker()
    wrong = [
        W.forge(2, Tag.SEED_LINK, bytes([n % 256]) * 1000, round=3, attempt=1) for n in range(50)
    ]

    def refuse(times: int) -> int:
        for _ in range(times):
            for link in wrong:
                with pytest.raises(ProtocolError):
                    check.seed(*TIME, {1, 2, 3}, [LINKS[0], link, LINKS[2]])
                with pytest.raises(ProtocolError):
                    check.learn_anchors([ANCHORS[0], link, ANCHORS[2]])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        grown = -refuse(1) + refuse(10)
    finally:
        tracemalloc.stop()
    assert grown < 20_000
    assert len(check._last) == 3
    assert len(check.seed(*TIME, {1, 2, 3}, LINKS)) == 32
