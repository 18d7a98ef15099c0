"""The inputs that the fuzzer kept, and its seeds, played again without the fuzzer."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from hubbub.errors import IntegrityError, ProtocolError, StudyError

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("wire", "rounds", "agreement", "joint", "mixing", "study", "ledger")


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The target of this name, imported from the root of the sources."""
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module(f"fuzz.{request.param}")


def play(fuzz: ModuleType, inputs: list[bytes]) -> None:
    for data in inputs:
        fuzz.check(data)


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
        ("rounds", "Answering.accept", ProtocolError),
        ("rounds", "ComputeNode.total", ProtocolError),
        ("rounds", "ComputeNode.keep", ProtocolError),
        ("agreement", "Agreement.confirm", ProtocolError),
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

    def receives(self, message: bytes) -> None:
        try:
            honest(self, message)
        except ProtocolError:
            self._total += 1
            raise

    monkeypatch.setattr(fuzz.Aggregator, "receive", receives)
    with pytest.raises(AssertionError, match="leaves a trace"):
        play(fuzz, fuzz.seeds())
