"""Is joining worth it? One study run by hubbub and by every baseline, several times over.

One test set says little, and one draw of the noise less, so a mean is compared with its interval.
Where the data source can split its records anew, each repeat takes another public split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import hubbub.learning as learning
from hubbub.core.disk import write_text
from hubbub.core.errors import StudyError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.plan_rows import promised_against
from hubbub.core.runs import prepared_study
from hubbub.core.study import silo_records
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.desk.report import report_of_run
from hubbub.desk.report.arrangements import Arrangement, ArrangementTable, interval
from hubbub.learning.metric_words import METRICS, is_held_back, metrics_of
from hubbub.learning.queries.training_query import held_back_share
from hubbub.learning.runs import baselines, run_study
from hubbub.learning.runs.baselines import REHEARSAL
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.result import Result

_HELD_BACK = 0.2  # of a silo's records, where the study holds none back
MODES = ("federated", *baselines.BASELINES)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The final metric of every mode over the repeats."""

    metric: str  # its key in the rows of the metrics, such as "auc"
    values: Mapping[str, Sequence[float]]  # by mode, one for each repeat
    is_split: bool  # whether each repeat had another split of the records
    held_back: float = 0.0  # share of each silo's records that scored; 0 where public ones did
    first: Result  # hubbub's own run, the first repeat

    @property
    def repeats(self) -> int:
        """How many there are of every mode."""
        return len(self.values["federated"])

    @property
    def mean(self) -> dict[str, float]:
        """By mode, over the repeats."""
        return {mode: float(np.mean(values)) for mode, values in self.values.items()}

    @property
    def spread(self) -> dict[str, float]:
        """Standard deviation over the repeats, by mode."""
        return {mode: float(np.std(values)) for mode, values in self.values.items()}

    @property
    def plan(self) -> Plan:
        """The plan of the first repeat; those of the others differ in the split only."""
        return self.first.plan

    def table(self) -> ArrangementTable:
        """For the report: mean and 95 % interval of every mode, and whom its epsilon holds for."""
        kind = "splits of the records" if self.is_split else "draws of coins and noise"
        records = "public test records"
        if self.held_back:
            records = f"{self.held_back:.0%} of each silo's records, held back, without noise"
        how = f"Scored on {records}, over {self.repeats} {kind}."
        arrangements = []
        for mode, mean in self.mean.items():
            low, high = interval(self.values[mode], self.metric)
            who = promised_against(self.plan.stated.adversary, mode)
            epsilon = None if who is None else self.plan.stated.epsilon
            ends = {"low": low, "high": high, "epsilon": epsilon}
            arrangements.append(Arrangement(name=mode, mean=mean, **ends, adversary=who))
        return ArrangementTable(metric=self.metric, arrangements=tuple(arrangements), how=how)


def compare(
    study: Study,
    *,
    repeats: int,
    modes: Sequence[str] = MODES,
    out: Path | None = None,
    ledgers: Path | None = None,
    metric: str | None = None,
    progress: Callable[[], None] | None = None,
) -> Comparison:
    """Run a study in every mode, several times over.

    The first run of hubbub goes through the whole protocol and is charged where there are ledgers;
    its repeats are rehearsed, which has the same law. Without a public test set it trains on all
    records and none of it is scored: every repeat is, on records of silos that it holds back.

    Args:
        study: what to compare.
        repeats: how often, at least 1.
        modes: "federated" and baselines.
        out: folder for hubbub's first run and the report.
        ledgers: folder of the silos' ledgers, as for `run`.
        metric: by which to compare; the telling one of the target's kind if None.
        progress: called after every run.
    """
    _check_asked(study, metric)
    wanted = tuple(dict.fromkeys(("federated", *modes)))
    takes_split = silo_records.takes_split(study)
    finals: dict[str, list[Mapping[str, float]]] = {mode: [] for mode in wanted}
    first: Result | None = None
    share = 0.0
    for repeat in range(repeats):
        whole = prepared = _prepared(study, repeat if takes_split else None, first)
        if whole.test is None:
            share = held_back_share(study) or _HELD_BACK
            prepared = _split(whole, share, repeat)
        only_final = replace(prepared, looks=0)
        if first is None:
            _check_metric(metric, prepared)  # before anything is trained or charged
            first = run_study.run_prepared(whole, out, ledgers=ledgers)
        for mode in wanted:
            if mode == "federated" and repeat == 0 and prepared is whole:
                result = first
            else:
                how = baselines.REHEARSAL if mode == "federated" else mode
                result = run_study.run_prepared(only_final, None, baseline=how)
            finals[mode].append(result.final)
            if progress is not None:
                progress()
    assert first is not None  # noqa: S101  # repeats >= 1
    if metric is None:
        metric = metrics_of([finals["federated"][0]])[0]
    comparison = Comparison(
        metric=metric,
        values={mode: [row[metric] for row in rows] for mode, rows in finals.items()},
        is_split=takes_split or share > 0,
        held_back=share,
        first=first,
    )
    if out is not None:
        text = json.dumps(comparison.table().to_dict(), indent=2)
        write_text(out / report_of_run.COMPARISON, text)
        report_of_run.write_report(out)
    return comparison


def _check_asked(study: Study, metric: str | None) -> None:
    """What can be told at once: a model, a metric that there may be."""
    if study.training is None:
        raise StudyError(
            "expected a study that trains a model, got one with statistics only; hubbub "
            "plan shows how precise they will be"
        )
    own = {name.rpartition(":")[2] for name in study.training.metrics}
    known = {name for name in METRICS if study.training.evaluate or not is_held_back(name)} | own
    if metric is not None and metric not in known:
        raise _none_of(metric, sorted(known))


def _none_of(metric: str, known: Sequence[str]) -> StudyError:
    listed = ", ".join(known)
    return StudyError(f"expected one of the metrics {listed}, got {metric!r}; choose one of them")


def _check_metric(metric: str | None, prepared: prepared_study.PreparedStudy) -> None:
    """A model of any weights tells whether this kind of target has such a metric."""
    if metric is None or is_held_back(metric):
        return
    start = prepared.initial  # which alone may say the same of all records
    shaken = np.random.default_rng(0).normal(start, 0.01).astype(np.float32)
    known = metrics_of([prepared.evaluate(shaken)])
    if metric not in known:
        raise _none_of(metric, known)


def _prepared(
    study: Study, split: int | None, first: Result | None
) -> prepared_study.PreparedStudy:
    if split is not None:
        options = {**dict(study.data.options), "split": split}
        data = replace(study.data, options=tuple(sorted(options.items())))
        study = study.changed(data=data)
    return prepare(study, first.plan if first else None, "auto")


def _split(
    prepared: prepared_study.PreparedStudy, share: float, repeat: int
) -> prepared_study.PreparedStudy:
    """The study with other records held back at every silo, which score it together."""
    silos, back, seed = [], [], prepared.study.id + repeat.to_bytes(4, "big")
    for silo in prepared.silos:
        parts = [one for one in (silo.records, silo.held_back) if one is not None and len(one)]
        records = Records.together(parts)
        chosen = learning.held_back(records, share, seed)
        back.append(records.part(chosen))
        held = back[-1] if held_back_share(prepared.study) else silo.held_back
        silos.append(replace(silo, records=records.part(~chosen), held_back=held))
    scored = [one for one in back if len(one)]
    test = Records.together(scored) if scored else None
    return replace(prepared, silos=tuple(silos), test=test)


# A rehearsal has the law of a run in every number that is released, the coins of all silos, the
# noise of all shares, the rounding, and none of its protection: no masks, no signatures, no ledger,
# no folder. It is for choosing learning rates and clips, at the price of plain DP-SGD.


def rehearse(
    study: Study,
    *,
    repeats: int = 1,
    device: str = "auto",
    progress: Callable[[], None] | None = None,
) -> tuple[Result, ...]:
    """Rehearse a study: what runs would give, without protection, for public or made-up records.

    Guarantees:
        1. Each result has the distribution of what `run` gives where every silo answers, up to what
           a float32 sum rounds.
        2. Nothing is written or charged, so nothing is guaranteed: choosing anything by the outcome
           of a rehearsal on private records is a release.

    Args:
        study: what to rehearse.
        repeats: number of rehearsals, each with its own coins and noise.
        device: where gradients are made: "auto" (a GPU if there is one), "cpu" or "cuda".
        progress: called after every rehearsal.

    Returns:
        One result for each; its epsilon is what a run would spend.

    Raises:
        StudyError: the study cannot be run.
        DataError: a silo's records do not fit it.
        ModelError: the model cannot be trained with a guarantee for every record.
        UserError: there is no such device.

    >>> from dataclasses import replace
    >>> from importlib import resources
    >>> heart = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> study = heart.changed(training=replace(heart.training, steps=2))
    >>> [result.final["step"] for result in rehearse(study, repeats=2)]
    [2, 2]
    """
    Study.expect(study)
    silo_records.forget_all(study, Path())
    prepared = prepare(study, device=device)
    results = []
    for _ in range(repeats):
        results.append(run_study.run_prepared(prepared, None, baseline=REHEARSAL))
        if progress is not None:
            progress()
    return tuple(results)
