"""What a run keeps of where it stands, and the cap that it gives its silos' ledgers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.planning.query import QueryState
from hubbub.core.runs.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    RunMetadata,
    newest_checkpoint,
    write_checkpoint,
)
from hubbub.core.runs.spending import set_caps
from hubbub.core.study.parties import Privacy

STATE = QueryState(step=1, attempts=1, parameters=np.ones(3, np.float32))
PROPOSED = Privacy(epsilon=1.0, delta=1e-5, relation="substitute", cap=4.0)


def test_p24_the_cap_that_a_study_proposes_holds_whatever_is_asked_later(tmp_path: Path) -> None:
    with Ledger(tmp_path / "one.sqlite") as one, Ledger(tmp_path / "other.sqlite") as other:
        own = Cap(epsilon=2.0, delta=1e-6, relation="add-remove")
        other.set_cap(own)
        set_caps([one, other], Privacy(epsilon=1.0, delta=1e-5))
        assert one.cap is None
        set_caps([one, other], PROPOSED)
        assert one.cap == Cap(epsilon=4.0, delta=1e-5, relation="substitute", studies="adaptive")
        assert other.cap == own, "whose owner has said so"


@pytest.mark.parametrize("place", [0, 8, 63])
def test_a_checkpoint_has_the_digest_in_its_name_to_the_last_digit(
    tmp_path: Path, place: int
) -> None:
    path = write_checkpoint(tmp_path, Checkpoint(state=STATE))
    start, _, digest = path.stem.rpartition("-")
    other = digest[:place] + ("0" if digest[place] != "0" else "1") + digest[place + 1 :]
    path.rename(path.with_name(f"{start}-{other}.safetensors"))
    with pytest.raises(IntegrityError, match="to have the digest in its name"):
        newest_checkpoint(tmp_path)


def test_p15_a_state_that_the_disk_does_not_take_is_told_before_the_next_is_kept() -> None:
    """Whoever charges the next attempt would else go on from a state that is nowhere."""

    def write(*_: object) -> None:
        raise IntegrityError("expected a disk that is not full")

    with CheckpointWriter(write) as kept:
        kept.keep(STATE, {})
        with pytest.raises(IntegrityError, match="full"):
            kept.keep(STATE, {})
        with pytest.raises(IntegrityError, match="full"):
            kept.wait()


def test_p15_a_run_that_has_asked_knows_what_its_ledgers_ended_with_before() -> None:
    """An older copy of one would else pay again for what it has forgotten."""
    sessions = {"training": ("ab" * 16,)}
    asked = {"study": "cd" * 32, "baseline": None, "ledgers": "ledgers", "sessions": sessions}
    with pytest.raises(ValueError, match="notes of something else"):
        RunMetadata(**asked)
    RunMetadata(**asked, heads={"ann": "ef" * 32})
    for changed in ({"sessions": {}}, {"ledgers": ""}, {"baseline": "pooled"}):
        RunMetadata(**asked | changed)
