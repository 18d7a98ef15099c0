"""Is joining worth it? One study run by hubbub and by every baseline, over several splits.

The splits are public train/test splits of the data source; the mean over them is what is compared,
because one test set of a few hundred records says little.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hubbub.disk import write_text
from hubbub.study import Study
from hubbub.training import baselines, report_of_run, run_study
from hubbub.training.result import Result

MODES = ("federated", *baselines.BASELINES)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The final metric of every mode: its mean over the splits, and its standard deviation.

    Args:
        metric: "auc" or "accuracy", the first that the model has.
        mean: by mode.
        spread: standard deviation over the splits, by mode.
        first: hubbub's own run on the first split; other plans differ in the split only.
    """

    metric: str
    mean: Mapping[str, float]
    spread: Mapping[str, float]
    first: Result

    def to_dict(self) -> dict[str, dict[str, float]]:
        """By mode, the mean under the metric's name and the spread."""
        return {
            mode: {self.metric: self.mean[mode], "spread": self.spread[mode]} for mode in self.mean
        }


def compare(
    study: Study,
    *,
    splits: int,
    out: Path | None = None,
    progress: Callable[[], None] | None = None,
) -> Comparison:
    """Run a study in every mode on splits 0 .. splits - 1 of its data source.

    Args:
        study: its data source takes an option `split`.
        splits: how many.
        out: folder for hubbub's run on the first split and the report.
        progress: called after every run.
    """
    finals: dict[str, list[Mapping[str, float]]] = {mode: [] for mode in MODES}
    first: Result | None = None
    for split in range(splits):
        options = {**dict(study.data.options), "split": split}
        one = replace(
            study, toml="", data=replace(study.data, options=tuple(sorted(options.items())))
        )
        for mode in MODES:
            keep = out if split == 0 and mode == "federated" else None
            baseline = None if mode == "federated" else mode
            result = run_study.run(one, keep, baseline=baseline, plan=first.plan if first else None)
            finals[mode].append(result.final)
            first = first or result
            if progress is not None:
                progress()
    assert first is not None  # noqa: S101  # splits >= 1
    metric = next(name for name in ("auc", "accuracy") if name in first.final)
    values = {mode: [row[metric] for row in rows] for mode, rows in finals.items()}
    found = Comparison(
        metric=metric,
        mean={mode: float(np.mean(v)) for mode, v in values.items()},
        spread={mode: float(np.std(v)) for mode, v in values.items()},
        first=first,
    )
    if out is not None:
        write_text(out / report_of_run.COMPARISON, json.dumps(found.to_dict(), indent=2))
        report_of_run.write_report(out)
    return found
