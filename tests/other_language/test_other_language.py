"""A silo in another language, written from docs/protocol.md alone, sums with ours.

`npm ci` in this folder brings its KEM. Without Node.js or that, all of this is skipped, aloud.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub import VERSION, learning
from hubbub.core.protocol.primitives.identity import plain_identity
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.session.offer import round_parameters_of
from hubbub.core.verification.replay.checking import verify
from hubbub.learning.runs.preparing import prepare
from network.consortium import HOSPITALS, Consortium, planned, table
from network.engine import in_process
from protocol.parties import fixed_keys
from protocol.vectors import make

HERE = Path(__file__).parent
NODE = shutil.which("node")
SILO = HOSPITALS[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        NODE is None or not (HERE / "node_modules" / "@noble" / "post-quantum").is_dir(),
        reason="THE SILO IN ANOTHER LANGUAGE IS NOT TESTED: it needs Node.js 20.19 or newer and "
        "`npm ci` in tests/other_language",
    ),
]


def test_golden_vectors_are_derived_anew() -> None:
    pairwise = make.stored("pairwise")
    keys = {
        str(index): {
            name: part.hex()
            for name, part in fixed_keys(one["name"], one["role"]).secret_parts().items()
        }
        for index, one in enumerate(pairwise["roster"])
    }
    asked = {"pairwise": pairwise, "masks": make.stored("masks"), "keys": keys}
    done = subprocess.run(
        [str(NODE), str(HERE / "vectors.mjs")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "roster digest": 1,
        "commitment": 3,
        "joint seed": 1,
        "contribution": 6,
        "sent digest": 3,
        "transcript": 1,
        "confirm": 3,
        "pair secret": 3,
        "key check": 6,
        "masked": 3,
        "mask key": len(asked["masks"]),
        "mask stream": len(asked["masks"]),
    }


def test_a_vector_that_was_changed_is_noticed() -> None:
    pairwise = make.stored("pairwise")
    pairwise["seed"] = pairwise["seed"][:-2] + "00"
    asked = {"pairwise": pairwise, "masks": [], "keys": {}}
    done = subprocess.run(
        [str(NODE), str(HERE / "vectors.mjs")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "joint seed" in done.stderr


class Stranger:
    """The silo in another language, as a process that is asked envelopes."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        path = folder / "silo.json"
        path.write_text(json.dumps(config))
        self.log = (folder / "silo.log").open("wb")
        self.process = subprocess.Popen(
            [str(NODE), str(HERE / "silo.mjs"), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={"PATH": os.environ["PATH"]},
        )

    def answer(self, request: bytes) -> bytes:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(len(request).to_bytes(4, "little") + request)
        self.process.stdin.flush()
        size = int.from_bytes(self.process.stdout.read(4), "little")
        return self.process.stdout.read(size)

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()
        self.log.close()


def config_of(parties: Consortium, ledger: Path) -> tuple[dict[str, Any], PreparedStudy]:
    """What the stranger is told: what its administrator has, and what follows from the study."""
    site, study = parties.sites[SILO], parties.study
    plan = planned(study, dimension=27)
    plain = prepare(study, device="cpu", whose=[SILO])
    records = plain.silos[0].records
    assert records is not None
    rows = zip(records.inputs.tolist(), records.targets.tolist(), strict=True)
    parts = site.keys.secret_parts()
    return {
        "study": study.id.hex(),
        "index": site.index,
        "version": VERSION,
        "roster": [plain_identity(one) for one in site.roster.parties],
        "keys": {name: b64encode(part).decode() for name, part in parts.items()},
        "terms": round_parameters_of(plan.main).to_dict(),
        "clip": plan.mechanism.clip,
        "records": [{"x": x, "y": float(np.ravel(y)[0])} for x, y in rows],
        "ledger": str(ledger),
    }, plain


@pytest.fixture
def consortium(tmp_path: Path) -> Iterator[tuple[Consortium, Stranger, PreparedStudy]]:
    """Four hospitals, one of which runs another program; much signal and little noise."""
    made = table(
        HOSPITALS,
        training={
            "steps": 2,
            "sample_rate": 1.0,
            "optimizer": {"name": "sgd", "lr": 1.0},
        },
        privacy={"epsilon": 40.0},
    )
    parties = Consortium.gather(tmp_path, made)
    parties.stop(SILO)
    config, plain = config_of(parties, tmp_path / "stranger.jsonl")
    stranger = Stranger(config, tmp_path)
    yield parties, stranger, plain
    stranger.close()


def clipped_sum(plain: PreparedStudy, parameters: np.ndarray, clip: float) -> np.ndarray:
    """What a silo's records give at these parameters, in a few lines of NumPy."""
    records = plain.silos[0].records
    assert records is not None
    x = np.column_stack([np.asarray(records.inputs), np.ones(len(records.inputs))])
    y = np.ravel(records.targets)
    gradients = (1 / (1 + np.exp(-x @ parameters)) - y)[:, None] * x
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return np.asarray((gradients * np.minimum(1, clip / norms)).sum(axis=0))


def test_it_sums_with_a_consortium_whose_run_verifies(
    consortium: tuple[Consortium, Stranger, PreparedStudy], tmp_path: Path
) -> None:
    parties, stranger, plain = consortium

    def seat(name: str) -> Any:
        if name == SILO:
            return stranger.answer
        return endpoint.answer if (endpoint := parties.seats.get(name)) else None

    parties.serve(in_process(seat))
    log = (tmp_path / "silo.log").read_text()
    assert log == ""
    found = verify(tmp_path / "run")
    assert [one.claim for one in found if not one.holds] == []
    assert any("every sum, and every step along it, bit for bit" in one.claim for one in found)
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert [one["attempts"] for one in evidence["silos"]] == [2] * 4
    rows = [json.loads(line) for line in (tmp_path / "stranger.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["charge", "charge", "closing"]

    # Its share is in the sum: the model is what all records give, to six deviations of the noise.
    plan = planned(parties.study, dimension=27)
    made = np.array(learning.stored_parameters(tmp_path / "run" / "model.safetensors", 27))
    clip = plan.mechanism.clip
    every = [prepare(parties.study, device="cpu", whose=[name]) for name in HOSPITALS]
    expected = np.array(plain.initial, dtype=float)
    own = np.zeros(27)
    for _ in range(2):
        own = own + clipped_sum(plain, expected, clip)
        total = sum(clipped_sum(one, expected, clip) for one in every)
        expected = expected - total / 735
    deviation = np.sqrt(2) * plan.total_noise_multiplier * clip
    left = np.abs(made - expected) * 735
    assert left.max() < 6 * deviation
    assert np.abs(own).max() > 20 * deviation


def test_it_refuses_what_is_not_the_study(
    consortium: tuple[Consortium, Stranger, PreparedStudy],
) -> None:
    """A plan with other numbers is refused by name, and nothing is charged."""
    from hubbub.core.errors import HubbubError

    parties, _, _ = consortium
    config, _ = config_of(parties, parties.home / "other.jsonl")
    config["terms"]["sigma_grid"] *= 2
    (parties.home / "other").mkdir()
    other = Stranger(config, parties.home / "other")

    def seat(name: str) -> Any:
        return other.answer if name == SILO else parties.seats[name].answer

    try:
        with pytest.raises(HubbubError, match="plan"):
            parties.serve(in_process(seat))
    finally:
        other.close()
    assert not (parties.home / "other.jsonl").exists()
