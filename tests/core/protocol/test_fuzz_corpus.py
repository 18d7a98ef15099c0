"""The inputs that the fuzzer kept, and its seeds, played again without the fuzzer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hubbub.core.errors import IntegrityError, ProtocolError, StudyError
from hubbub.core.protocol.primitives.wire import Frame

ROOT = Path(__file__).resolve().parents[3]
TARGETS = (
    *("wire", "rounds", "agreement", "joint", "mixing", "collection", "offers"),
    *("study", "ledger"),
)


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The target of this name, imported from the root of the sources."""
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module(f"fuzz.{request.param}")


def play(fuzz: ModuleType, inputs: list[bytes]) -> None:
    for data in inputs:
        fuzz.check(data)


@pytest.mark.quick_cases("offers", "wire", "collection")
@pytest.mark.parametrize("fuzz", TARGETS, indirect=True)
def test_every_kept_input_and_seed_is_read_or_refused_as_promised(fuzz: ModuleType) -> None:
    corpus = ROOT / "fuzz" / "corpus" / fuzz.__name__.removeprefix("fuzz.")
    kept = [file.read_bytes() for file in sorted(corpus.iterdir())]
    assert kept
    play(fuzz, fuzz.seeds() + kept)


@pytest.mark.parametrize(
    ("fuzz", "place", "error"),
    [
        ("wire", "parse", ProtocolError),
        ("rounds", "Aggregator.receive", ProtocolError),
        ("rounds", "Masking.accept", ProtocolError),
        ("rounds", "ComputeNode.total", ProtocolError),
        ("rounds", "ComputeNode.keep", ProtocolError),
        ("agreement", "Agreement.confirm", ProtocolError),
        ("joint", "SeedCheck.learn_anchors", ProtocolError),
        ("joint", "SeedCheck.seed", ProtocolError),
        ("joint", "JointSeed.reveal", ProtocolError),
        ("mixing", "Mixer.commit", ProtocolError),
        ("collection", "CollectionNode.promised", ProtocolError),
        ("collection", "CollectionNode.told", ProtocolError),
        ("collection", "Collector.take_deposit", ProtocolError),
        ("offers", "RollCall.take", ProtocolError),
        ("offers", "SessionOffer.read", ProtocolError),
        ("offers", "until_of", ProtocolError),
        ("offers", "said_in", ProtocolError),
        ("mixing", "Mixer.look", ProtocolError),
        ("mixing", "Mixer.give_up", ProtocolError),
        ("study", "Study.parse", StudyError),
        ("ledger", "Ledger.verify", IntegrityError),
    ],
    indirect=["fuzz"],
)
def test_a_target_notices_any_other_error_than_the_promised_one(
    fuzz: ModuleType, place: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise OverflowError

    monkeypatch.setattr(f"{fuzz.__name__}.{place}", breaks)
    with pytest.raises(OverflowError):
        play(fuzz, fuzz.seeds())


@pytest.mark.parametrize("fuzz", ["rounds"], indirect=True)
def test_the_rounds_notice_a_sum_that_a_refused_message_changed(
    fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = fuzz.Aggregator.receive

    def receives(self, message: bytes, shares: Sequence[Frame] = ()) -> bytes:
        try:
            return honest(self, message, shares)
        except ProtocolError:
            self.attempt.total += 1
            raise

    monkeypatch.setattr(fuzz.Aggregator, "receive", receives)
    with pytest.raises(AssertionError, match="leaves a trace"):
        play(fuzz, fuzz.seeds())


def believed(seeds: ModuleType) -> None:
    """Links are taken as they come."""
    seeds.SeedCheck._verify = lambda *_: None


def early(seeds: ModuleType) -> None:
    """A silo reveals its whole chain."""
    seeds.JointSeed.reveal = lambda self, *time: self._frame(12, time, self._chain.link(18))


def forgetful(seeds: ModuleType) -> None:
    """A silo goes back in time."""
    honest = seeds.JointSeed.reveal

    def again(self, round: int, attempt: int) -> bytes:
        self._revealed = 0
        return honest(self, round, attempt)

    seeds.JointSeed.reveal = again


@pytest.mark.parametrize("fuzz", ["joint"], indirect=True)
@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (believed, "an unknown link"),
        (early, "another link than the attempt's"),
        (forgetful, "a link of a time that is over"),
    ],
)
def test_joint_seeds_notice_a_broken_silo(
    fuzz: ModuleType,
    breaks: Callable[[ModuleType], None],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for one in (fuzz.SeedCheck, fuzz.JointSeed):  # so that they are mended afterwards
        for name in ("_verify", "reveal"):
            if name in vars(one):
                monkeypatch.setattr(one, name, vars(one)[name])
    breaks(fuzz)
    back = bytes([fuzz._REVEAL, 1, 5, fuzz._REVEAL, 1, 3])
    with pytest.raises(AssertionError, match=says):
        play(fuzz, [*fuzz.seeds(), fuzz.seeds()[0] + back])


@pytest.mark.parametrize("fuzz", ["mixing"], indirect=True)
def test_a_list_notices_two_silos_with_different_lists(
    fuzz: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = fuzz.Mixer.finish

    def finish(self):
        owned = honest(self)
        return replace(owned, positions=owned.positions[::-1] * 0)

    monkeypatch.setattr(fuzz.Mixer, "finish", finish)
    with pytest.raises(AssertionError, match="not a place for each token"):
        play(fuzz, fuzz.seeds())
