"""What a silo keeps of its records opens in its own place alone, and never under one nonce twice.

(docs/privacy.md P31)
"""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from hubbub.core.study.sealed_arrays import (
    KEY,
    Seal,
    SealedFile,
    key_in,
    read_arrays,
    write_head,
)

SEAL = Seal(key=bytes(range(32)), about="a study of ann")


def test_a_piece_opens_in_its_own_place_of_its_own_study_alone() -> None:
    piece = SEAL.sealed(b"rows", "inputs", 1)
    assert SEAL.opened(piece, "inputs", 1) == b"rows"
    other, key = Seal(key=SEAL.key, about="a study of bob"), Seal(key=bytes(32), about=SEAL.about)
    for seal, name, place in (
        (SEAL, "inputs", 0),
        (SEAL, "targets", 1),
        (other, "inputs", 1),
        (key, "inputs", 1),
    ):
        with pytest.raises(ValueError, match="altered"):
            seal.opened(piece, name, place)


def test_no_nonce_is_used_twice() -> None:
    """GCM would tell what two pieces differ in."""
    pieces = [SEAL.sealed(bytes(100), "inputs", 1) for _ in range(3)]
    assert len({piece[:12] for piece in pieces}) == 3
    assert len({piece[12:112] for piece in pieces}) == 3


def test_the_key_is_its_owners_and_is_made_once(tmp_path: Path) -> None:
    key = key_in(tmp_path)
    assert len(key) == 32
    assert key_in(tmp_path) == key
    assert stat.S_IMODE((tmp_path / KEY).stat().st_mode) == 0o600
    (tmp_path / KEY).write_bytes(key[:-1])
    with pytest.raises(ValueError, match="another length"):
        key_in(tmp_path)


def test_rows_that_are_missing_or_too_many_are_noticed(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    file = SealedFile(tmp_path / "inputs.sealed", SEAL, "inputs", rows.dtype, (2,))
    for part in (rows[:2], rows[2:]):
        file.add(part)
    write_head(tmp_path, SEAL, {"inputs": file.said()})
    read = read_arrays(tmp_path, SEAL, ("inputs", "targets"))
    assert [*read] == ["inputs"]
    assert read["inputs"].tolist() == rows.tolist()
    assert file.opened(1, 2).tolist() == rows[2:].tolist()
    whole = (path := tmp_path / "inputs.sealed").read_bytes()
    for changed in (whole[:-1], whole + b"x", whole[44:] + whole[:44]):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"altered|more than was written"):
            read_arrays(tmp_path, SEAL, ("inputs",))
