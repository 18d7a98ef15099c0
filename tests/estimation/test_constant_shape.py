"""How long a record's numbers take says nothing of its cells: all do the same operations.

No test can hold a clock to that. What is counted here is what a time could follow from: every line
of hubbub that runs, the shape of every array that it names, and each operation on what came from
cells, with the shapes that go in and, of a mask that chooses, how many it chooses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import hubbub
from estimation.test_layouts import COLUMNS, KINDS, blocks, worst_records
from hubbub.core.tabular.records import Records
from hubbub.estimation.stacking import stack
from hubbub.learning.queries.beside_training import FeatureSums

N = 60
OURS = f"{Path(hubbub.__file__).parent}{os.sep}"
PATTERNS: dict[str, Callable[[float, float], np.ndarray]] = {
    "nothing is missing": lambda low, high: np.full(N, low),
    "all is missing": lambda _, __: np.full(N, np.nan),
    "every other": lambda low, _: np.where(np.arange(N) % 2, np.nan, low),
    "one is missing": lambda low, _: np.where(np.arange(N) == 7, np.nan, low),
    "the largest": lambda _, high: np.full(N, high),
    "beyond all bounds": lambda _, __: np.where(np.arange(N) % 2, np.inf, -1e300),
    "rising": lambda low, high: np.linspace(low, high, N),
}


class Traced(np.ndarray[Any, Any]):
    """An array that notes what is done with it, and with all that is made of it."""

    log: list[Any] = []  # noqa: RUF012 (one, of all)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        self.log.append((ufunc.__name__, method, tuple(map(np.shape, inputs))))
        out = tuple(map(plain, named.pop("out", ()) or ()))
        if out:
            named["out"] = out
        return traced(getattr(ufunc, method)(*map(plain, inputs), **named))

    def __array_function__(self, function: Any, _: Any, given: Any, named: Any) -> Any:
        found = function(*map(plain, given), **{key: plain(one) for key, one in named.items()})
        self.log.append((function.__name__, np.shape(found)))
        return traced(found)

    def __getitem__(self, key: Any) -> Any:
        self.log.append(("of", self.shape, *chosen(key)))
        return traced(self.view(np.ndarray)[plain(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.log.append(("into", self.shape, *chosen(key), np.shape(value)))
        self.view(np.ndarray)[plain(key)] = plain(value)

    def __bool__(self) -> bool:
        raise AssertionError("a branch on a cell")


def chosen(key: Any) -> list[Any]:
    """What an index chooses, as far as a time could follow from it."""
    parts = key if isinstance(key, tuple) else (key,)
    arrays = [np.asarray(plain(one)) for one in parts if isinstance(one, np.ndarray)]
    return [(one.shape, int(one.sum()) if one.dtype == bool else -1) for one in arrays]


def plain(value: Any) -> Any:
    if isinstance(value, Traced):
        return value.view(np.ndarray)
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value


def traced(value: Any) -> Any:
    return value.view(Traced) if isinstance(value, np.ndarray) else value


def operations(work: Callable[[], Any]) -> list[Any]:
    """All that is noted of a piece of work."""
    Traced.log = log = []

    def seen(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        shapes = {
            name: one.shape for name, one in frame.f_locals.items() if isinstance(one, np.ndarray)
        }
        log.append((frame.f_code.co_name, frame.f_lineno, event, shapes))
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return log


def cells_of(pattern: str) -> dict[str, np.ndarray]:
    ends = {one.name: one.bounds if not one.categories else (0.0, len(one.categories) - 1.0)
            for one in COLUMNS}  # fmt: skip
    return {name: PATTERNS[pattern](*both) for name, both in ends.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_p23_an_encoding_does_the_same_whatever_the_cells_are(kind: str) -> None:
    blocks(kind, worst_records())  # what is made once is made
    logs = []
    for pattern in PATTERNS:
        cells = {name: traced(one) for name, one in cells_of(pattern).items()}
        logs.append(operations(lambda cells=cells: blocks(kind, cells)))
    assert len(logs[0]) > 5
    for pattern, log in zip(PATTERNS, logs, strict=True):
        assert log == logs[0], pattern


def test_p23_a_silos_answer_does_the_same_whatever_its_cells_are() -> None:
    stacked = stack({"q": KINDS["table"], "s": KINDS["survival by group"]})
    logs = []
    for pattern in PATTERNS:
        cells = {name: traced(one) for name, one in cells_of(pattern).items()}
        logs.append(operations(lambda cells=cells: stacked.sum(cells)))
    assert all(log == logs[0] for log in logs)


def test_p16_sums_of_features_do_the_same_whatever_rows_are_held() -> None:
    inputs = np.linspace(-1, 1, 4 * N).reshape(N, 4).astype(np.float32)
    task = FeatureSums(Records(inputs=inputs, targets=np.zeros(N, np.float32)), 3.0, capacity=2 * N)
    logs, sums = [], []
    for held in (0, 1, N):
        rows = np.where(np.arange(2 * N) < held, np.arange(2 * N), -1)
        logs.append(operations(lambda rows=rows: task.clipped_sum(np.zeros(0), traced(rows))))
        sums.append(task.clipped_sum(np.zeros(0), rows))
    assert all(log == logs[0] for log in logs)
    features = np.clip(inputs / 3.0, -1, 1)
    wanted = np.concatenate(([N], features.sum(0), (features**2 - 0.5).sum(0)))
    assert sums[-1] == pytest.approx(wanted, rel=1e-4)  # of float32
    assert not sums[0].any()


def test_the_count_above_sees_a_branch_a_mask_and_a_search_that_stops() -> None:
    def masked(cells: np.ndarray) -> np.ndarray:
        made = cells + 0.0
        made[np.isnan(cells)] = 0.0
        return made

    def found(cells: np.ndarray) -> np.ndarray:
        return np.flatnonzero(cells == cells)

    for work in (masked, found):
        some, none = (
            operations(lambda one=one, work=work: work(traced(np.array(one))))
            for one in ([1.0, np.nan], [1.0, 2.0])
        )
        assert some != none
    with pytest.raises(AssertionError, match="a branch"):
        operations(lambda: bool(traced(np.array([1.0])) > 0))
