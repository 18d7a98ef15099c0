"""The frozen layers of a study: a public module, its weights from a file that it names with a hash.

Records go in, rows of features come out, once per data set; the model that is trained sees these
alone. Features of convolutions are kept by what they depend on: layers, weights and records. They
are private, so their folder is readable by its owner only, and neither a name in it nor an error
says anything of them (docs/privacy.md A3). What a module of the study's own does cannot be told
from a file's name, so its features are not kept.

A record's features depend on that record alone: layers take batches of one public shape where a row
of them is seen to be the same bits in every place, whatever the others are (A2), and one record at
a time otherwise. One at which a module raises, that it writes into its parameters or buffers, or
whose features are no finite numbers, has the features zero.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.disk import PRIVATE, locked, open_ordinary, read_bytes, write_bytes
from hubbub.core.errors import DataError, HubbubError, ModelError
from hubbub.core.protocol.primitives.randomness import KEY_BYTES, SecureSource
from hubbub.core.study.silo_records import attempted, named_object
from hubbub.core.tabular.records import Records
from hubbub.learning.datasets.wheel import data_folder
from hubbub.learning.model_state import ModelState, attributes_restored, state_unchanged
from hubbub.learning.models import module_from, seeded_by
from hubbub.learning.parameters import read_pinned
from hubbub.learning.study.model import Frozen, Model, weights_path
from hubbub.learning.torch_settings import as_traced, seeded
from hubbub.learning.trial import WILD, RaisingOperations, first_taken

_CONVOLUTION = re.compile(r"conv([1-9][0-9]?)\.(weight|bias)")
_LOCK = "lock"  # whoever holds it is the only one who writes among what is kept
_SEED = 1  # of random layers, of each batch anew
_MOST_ROWS, _MOST_NUMBERS = 8, 2**15  # of a batch; large images gain nothing from company
_AT_ONCE: dict[Frozen, dict[tuple[int, ...], int]] = {}  # records of a shape, as was seen


def through_frozen(
    frozen: Frozen | None,
    records: Records,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
) -> Records:
    """The records as the model sees them: as they are, or as features of the study's frozen layers.

    Args:
        frozen: of the study's model.
        records: images (n, channels, height, width) where there are frozen layers, or what the
            module of the study takes.
        folder: what the path of the weights is relative to; the current directory if None.
        cache: folder of the features; `features` beside downloaded data if None.

    Returns:
        The same n records, their inputs (n, features) in float32 where there are frozen layers.

    Raises:
        IntegrityError: the file of the weights is missing or another one.
        ModelError: the file does not hold convolutions, or what the module needs.
        DataError: the layers cannot take the records.

    >>> records = Records(inputs=np.ones((4, 2), np.float32), targets=np.zeros(4, np.float32))
    >>> through_frozen(None, records) is records
    True
    """
    if frozen is None:
        return records
    layers = frozen_layers(frozen, folder or Path())
    images = torch.from_numpy(records.inputs)
    if frozen.module:
        features = features_by(layers, images, _AT_ONCE.setdefault(frozen, {}))
    else:
        features = frozen_features(layers, images, cache or data_folder() / "features")
    # Zero where a number is none: no refusal tells of a record (docs/privacy.md A3).
    known = np.isfinite(features).all(1, keepdims=True)
    return records.with_inputs(np.where(known, features, np.float32(0)))


def frozen_layers(frozen: Frozen, folder: Path) -> nn.Sequential:
    """The study's module; or convolutions conv1, conv2, …, each with ReLU and max-pooling 3/2."""
    tensors = read_pinned(weights_path(frozen.weights, folder), frozen.sha256)
    layers: list[nn.Module] = [Normalise(frozen.mean, frozen.std)] if frozen.mean else []
    if frozen.module:
        layers.append(_with_weights(frozen, tensors))
        return nn.Sequential(*layers).requires_grad_(False).eval()
    names = [f"conv{number}" for number in range(1, 1 + _convolutions(tensors, frozen.weights))]
    for name in names:
        own = {key: tensors.get(f"{name}.{key}") for key in ("weight", "bias")}
        held = {key: values.float() for key, values in own.items() if values is not None}
        rows, columns, height, width = held["weight"].shape
        layer = nn.Conv2d(columns, rows, (height, width), bias="bias" in held)
        for key, values in held.items():
            setattr(layer, key, nn.Parameter(values))
        layers += [layer, nn.ReLU(), nn.MaxPool2d(3, 2)]
    return nn.Sequential(*layers, nn.Flatten()).requires_grad_(False)


def _with_weights(frozen: Frozen, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """The study's module with the weights of the file, all of them and no others, in float32."""
    module = module_from(frozen.module, named_object(frozen.module, "model.frozen.module"))
    try:
        module.load_state_dict(tensors)
    except RuntimeError:
        own = module.state_dict()
        strange = sorted(
            name
            for name in own.keys() | tensors.keys()
            if name not in own or name not in tensors or own[name].shape != tensors[name].shape
        )
        raise ModelError(
            f"expected {frozen.weights} to hold the names and shapes of {frozen.module}, "
            f"found other ones for {strange[:4]}; save the module's state_dict"
        ) from None
    return module.float()


@torch.no_grad()
def features_by(
    module: nn.Module, records: torch.Tensor, at_once: dict[tuple[int, ...], int] | None = None
) -> NDArray[np.float32]:
    """Rows of features, each of one record; zero where the module raises or changes itself.

    How many records of a shape the module takes `at_once` is written there where it is not known.
    """
    zeros = torch.zeros(1, *records.shape[1:])

    def tried() -> tuple[torch.Tensor, str]:
        watch = RaisingOperations(zeros.device).following(zeros)
        with state_unchanged(module), watch, way():
            return attempted(lambda: module(zeros).flatten(1))

    way: Way = as_traced
    made_up, raised = tried()
    if raised:  # not every module can be traced
        way = nullcontext
        made_up, raised = tried()
    if raised:
        raise DataError(
            f"expected model.frozen to take records of shape {tuple(records.shape[1:])}, "
            f"found that it raised {raised} on zeros; correct the data, such as the "
            "channels and the size of images, or name other weights"
        )
    taken = partial(_taken, module, ModelState(module), way, made_up.shape)
    at_once = {} if at_once is None else at_once
    if zeros.shape not in at_once:
        at_once[zeros.shape] = _rows_at_once(taken, zeros)
    null = zeros.repeat(at_once[zeros.shape], *[1] * (zeros.dim() - 1))
    features = np.zeros((len(records), made_up.shape[1]), np.float32)
    for start in range(0, len(records), len(null)):
        piece = slice(start, start + len(null))
        _fill(features[piece], records[piece], null, taken)
    return features


Way = Callable[[], AbstractContextManager[None]]  # how a module is asked: see `as_traced`
# A batch's features; None where the module raises or changes itself.
Taken = Callable[[torch.Tensor], NDArray[np.float32] | None]


def _taken(
    module: nn.Module,
    state: ModelState,
    way: Way,
    one: tuple[int, ...],
    batch: torch.Tensor,
) -> NDArray[np.float32] | None:
    """The features of a batch, of each record those of that shape.

    What is drawn is the same for every batch, and nothing is kept for the next (P14).
    """
    shape, rows = (len(batch) * one[0], one[1]), None
    told = suppress(HubbubError)  # whatever it says would tell of a record
    with told, seeded(_SEED, batch.device), attributes_restored(module), way():
        given = batch.clone()  # into which it may write
        rows, _ = attempted(lambda: module(given).float().reshape(shape).numpy())
    return None if state.put_back() or rows is None else rows[: len(batch)]


def _fill(
    features: NDArray[np.float32], records: torch.Tensor, null: torch.Tensor, taken: Taken
) -> None:
    """Write what is found of records into their features, which are zero.

    Of a batch at which the module raises, or changes itself, each is tried beside null records.
    """
    batch = null.clone()
    batch[: len(records)] = records
    rows = taken(batch)
    if rows is not None:
        features[:] = rows[: len(records)]
    elif len(records) > 1:
        for k in range(len(records)):
            _fill(features[k : k + 1], records[k : k + 1], null, taken)


def _rows_at_once(taken: Taken, zeros: torch.Tensor) -> int:
    """How many records the module takes at once: one, or as many as do not move each other's.

    Made-up records have the same features in every place of such a batch, bit for bit, whatever the
    others are, and about those that they have alone. One, too, where an operation may raise by its
    values.
    """
    rows = min(_MOST_ROWS, _MOST_NUMBERS // max(1, zeros.numel()))
    watch = RaisingOperations(zeros.device)

    def are_alone(made_up: torch.Tensor) -> bool:
        each = [taken(one) for one in made_up.split(1)]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            raise RuntimeError("the module takes no such records")
        order, seen = np.arange(rows) % len(each), set[tuple[np.intp, bytes]]()
        for turn in range(len(each)):
            which = np.roll(order, turn)
            found, wanted = taken(made_up[which]), np.concatenate(known)[which]
            little = 1e-4 * np.nan_to_num(np.abs(wanted), posinf=0).max(initial=0)
            near = partial(np.allclose, rtol=1e-3, atol=little, equal_nan=True)
            if found is None or not near(found, wanted):
                return False
            seen |= {(k, row.tobytes()) for k, row in zip(which, found, strict=True)}
        places = [0, rows // 2, rows - 1]
        for kind in WILD:
            batch = kind(made_up[order])
            batch[places] = made_up[order[places]]
            found = taken(batch)
            if found is not None:  # what it cannot take is in no batch either
                seen |= {(order[k], found[k].tobytes()) for k in places}
        return len(seen) == len(each)

    def watched(made_up: torch.Tensor) -> bool:
        with watch.following(made_up):  # in batches, too: a module may look at their length
            return are_alone(made_up) and not watch.names

    return rows if rows > 1 and first_taken(tuple(zeros.shape[1:]), watched) else 1


def _convolutions(tensors: Mapping[str, torch.Tensor], name: str) -> int:
    """How many convolutions a file holds, and nothing besides."""
    matches = [_CONVOLUTION.fullmatch(key) for key in tensors]
    ranks = {int(match[1]) for match in matches if match}
    whole = all(matches) and ranks == set(range(1, 1 + len(ranks))) and ranks
    if not whole or any(tensors.get(f"conv{k}.weight", torch.zeros(0)).dim() != 4 for k in ranks):
        raise ModelError(
            f"expected conv1.weight, conv1.bias, conv2.weight, … in {name}, each weight of shape "
            f"(out, in, height, width), found {sorted(tensors)[:8]}; save the layers by these names"
        )
    return len(ranks)


class Normalise(nn.Module):
    """Subtracts public means from the channels, and divides by public standard deviations."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor(mean)[:, None, None])
        self.std = nn.Buffer(torch.tensor(std)[:, None, None])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to the same."""
        if images.dim() != 4 or images.shape[1] != len(self.mean):
            raise RuntimeError("expected one mean per channel")
        return (images - self.mean) / self.std


def frozen_features(extractor: nn.Module, inputs: torch.Tensor, cache: Path) -> NDArray[Any]:
    """What a public `extractor` gives for records in eval mode, computed once, kept in `cache`."""
    path = _kept_at(cache, extractor, inputs)
    known = None if path is None else _read(path, len(inputs))
    if known is not None:
        return known
    training = extractor.training
    extractor.eval()
    try:
        features = features_by(extractor, inputs)
    finally:
        extractor.train(training)
    if path is not None:
        _store(path, features)
    return features


def _kept_at(cache: Path, extractor: nn.Module, inputs: torch.Tensor) -> Path | None:
    """Where these features are, or will be; None where nothing can be kept.

    The name is a HMAC over the way of computing, the extractor's layers and weights, and the
    records, under a key that never leaves the folder: a name tells who sees it nothing of them.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        digest = hmac.new(_key(cache / "key"), b"in batches\n", hashlib.sha256)
    except OSError:
        return None
    digest.update(repr(extractor).encode())
    for name, tensor in (*extractor.state_dict().items(), ("inputs", inputs)):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return cache / f"{digest.hexdigest()}.npy"


def _key(path: Path) -> bytes:
    """The folder's key, drawn by one silo of the machine if there is none.

    Raises:
        OSError: it cannot be read or drawn, or another silo draws it now.
    """
    if path.is_file() and path.stat().st_size == KEY_BYTES:
        return read_bytes(path, most=KEY_BYTES)
    with locked(path.with_name(_LOCK)):
        if not path.is_file() or path.stat().st_size != KEY_BYTES:  # nobody has meanwhile
            write_bytes(path, SecureSource().bytes(KEY_BYTES), mode=PRIVATE)
        return read_bytes(path, most=KEY_BYTES)


def _read(path: Path, records: int) -> NDArray[Any] | None:
    """Whole features of so many records; None where there are none."""
    try:
        with open_ordinary(path) as file:
            features: NDArray[Any] = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError):
        return None
    whole = features.dtype == np.float32 and features.ndim == 2 and len(features) == records
    return features if whole else None


def _store(path: Path, features: NDArray[Any]) -> None:
    """Keep them, readable by the owner only; where that cannot be, they are made again next time.

    Under the lock, parts of files are those of processes that were killed.
    """
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(features))
    with suppress(OSError), locked(path.with_name(_LOCK)):
        for part in path.parent.glob("*.part"):
            part.unlink(missing_ok=True)
        rows = np.ascontiguousarray(features).reshape(-1).view(np.uint8).data
        write_bytes(path, head.getvalue(), rows, durable=False, mode=PRIVATE)


# Low-rank adapters over a frozen module: `kind = "lora"` (LoRA, Hu et al. 2021).
#
# The frozen module's weights W are public and stay as they are. A target, a Linear layer of it,
# gives W x + B A x with an A of `rank` rows and a B of `rank` columns; a head turns the module's
# features into logits. A, B and the head are all that is trained, clipped, noised and sent. B and
# the head are zero at first, so that the model begins with the frozen module's features.
#
# A and B are Linear layers of their own, called where the target is called: each is a site of its
# own (per_record.py), and no gradient of the size of W is made.


def low_rank_model(asked: Model, *, seed: bytes) -> LowRank:
    """The model of a study of kind "lora"; the first A of each target follows from public bytes."""
    assert asked.frozen is not None, "a study of this kind has it"  # noqa: S101
    base = frozen_layers(asked.frozen, Path())
    with seeded_by(seed):
        for layer in _targets(base, asked.target_modules):
            _adapt(layer, asked.rank)
    return LowRank(base, asked.frozen.features, asked.outputs)


class LowRank(nn.Module):
    """A frozen module with adapters in it, and a head on the (n, features) that it gives.

    One output gives logits of shape (n,).
    """

    def __init__(self, base: nn.Module, features: int, outputs: int) -> None:
        super().__init__()
        self.base, self.head = base.eval(), nn.Linear(features, outputs)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def train(self, mode: bool = True) -> Self:
        """As of any module, but that what is frozen is in evaluation mode always."""
        super().train(mode)
        self.base.eval()
        return self

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Logits of (n, ...) records."""
        outputs = self.base(records)
        if outputs.dim() != 2 or outputs.shape[1] != self.head.in_features:
            raise ModelError(
                f"expected a frozen module that gives ({self.head.in_features},) features for each "
                f"record, as model.frozen.features says, found {tuple(outputs.shape[1:])}; fix one"
            )
        logits: torch.Tensor = self.head(outputs)
        return logits.squeeze(-1) if self.head.out_features == 1 else logits


class Adapter(nn.Module):
    """What is added to the output of a frozen layer: B A x."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(
        self, _: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor
    ) -> torch.Tensor:
        """As a forward hook of the layer."""
        raised: torch.Tensor = output + self.up(self.down(inputs[0]))
        return raised


def _targets(base: nn.Module, names: tuple[str, ...]) -> list[nn.Linear]:
    """The layers whose names are, or end with, one of those asked for."""
    modules = dict(base.named_modules())
    targets: list[nn.Linear] = []
    for name in names:
        mine = [one for key, one in modules.items() if f".{key}".endswith(f".{name}")]
        # A layer of another type may have its weights used without being called itself.
        linear = [one for one in mine if type(one) is nn.Linear]
        if not linear or len(linear) < len(mine):
            some = [key for key, one in modules.items() if type(one) is nn.Linear][:8]
            kinds = sorted({type(one).__name__ for one in mine}) or "no layer"
            raise ModelError(
                "expected model.target_modules to name Linear layers of the frozen module, "
                f'"{name}" names {kinds}; choose some like {some}'
            )
        targets += linear
    return list(dict.fromkeys(targets))


def _adapt(layer: nn.Linear, rank: int) -> None:
    most = min(layer.in_features, layer.out_features)
    if rank > most:
        raise ModelError(
            f"expected model.rank <= {most}, the smaller side of a target of shape "
            f"{tuple(layer.weight.shape)}, found {rank}; lower it"
        )
    adapter = Adapter(layer, rank)
    layer.add_module("adapter", adapter)
    layer.register_forward_hook(adapter)
