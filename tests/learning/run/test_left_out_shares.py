"""A run in which a silo's full shares did not open, as whoever verifies it sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.protocol.primitives.wire import Frame, Tag, unverified
from hubbub.core.protocol.round.additive_shares import Sharing
from hubbub.core.protocol.round.round_parameters import digest_of_shares
from hubbub.core.session.in_process import Federation
from hubbub.core.verification.evidence.evidence_file import REDERIVED
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import Kept, files, read
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
    made = Sharing.shares

    def shares(self: Sharing) -> dict[int, bytes]:
        frames = made(self)
        if self._session.index == 2:
            frame = unverified(frames[6])
            garbage = {**vars(frame), "payload": bytes(len(frame.payload))}
            fields = {name: garbage[name] for name in Frame.__dataclass_fields__}
            frames[6] = Frame(**fields).sealed(self._keys)
        return frames

    monkeypatch.setattr(Sharing, "shares", shares)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (unsaid, "expected no REQUEST now"),
        (asked_all_the_same, "got other silos or another MODEL"),
        (late, "expected no REQUEST now"),
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


# Words of nodes under a digest of the aggregator's making -----------------------------------------


def said_of(kept: list[Kept], parties: Federation, model: bytes, closed: int) -> bytes:
    """What the first node signs of its shares if it is told that they answer some MODEL."""
    at = first(kept, Tag.HELD, 1)
    node = kept[at].sender
    shares = {
        one.sender: hashlib.sha256(one.signed).digest()
        for one in kept
        if one.tag is Tag.SHARE and one.round == 1 and one.receiver == node
    }
    digest = digest_of_shares(model, shares)
    return as_bytes(kept[at], parties.keys[node], payload=bytes([closed]) + digest)


def in_place(kept: list[Kept], said: bytes) -> list[Kept | bytes]:
    at = first(kept, Tag.HELD, 1)
    return [*kept[:at], said, *kept[at + 1 :]]


def made_up(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """The node looked under a digest that no silo has answered, and no share opened."""
    return in_place(kept, said_of(kept, parties, bytes(32), 0xF0))


def made_up_of_one(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """The same, and one silo alone is said not to open."""
    return in_place(kept, said_of(kept, parties, bytes(32), 0x40))


def made_up_of_none(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    return in_place(kept, said_of(kept, parties, bytes(32), 0))


def twice_said(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """Its true word, and then another one."""
    at = first(kept, Tag.HELD, 1) + 1
    return [*kept[:at], said_of(kept, parties, bytes(32), 0x80), *kept[at:]]


def share_lost(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """A SHARE that the node has spoken of is not shown."""
    at = first(kept, Tag.SHARE, 1)
    return [*kept[:at], *kept[at + 1 :]]


def share_twice(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    at = first(kept, Tag.SHARE, 1)
    return [*kept[:at], kept[at], *kept[at:]]


def unasked(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """A node speaks that was told of nobody."""
    at = first(kept, Tag.ARRIVED, 1)
    return [*kept[:at], *kept[at + 1 :]]


def answered_late(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """A silo's MASKED once nodes were told who arrived."""
    at, after = first(kept, Tag.MASKED, 1), first(kept, Tag.ARRIVED, 1)
    return [*kept[:at], *kept[at + 1 : after + 1], kept[at], *kept[after + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize("transcript", ["full", "hashes"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (made_up, "got other shares"),
        (made_up_of_one, "got other shares"),
        (made_up_of_none, "got other shares"),
        (twice_said, "expected one HELD"),
        (share_lost, "got other shares"),
        (share_twice, "one SHARE for a node"),
        (unasked, "expected no HELD of a party that was not asked"),
        (answered_late, ""),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_node_is_believed_about_the_very_shares_and_the_one_model(
    tmp_path: Path, change: Callable[..., Any], why: str, transcript: str
) -> None:
    study = a_study(steps=1, changes=CHANGES, transcript=transcript)
    result, parties = finished(study, tmp_path / "run")
    assert "2 words of nodes are about the very shares" in held_words(tmp_path)
    forge(tmp_path / "run", result, parties, change)
    (found,) = wrongs(verify(tmp_path / "run"))
    assert why in found.verdict


def held_words(home: Path) -> str:
    return "\n".join(one.claim for one in verify(home / "run") if one.verdict == REDERIVED)
