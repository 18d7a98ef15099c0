"""Checkpoints: where a training stood after a step, on disk before the next step begins.

A checkpoint is a safetensors file whose name ends with the SHA-256 of its bytes, so that a single
changed bit shows. The newest two are kept. A checkpoint says nothing about what was spent after it
was written: only the ledgers know that, and a resumed run asks them (docs/privacy.md P15).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from hubbub.core.disk import json_value, read_bytes, why_of, write_bytes
from hubbub.core.errors import IntegrityError
from hubbub.core.planning.query import QueryState
from hubbub.core.protocol.primitives.message_sizes import SESSION_BYTES

_NAME = re.compile(r"step-(\d{8})-([0-9a-f]{64})\.safetensors")
_KEPT = 2
_MOST_BYTES = 2**36  # of the file: a model, and what its optimizer remembers
_OPTIMIZER = "optimizer."
_PARAMETERS = "parameters"
_SAID = "state"
_KINDS = {"<f4": "F32", "<f8": "F64", "<i8": "I64"}  # as safetensors calls them


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where a training stood."""

    state: QueryState
    # Of the silos' ledgers at that time: one that does not hold its own was put back.
    heads: Mapping[str, bytes] = field(default_factory=dict)


class CheckpointWriter:
    """Puts the states of a run on disk, one after the other, on a thread of its own.

    A state that is not on disk when the process dies is lost with its step, whose attempt stays
    charged (docs/privacy.md P15). So whoever is about to charge the next attempt waits for it first
    (`wait`), or, where the parties charge it elsewhere, lets the step be lost.
    """

    def __init__(self, write: Callable[[QueryState, Mapping[str, bytes]], None]) -> None:
        self._write, self._pool = write, ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()  # what was begun is finished

    def keep(
        self, state: QueryState, heads: Mapping[str, bytes], then: Callable[[], None] = lambda: None
    ) -> None:
        """Begin to write a state, and then do something more, once this is over for the last."""

        def work() -> None:
            self._write(state, heads)
            then()

        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        """Until the last state is on disk; its errors are raised here."""
        if self._last is not None:
            self._last.result()


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Put a state on disk, all at once or not at all, and remove all but the newest two."""
    folder.mkdir(exist_ok=True)
    content, name = _packed(checkpoint), f"step-{checkpoint.state.step:08d}"
    with ThreadPoolExecutor(1) as beside:  # it is hashed while the disk takes it
        digest = beside.submit(_digest, content)

        def named() -> Path:
            return folder / f"{name}-{digest.result()}.safetensors"

        write_bytes(folder / name, *content, named=named)
    for old, _ in _checkpoints(folder)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return named()


def _digest(content: Sequence[bytes | memoryview]) -> str:
    """SHA-256 of the pieces one after the other."""
    digest = hashlib.sha256()
    for piece in content:
        digest.update(piece)
    return digest.hexdigest()


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The one after the last step that was kept, or IntegrityError; None if there is none yet."""
    checkpoints = _checkpoints(folder)
    if not checkpoints:
        return None
    path, digest = checkpoints[-1]
    try:
        content = read_bytes(path, most=_MOST_BYTES)
    except OSError as error:
        raise IntegrityError(
            f"expected a checkpoint that can be read at {path}, got: {why_of(error)}; delete it "
            "to go on from the one before, or restore a backup"
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise IntegrityError(
            f"expected the checkpoint {path} to have the digest in its name, it was altered; "
            "delete it to go on from the one before, or restore a backup"
        )
    return _unpacked(path, content)


def _checkpoints(folder: Path) -> list[tuple[Path, str]]:
    """The checkpoints in a folder and their digests, oldest first; of one step, as written."""
    paths = folder.iterdir() if folder.is_dir() else ()
    named = [(path, match) for path in paths if (match := _NAME.fullmatch(path.name))]
    named.sort(key=lambda pair: (int(pair[1][1]), pair[0].stat().st_mtime_ns))
    return [(path, match[2]) for path, match in named]


def _packed(checkpoint: Checkpoint) -> list[bytes | memoryview]:
    """A checkpoint as the pieces of a safetensors file; no array is copied."""
    state = checkpoint.state
    arrays: dict[str, NDArray[Any]] = {_PARAMETERS: np.ascontiguousarray(state.parameters)}
    for name, value in state.optimizer.items():
        arrays[_OPTIMIZER + name] = np.ascontiguousarray(np.atleast_1d(value))
    said = {
        "step": state.step,
        "attempts": state.attempts,
        "rows": list(state.rows),
        "heads": {name: head.hex() for name, head in checkpoint.heads.items()},
        "scalars": sorted(name for name, value in state.optimizer.items() if np.ndim(value) == 0),
    }
    if state.row_due:
        said["owed"] = state.row_due
    header: dict[str, Any] = {"__metadata__": {_SAID: json.dumps(said)}}
    pieces: list[bytes | memoryview] = []
    place = 0
    for name, array in sorted(arrays.items(), key=lambda one: -one[1].itemsize):  # so all align
        end = place + array.nbytes
        kind, shape = _KINDS[array.dtype.newbyteorder("<").str], list(array.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, end]}
        pieces.append(array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B"))
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *pieces]


def _unpacked(path: Path, content: bytes) -> Checkpoint:
    """The checkpoint that `_packed` wrote."""
    try:
        arrays = load(content)
        size = int.from_bytes(content[:8], "little")
        said = json_value(json_value(content[8 : 8 + size])["__metadata__"][_SAID])
        optimizer = {
            name.removeprefix(_OPTIMIZER): value
            for name, value in arrays.items()
            if name.startswith(_OPTIMIZER)
        }
        for name in said["scalars"]:
            optimizer[name] = optimizer[name].reshape(())
        state = QueryState(
            step=int(said["step"]),
            attempts=int(said["attempts"]),
            parameters=arrays[_PARAMETERS],
            optimizer=optimizer,
            rows=tuple(said["rows"]),
            row_due=int(said.get("owed", 0)),
        )
        heads = {name: bytes.fromhex(head) for name, head in said["heads"].items()}
        return Checkpoint(state=state, heads=heads)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(
            f"expected a checkpoint that this version wrote at {path}, found another file "
            f"({type(error).__name__}); use the version of hubbub that wrote it"
        ) from None


_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class RunMetadata:
    """What a run must know of itself to go on after a crash: `run.json`."""

    study: str  # its id, hexadecimal
    baseline: str | None  # which one, or None for hubbub
    ledgers: str  # the folder of the silos'; empty where each silo keeps its own elsewhere
    sessions: Mapping[str, tuple[str, ...]]  # that were opened, by what was summed in them
    # Of the silos' ledgers before anything was charged, hexadecimal; none before that.
    heads: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [one for opened in self.sessions.values() for one in opened]
        Path(self.ledgers)  # TypeError unless it is a text
        if (
            not all(len(bytes.fromhex(hex_id)) == SESSION_BYTES for hex_id in ids)
            or not all(len(bytes.fromhex(head)) == 32 for head in self.heads.values())
            or (ids and self.ledgers and self.baseline is None and not self.heads)
        ):
            raise ValueError("notes of something else")

    def to_json(self) -> str:
        """What `read_metadata` reads."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=2)


def read_metadata(path: Path) -> RunMetadata:
    """What `run.json` says; IntegrityError if that is not as this version writes it."""
    try:
        said = json_value(read_bytes(path))
        if said.pop("format") != _FORMAT:
            raise ValueError
        sessions = {purpose: tuple(opened) for purpose, opened in said.pop("sessions").items()}
        return RunMetadata(**said, sessions=sessions)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise IntegrityError(
            f"expected {path} as this version writes it, found something else; restore it, or use "
            "the version of hubbub that wrote it"
        ) from None
