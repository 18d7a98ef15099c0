"""Is joining worth it? One study run by hubbub and by every baseline, over several splits.

The splits are public train/test splits of the data source; the mean over them is what is compared,
because one test set of a few hundred records says little.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hubbub.disk import write_text
from hubbub.planning import Plan
from hubbub.report import Arrangement, ArrangementTable, interval, promised_against
from hubbub.study import Study
from hubbub.training import baselines, report_of_run, run_study
from hubbub.training.result import Result

MODES = ("federated", *baselines.BASELINES)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The final metric of every mode: its mean over the splits, and its standard deviation.

    Args:
        metric: "auc" or "accuracy", the first that the model has.
        values: by mode, one for each split.
        first: hubbub's own run on the first split.
    """

    metric: str
    values: Mapping[str, Sequence[float]]
    first: Result

    @property
    def mean(self) -> dict[str, float]:
        """By mode, over the splits."""
        return {mode: float(np.mean(values)) for mode, values in self.values.items()}

    @property
    def spread(self) -> dict[str, float]:
        """Standard deviation over the splits, by mode."""
        return {mode: float(np.std(values)) for mode, values in self.values.items()}

    @property
    def plan(self) -> Plan:
        """The plan of the first split; those of the others differ in the split only."""
        return self.first.plan

    def table(self) -> ArrangementTable:
        """For the report: mean and 95 % interval of every mode, and whom its epsilon holds for."""
        splits = len(self.values["federated"])
        how = f"Scored on public test records, over {splits} splits into training and test records."
        found = tuple(self._arrangement(mode) for mode in self.values)
        return ArrangementTable(metric=self.metric, arrangements=found, how=how)

    def _arrangement(self, mode: str) -> Arrangement:
        low, high = interval(self.values[mode])
        who = promised_against(self.plan.stated.adversary, mode)
        return Arrangement(
            name=mode,
            mean=self.mean[mode],
            low=low,
            high=high,
            epsilon=None if who is None else self.plan.stated.epsilon,
            adversary=who,
        )


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
    found = Comparison(
        metric=metric,
        values={mode: [row[metric] for row in rows] for mode, rows in finals.items()},
        first=first,
    )
    if out is not None:
        write_text(out / report_of_run.COMPARISON, json.dumps(found.table().to_dict(), indent=2))
        report_of_run.write_report(out)
    return found
