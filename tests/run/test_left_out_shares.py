"""A run in which a silo's full shares did not open, as whoever verifies it sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub.assurance.transcript import Kept, files, read
from hubbub.assurance.verification import verify
from hubbub.protocol import Frame, Masking, Tag, unverified
from hubbub.session.in_process import Federation
from run.finished import a_study, finished
from run.test_verify import NO_NODES, as_bytes, first, forge, wrongs

CHANGES = (
    (NO_NODES, 'shares = "full"\ncompute_nodes = 2 '),
    ("dropouts = 0", "dropouts = 1"),
    ("colluders = 1", "colluders = 0"),
)


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silo 2 sends node 2 what does not open."""
    made = Masking.shares

    def shares(self: Masking) -> dict[int, bytes]:
        frames = made(self)
        if self._session.index == 2:
            frame = unverified(frames[6])
            garbage = {**vars(frame), "payload": bytes(len(frame.payload))}
            fields = {name: garbage[name] for name in Frame.__dataclass_fields__}
            frames[6] = Frame(**fields).sealed(self._keys)
        return frames

    monkeypatch.setattr(Masking, "shares", shares)


@pytest.mark.parametrize("transcript", ["full", "hashes"])
def test_a_run_that_left_a_silo_out_for_its_share_holds(
    tmp_path: Path, transcript: str, spoilt: None
) -> None:
    finished(a_study(steps=2, transcript=transcript, changes=CHANGES), tmp_path / "run")
    assert wrongs(verify(tmp_path / "run")) == []
    kept = list(read(files(tmp_path / "run")[0]))
    assert [one.payload[0] for one in kept if one.tag is Tag.HELD and one.round == 1] == [0, 0x40]
    assert {one.payload[0] for one in kept if one.tag is Tag.REQUEST} == {0b1011_0000}
    assert [(one.round, one.attempt) for one in kept if one.tag is Tag.MODEL] == [(1, 0), (2, 0)]


def unsaid(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """No node ever said that a share does not open: the aggregator left the silo out by itself."""
    return [one for one in kept if one.tag is not Tag.HELD]


def asked_all_the_same(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """A REQUEST that names the silo whose share does not open."""
    at = first(kept, Tag.REQUEST, 1)
    payload = b"\xf0" + (kept[at].payload or b"")[1:]
    return [*kept[:at], as_bytes(kept[at], parties.keys[0], payload=payload), *kept[at + 1 :]]


def late(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """A node's word after the REQUESTs."""
    at, after = first(kept, Tag.HELD, 1), first(kept, Tag.TOTAL, 1)
    return [*kept[:at], *kept[at + 1 : after], kept[at], *kept[after:]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (unsaid, "another set or another MODEL"),
        (asked_all_the_same, "another set or another MODEL"),
        (late, "expected one HELD of everybody who was asked"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_who_is_left_out_follows_from_what_the_nodes_signed(
    tmp_path: Path, change: Callable[..., Any], why: str, spoilt: None
) -> None:
    study = a_study(steps=1, changes=CHANGES)
    result, parties = finished(study, tmp_path / "run")
    forge(tmp_path / "run", result, parties, change)
    (found,) = wrongs(verify(tmp_path / "run"))
    assert why in found.verdict
