"""Adapters over a frozen transformer, features of a frozen module, and weights by their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import hubbub
from hubbub import Study, plan
from hubbub.core.errors import DataError, HubbubError, IntegrityError, ModelError, StudyError
from hubbub.core.tabular.records import Records
from hubbub.core.verification.replay.checking import verify
from hubbub.learning import (
    EvaluationTask,
    TrainingTask,
    method_for,
    parameters_vector,
    through_frozen,
)
from hubbub.learning.frozen import LowRank
from hubbub.learning.models import default_loss
from hubbub.learning.study.model import Frozen
from hubbub.learning.study_model import model_of

torch.set_num_threads(1)
WORDS, LENGTH, WIDTH, RANK = 12, 5, 8, 2
TARGETS = ("linear1", "body.linear2", "reader")
# 8-16 and 16-8 in the layer, 8-6 after it; and a head of two biases on 6 features.
TRAINED = RANK * (24 + 24 + 14) + 2 * 7


class Encoder(nn.Module):
    """Words, one layer of a transformer with dropout, the mean, and what reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.body = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.3, batch_first=True)
        self.reader = nn.Linear(WIDTH, 6)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.reader(self.body(self.words(words.long())).mean(1))


def mixing() -> nn.Module:
    """A layer that sees how a record differs from the others of its batch."""

    class Mixing(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return super().forward(rows - rows.mean(0))

    return Mixing(3, 2)


class Tangled(Encoder):
    """The encoder with `batch_first` forgotten: its records are one another's sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0)


def texts(party: str) -> Records:
    """Forty made-up texts, of which those with the word 3 are of the second class."""
    rng = np.random.default_rng(sum(map(ord, party)))
    words = rng.integers(0, WORDS, size=(40, LENGTH))
    return Records(inputs=words.astype(np.float32), targets=(words == 3).any(1).astype(np.int64))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the encoder's weights."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    save_file(Encoder().state_dict(), tmp_path / "encoder.safetensors")
    return tmp_path


def sha256(path: str = "encoder.safetensors") -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def study(training: dict[str, Any] | None = None, **model: Any) -> Study:
    """One of adapters, or with other keys of its model; None leaves a key out."""
    steps = {
        "steps": 3,
        "sample_rate": 0.5,
        "clip_norm": 0.5,
        "optimizer": {"name": "sgd", "lr": 1.0},
    }
    frozen = {
        "module": f"python:{__name__}:Encoder",
        "weights": "encoder.safetensors",
        "sha256": sha256(),
        "features": 6,
    }
    asked: dict[str, Any] = {"kind": "lora", "inputs": [LENGTH], "outputs": 2, "rank": RANK}
    asked |= {"target_modules": list(TARGETS)} | model
    frozen |= asked.pop("frozen", {})
    asked["frozen"] = {key: value for key, value in frozen.items() if value is not None}
    return Study.from_table(
        {
            "study": {"name": "adapters"},
            "parties": {"silos": 3, "colluders": 0},
            "data": {"source": f"python:{__name__}:texts", "records": 120},
            "model": {key: value for key, value in asked.items() if value is not None},
            "training": training or steps,
            "privacy": {"epsilon": 8.0, "delta": 1e-5},
        }
    )


def moved(model: nn.Module) -> nn.Module:
    """The model with other numbers in all that is trained."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in model.parameters():
            if one.requires_grad:
                one.add_(torch.randn(one.shape, generator=generator), alpha=0.5)
    return model


@pytest.mark.slow
def test_the_clipped_sum_is_that_of_a_loop_over_adapters_and_head(home: Path) -> None:
    model, records = moved(model_of(study(), (LENGTH,))), texts("silo-1")
    assert method_for(model, (LENGTH,), records.targets) == "vmap"
    exact = Encoder().double().eval()
    exact.load_state_dict(load_file("encoder.safetensors"))
    trained = {key: one.detach().double() for key, one in model.named_parameters()}

    def loss(own: dict[str, torch.Tensor], row: int) -> torch.Tensor:
        """Written out with W + B A in the place of W."""
        named = {}
        for key, value in exact.state_dict().items():
            layer = key.removesuffix(".weight")
            low = [own.get(f"base.0.{layer}.adapter.{side}.weight") for side in ("up", "down")]
            named[key] = value if low[0] is None else value + low[0] @ low[1]
        inputs = torch.from_numpy(records.inputs[row : row + 1])
        found = torch.func.functional_call(exact, named, (inputs,))
        logits = found @ own["head.weight"].T + own["head.bias"]
        return default_loss(2)(logits, torch.from_numpy(records.targets[row : row + 1]))[0]

    names = [key for key, one in model.named_parameters() if one.requires_grad]
    wanted, clipped = torch.zeros(TRAINED, dtype=torch.float64), 0
    for row in range(len(records)):
        own = trained | {key: trained[key].clone().requires_grad_() for key in names}
        parts = torch.autograd.grad(loss(own, row), [own[key] for key in names])
        gradient = torch.cat([part.reshape(-1) for part in parts])
        clipped += int(gradient.norm() > 0.9)
        wanted += gradient * min(1.0, 0.9 / float(gradient.norm()))
    assert 0 < clipped < len(records)
    for method in ("vmap", "loop"):
        task = TrainingTask(model, records, clip=0.9, margin=2.0**-9, method=method)
        found = task.clipped_sum(parameters_vector(model), np.arange(len(records)))
        np.testing.assert_allclose(found, wanted.numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_only_adapters_and_head_are_summed_and_frozen_weights_stay(home: Path) -> None:
    asked = study()
    assert plan(asked).dimension == TRAINED
    result = hubbub.run(asked, out=home / "run")
    assert result.plan.dimension == TRAINED
    module = result.trained.module
    assert parameters_vector(module).size == TRAINED
    stored = {key.removeprefix("base.0."): one for key, one in module.state_dict().items()}
    assert all(
        torch.equal(one, stored[key]) for key, one in load_file("encoder.safetensors").items()
    )
    first = model_of(asked, (LENGTH,))
    assert all(
        not torch.equal(one, was)
        for one, was in zip(module.parameters(), first.parameters(), strict=True)
        if one.requires_grad
    )
    assert all(one.holds for one in verify(home / "run"))
    again, some = hubbub.load(home / "run"), texts("silo-2").inputs
    np.testing.assert_array_equal(again.predict(some), result.predict(some))


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(home: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hubbub.run(study(), out=home / "run", progress=stop)
    assert hubbub.resume(home / "run").steps == 3
    assert all(one.holds for one in verify(home / "run"))


def test_it_begins_as_the_frozen_module_with_the_same_adapters_everywhere(home: Path) -> None:
    first, other = model_of(study(), (LENGTH,)), model_of(study(), (LENGTH,))
    assert np.array_equal(parameters_vector(first), parameters_vector(other))
    inputs, plain = torch.from_numpy(texts("silo-1").inputs), Encoder().eval()
    plain.load_state_dict(load_file("encoder.safetensors"))
    with torch.no_grad():
        before = first.train().base(inputs)  # whose dropout stays off
        assert torch.equal(before, plain(inputs))
        assert not first(inputs).any()
        assert not torch.equal(moved(first).eval().base(inputs), before)


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        ({"frozen": {"sha256": "0" * 64}}, IntegrityError, "to have the SHA-256 0000"),
        (
            {"target_modules": ["linear3"]},
            ModelError,
            r'"linear3" names no layer; choose some like',
        ),
        ({"target_modules": ["out_proj"]}, ModelError, "NonDynamicallyQuantizableLinear"),
        ({"target_modules": ["words"]}, ModelError, "Embedding"),
        ({"rank": 7, "target_modules": ["reader"]}, ModelError, r"model\.rank <= 6"),
        ({"frozen": {"features": 5}}, ModelError, r"\(5,\) features.* found \(6,\)"),
        ({"frozen": {"module": f"python:{__name__}:mixing"}}, ModelError, "to hold the names"),
        (
            {"frozen": {"module": f"python:{__name__}:sha256"}},
            StudyError,
            "return a torch.nn.Module",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    home: Path, model: dict[str, Any], error: type[HubbubError], says: str
) -> None:
    with pytest.raises(error, match=says):
        hubbub.run(study(**model))


class Logarithms(Encoder):
    """The encoder, whose features then are no numbers of some records."""

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return super().forward(words).log()


def tangled() -> LowRank:
    """A model over it whose head is zero, at which all outputs are alike."""
    torch.manual_seed(0)
    model = LowRank(Tangled().requires_grad_(False), 6, 2)
    assert not model.head.weight.any()
    return model


def test_a_head_of_zeros_hides_no_records_that_mix() -> None:
    with pytest.raises(ModelError, match="records mix"):
        method_for(tangled(), (LENGTH,), np.zeros(0, np.int64))


@pytest.mark.slow
def test_a_head_of_zeros_hides_from_no_evaluation_that_records_mix() -> None:
    """docs/privacy.md A2, P16: a record that is exchanged moves its own part alone."""
    model, records, whole = tangled(), texts("silo-1"), np.arange(40)
    other = replace(records, inputs=np.where(whole[:, None] == 5, 3, records.inputs))
    tasks = [EvaluationTask(model, one) for one in (records, other)]
    numbers = np.random.default_rng(19).normal(size=14).astype(np.float32) * 10
    moved, alone = (
        tasks[0].clipped_sum(numbers, rows) - tasks[1].clipped_sum(numbers, rows)
        for rows in (whole, whole[5:6])
    )
    np.testing.assert_allclose(moved, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"rank": None}, "model.rank"),
        ({"target_modules": []}, "different names of layers"),
        ({"target_modules": ["reader", "reader"]}, "different names of layers"),
        ({"hidden": [3]}, 'model.hidden to be absent for kind = "lora"'),
        ({"bias": False}, "model.bias to be absent"),
        ({"kind": "logistic"}, "model.rank to be absent"),
        ({"kind": "logistic", "rank": None}, "model.target_modules to be absent"),
        (
            {"kind": "logistic", "rank": None, "target_modules": None},
            "model.frozen.features to be absent",
        ),
        ({"frozen": {"module": None}}, "model.frozen.module"),
        ({"frozen": {"module": "encoder"}}, "python:module:factory"),
        ({"frozen": {"module": ""}}, "python:module:factory"),
        ({"frozen": {"features": None}}, "model.frozen.features"),
    ],
)
def test_keys_that_go_against_each_other_are_refused(
    home: Path, model: dict[str, Any], says: str
) -> None:
    with pytest.raises(StudyError, match=says):
        study(**model)


def test_the_id_covers_weights_rank_targets_and_module(home: Path) -> None:
    made = study()
    others: list[dict[str, Any]] = [
        {"rank": 3},
        {"target_modules": ["reader"]},
        {"frozen": {"sha256": "0" * 64}},
        {"frozen": {"features": 7}},
        {"frozen": {"module": "python:other:Encoder"}},
    ]
    assert len({made.id, *(study(**one).id for one in others)}) == 6
    assert Study.parse(made.as_toml()).id == Study.parse(replace(made, toml="").as_toml()).id
    assert made.own_code[-1] == f"python:{__name__}:Encoder"


def frozen(module: str) -> Frozen:
    return Frozen(
        module=f"python:{__name__}:{module}",
        weights="w.safetensors",
        sha256=sha256("w.safetensors"),
    )


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module], None]:
    monkeypatch.chdir(tmp_path)
    return lambda module: save_file(module.state_dict(), tmp_path / "w.safetensors")


def test_features_of_a_module_are_each_records_own(weights: Callable[..., None]) -> None:
    module = mixing()
    weights(module)
    records = Records(inputs=np.eye(3, dtype=np.float32), targets=np.zeros(3, np.float32))
    found = through_frozen(frozen("mixing"), records).inputs
    assert np.array_equal(found, np.repeat(module.bias.detach().numpy()[None], 3, axis=0))


@pytest.mark.slow
def test_a_record_at_which_the_module_raises_has_features_of_zero(
    weights: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    module = Encoder().eval()
    weights(module)
    records = texts("silo-1")
    records.inputs[7, 2] = -5
    found = through_frozen(frozen("Encoder"), records).inputs
    rows = np.arange(len(records)) != 7
    assert not found[7].any()
    with torch.no_grad():
        wanted = module(torch.from_numpy(records.inputs[rows])).numpy()
    np.testing.assert_allclose(found[rows], wanted, rtol=1e-4, atol=1e-6)
    assert caplog.text == ""  # neither how many they are nor what the module says
    with pytest.raises(DataError, match=r"to take records of shape \(3, 3\)"):
        through_frozen(frozen("Encoder"), replace(records, inputs=np.ones((40, 3, 3), np.float32)))


def test_a_record_whose_features_are_no_numbers_has_features_of_zero(
    weights: Callable[..., None],
) -> None:
    """A silo that would not take part because of them would tell that it has such a record."""
    torch.manual_seed(0)
    module = Logarithms().eval()
    weights(module)
    records = texts("silo-1")
    with torch.no_grad():
        wanted = module(torch.from_numpy(records.inputs)).numpy()
    known = np.isfinite(wanted).all(1)
    assert 0 < known.sum() < len(records)
    found = through_frozen(frozen("Logarithms"), records).inputs
    np.testing.assert_allclose(found[known], wanted[known], rtol=1e-4, atol=1e-5)
    assert not found[~known].any()


@pytest.mark.slow
def test_a_probe_learns_from_features_of_a_module(home: Path) -> None:
    kept = dict.fromkeys(("rank", "target_modules"))
    whole = {"steps": 1, "sampling": "full-batch", "optimizer": {"name": "sgd", "lr": 1.0}}
    result = hubbub.run(
        study(whole, kind="linear-probe", inputs=[6], frozen={"features": None}, **kept)
    )
    assert result.plan.dimension == 7 * (7 + 2)
    assert result.predict(texts("silo-2").inputs).shape == (40, 2)
