"""What a silo loads into its memory, and what it need not."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hubbub.learning.model_state import OperationMode

_PREPARED = """
import sys
from hubbub.core.study.study import Study
from hubbub.learning.runs.preparing import prepare
study = Study.parse('''
study.name = "lean"
parties = {names = ["a", "b", "c"], colluders = 1}
data = {source = "hubbub.datasets:heart", target = "disease", records = 735, capacity = 320}
model = {kind = "logistic", inputs = [26]}
training = {steps = 2, sample_rate = 0.2}
privacy = {epsilon = 2.0, delta = 1e-5}
'''.replace('"a", "b", "c"', '"cleveland", "hungary", "switzerland", "va-long-beach"'))
prepare(study, whose=["cleveland"])
print(*sorted({"torch._dynamo", "torch._inductor", "sympy", "scipy.stats"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_silo_prepares_itself_without_torchs_compiler(tmp_path: Path) -> None:
    """Eight hundred modules, 85 MiB and seconds of a processor, for what is never compiled."""
    command = [sys.executable, "-c", _PREPARED]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.split() == []


class Counting(OperationMode):
    """How many operations there were."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.slow_cases("True")
@pytest.mark.parametrize("loaded", [False, True])
def test_a_mode_sees_operations_whether_or_not_the_compiler_is_loaded(
    loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loaded:
        importlib.import_module("torch._dynamo")
    else:
        monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    mode = Counting()
    with mode:
        nn.functional.relu(torch.ones(3)) + 1
    assert mode.seen >= 3
