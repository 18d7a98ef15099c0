"""Synthetic records of all silos, made of a few noisy sums over their columns (P26).

With them goes what they say beside the sums that they are made of, for people.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError, UserError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Query, QueryState, QueryWarnings, Released
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.core.tabular.cells import csv_text
from hubbub.estimation.intervals import spanned
from hubbub.estimation.queries.sum_layout import SumLayout
from hubbub.estimation.queries.sums_query import SumsQuery, promise_of
from hubbub.estimation.queries.synthesis_ask import SynthesisAsk
from hubbub.estimation.statistic import Answer, Estimate
from hubbub.estimation.synthesis.components import (
    Share,
    expected_variation,
    foreseen,
    one_way,
    two_way,
)
from hubbub.estimation.synthesis.design import MOST_UNITS, Design
from hubbub.estimation.synthesis.entropy_model import Table, without_room
from hubbub.estimation.synthesis.release import SyntheticData, summary_of
from hubbub.estimation.synthesis.synthetic_keys import AskedSynthesis

SYNTHESIS = "synthetic"
SYNTHETIC_SUMS, SYNTHETIC, SYNTHETIC_MODEL, RECORDS = SynthesisAsk.files
KIND, TWO_WAY = "synthetic", "two-way"
_MOST_TABLES = 8  # two-way tables that are shown
# The sentence that stands wherever records are handed out.
CAUTION = (
    "these records are synthetic, made from noisy sums: intervals from an ordinary analysis of one "
    "such table ignore the noise and are too narrow (a 95 % interval contained the truth in 40 to "
    "84 of 100 cases); use the shares with intervals, or combine the same analysis of twenty tables"
)
_NOT_FOR = (
    "not for decisions about single people, nor for how three or more columns depend on "
    "each other: that was not measured, and such results depend on the model"
)


def answers_of(data: SyntheticData, confidence: float = 0.95) -> dict[str, Answer]:
    """One-way comparisons with the noisy sums, and which pairs were measured and how well."""
    return {
        "synthetic records": _one_way(data, confidence),
        "synthetic pairs": _pairs(data, confidence),
        "synthetic tables": _two_way(data, confidence),
    }


def _one_way(data: SyntheticData, confidence: float) -> Answer:
    """Every level's share by the sums, and in the model that records are drawn from."""
    rows = []
    for k, column in enumerate(data.design.columns):
        (clique,) = (one for one in data.model.cliques if one.step.column == k)
        shares = zip(
            column.names,
            one_way(data.components, k, confidence),
            clique.marginal((k,)),
            strict=True,
        )
        for level, share, drawn in shares:
            own = {"column": column.name, "level": level}
            rows.append(_measured(share, group="measured", **own))
            rows.append(_plain(float(drawn), group="synthetic", **own))
    names = [column.name for column in data.design.columns]
    order = ", ".join(
        " given ".join(
            filter(None, (names[step.column], " and ".join(names[k] for k in step.parents)))
        )
        for step in data.choice.steps
    )
    return Answer(
        kind=KIND,
        title="Synthetic records beside the noisy sums",
        confidence=confidence,
        rows=tuple(rows),
        notes=(CAUTION, _NOT_FOR, f"columns are drawn in this order: {order}"),
    )


def _pairs(data: SyntheticData, confidence: float) -> Answer:
    """How far synthetic pairs are from the noisy sums, and how far noise alone would bring them."""
    chosen, rows = _chosen(data), []
    others = [pair for pair in data.choice.scores if pair not in chosen]
    for pair in (*chosen, *others):
        apart, noise = _variation(data, pair)
        how = "whole" if pair in chosen else "in groups of levels"
        score = data.choice.scores[pair]
        level = f"{how}, dependency {score:.1f} standard deviations above the noise"
        names = {"column": _pair_name(data, pair), "level": level}
        rows.append(_plain(apart, group="apart", **names))
        rows.append(_plain(noise, group="noise alone", **names))
    return Answer(
        kind=KIND,
        title="Pairs of columns: total variation between synthetic records and the noisy sums",
        confidence=confidence,
        rows=tuple(rows),
        notes=(
            f"{len(chosen)} of {len(data.design.pairs)} pairs were measured level by level: each "
            "column with the targets, and with the columns on which it depends most according to "
            "the first noisy sum",
            "model-dependent: based on a pair that was not measured, or on three columns or more",
        ),
    )


def _two_way(data: SyntheticData, confidence: float) -> Answer:
    """Tables of pairs that were measured: each cell by the sums, and in the model."""
    shown, inside = _chosen(data)[:_MOST_TABLES], 0
    rows: list[Estimate] = []
    for pair in shown:
        model = data.model.pairs[pair]
        shares = two_way(data.components, pair, confidence, models=model[None])
        a, b = (data.design.columns[k] for k in pair)
        for (i, first), (j, second) in product(enumerate(a.names), enumerate(b.names)):
            share, drawn = shares[i][j], float(model[i, j])
            inside += share.low <= drawn <= share.high
            down, across = (first, second) if a.size >= b.size else (second, first)
            names = {"column": _pair_name(data, pair), "level": across, "group": down}
            rows += [_measured(share, **names), _plain(drawn, **names)]
    cells = len(rows) // 2
    return Answer(
        kind=TWO_WAY,
        title="Shares by the noisy sums, and of the synthetic records",
        confidence=confidence,
        rows=tuple(rows),
        notes=(
            f"of {cells} cells, in {inside} the synthetic share is inside the interval of the sums",
            f"shown are {len(shown)} of {len(_chosen(data))} pairs that were measured level by "
            "level, those with a target first, then those that depend most; pair_shares has all",
        ),
    )


def _measured(share: Share, **names: Any) -> Estimate:
    """A share by the sums."""
    ends = share.low, share.high
    return spanned("share", share.value, share.standard_error, ends, **names)


def _plain(value: float, **names: Any) -> Estimate:
    """A share without an interval."""
    return spanned("share", value, 0.0, (value, value), **names)


def _chosen(data: SyntheticData) -> list[tuple[int, int]]:
    """Pairs that were measured level by level, those with a target first, by their dependency."""
    targets, scores = set(data.design.targets), data.choice.scores
    return sorted(data.choice.pairs, key=lambda one: (not targets & set(one), -scores[one]))


def _pair_name(data: SyntheticData, pair: tuple[int, int]) -> str:
    """What a pair is called: the column with more levels first, as tables have it down."""
    a, b = (data.design.columns[k] for k in pair)
    return f"{a.name} and {b.name}" if a.size >= b.size else f"{b.name} and {a.name}"


def _variation(data: SyntheticData, pair: tuple[int, int]) -> tuple[float, float]:
    """Between model and sums, at what was measured of a pair, and what noise explains of it."""
    components = data.components
    first, second = (data.design.columns[k].contrasts for k in pair)
    effect, many = components.by[pair], components.records
    modelled = first.T @ data.model.pairs[pair] @ second
    apart = np.where(effect.known, effect.value / many - modelled, 0.0)
    noise = np.where(effect.known, effect.variance, 0.0)
    cells: NDArray[np.float64] = first @ apart @ second.T
    spread = first**2 @ noise @ (second**2).T
    return 0.5 * float(np.abs(cells).sum()), expected_variation(spread, many)


@dataclass(frozen=True)
class SynthesisQuery(SumsQuery):
    """A first sum to choose by, and others of what was chosen.

    Args:
        asked: which columns, and how they are counted.
        data, privacy: of the study.
    """

    asked: AskedSynthesis
    data: Data
    privacy: Privacy

    purpose = SYNTHESIS
    kept_in = SYNTHETIC_SUMS
    answered_in = SYNTHETIC
    most_units = MOST_UNITS  # for which sums of counts are exact (P26 d)

    @cached_property
    def design(self) -> Design:
        """What a record sends."""
        return Design(
            columns=self.asked.columns,
            targets=tuple(map(self.asked.names.index, self.asked.targets)),
            rounds=self.asked.sums,
            relation=self.privacy.relation,
        )

    @cached_property
    def layout(self) -> SumLayout:
        """The design's vector, no longer than 1."""
        return SumLayout(
            stacked=self.design,
            unit=self.design.sensitivity,
            diameter=self.design.diameter,
            rounds=self.design.rounds,
        )

    @property
    def epsilon(self) -> float | None:
        """Its part beside other queries; None where nothing else is asked."""
        return self.asked.epsilon or None

    def warnings(self, study: Study) -> QueryWarnings:
        """Of what cannot be foreseen, and of silos and targets that may be too large."""
        data, sums = self.data, []
        if data.records > self.most_units and not data.capacity:
            sums.append(
                f"a silo with more than {self.most_units:,} {data.unit}s cannot take part "
                "in synthetic records: divide it among several, and state data.capacity"
            )
        if crowded := without_room(self.design):
            sums.append(
                f"synthetic.targets have too many levels together: {', '.join(crowded)} will not "
                "be counted with each of them; take fewer bins, categories or targets"
            )
        unknown = (
            "data.records is not stated: the accuracy of synthetic records cannot be computed in "
            "advance"
        )
        return QueryWarnings(records_unknown=(unknown,), sums=tuple(sums))

    def plan_rows(self, planned: PlannedQuery[Query], records: int) -> list[PlanRow]:
        """What noise alone will do to the records, and which columns are too fine for it."""
        if not records:
            return []
        expected = foreseen(self.design, planned.total_sigma, records)
        fine = ", ".join(expected.too_fine) or "none"
        told: dict[str, float | str] = {
            "share that the noise misplaces in a column": expected.column,
            "share that the noise misplaces in a pair, at most": expected.pair,
            "columns too fine for the noise": fine,
        }
        return [PlanRow("synthetic records", value, what) for what, value in told.items()]

    def synthetic(self, plan: Plan, parameters: Parameters) -> SyntheticData:
        """What the sums give, by a plan's noise."""
        planned = plan.planned(SYNTHESIS)
        assert planned is not None, "a plan of this query"  # noqa: S101
        return SyntheticData(
            design=self.design,
            sums=self.layout.sums(parameters),
            sigma=planned.total_sigma,
            wanted=self.asked.records,
            rules=self.asked.rules,
        )

    def released(self, plan: Plan, state: QueryState) -> Released:
        """Records, the model that they are drawn from, and how both compare with the sums.

        Where hardly a record keeps the rules there are none: the sums are spent and say the rest.
        """
        planned, data = plan.planned(SYNTHESIS), self.synthetic(plan, state.parameters)
        assert planned is not None, "a plan of this query"  # noqa: S101
        answers, summary = answers_of(data), dict(summary_of(data))
        model = {"caution": CAUTION, **{key: summary.pop(key) for key in ("cliques",)}}
        files, copies = {SYNTHETIC_MODEL: json.dumps(model)}, {}
        try:
            records = data.draw()
        except UserError as error:
            name, first = next(iter(answers.items()))
            answers[name] = replace(first, notes=(f"no records: {error}", *first.notes))
        else:
            files[RECORDS], copies = records_text(records), _parquet(records)
        told = {
            **promise_of(plan, planned),
            "statistics": {name: one.to_dict() for name, one in answers.items()},
            "synthetic": summary,
        }
        files[SYNTHETIC] = json.dumps(told, indent=1)
        return Released(answers=answers, files=files, copies=copies)


def records_text(records: Table) -> str:
    """Records as a CSV file, whose first line says what they are no good for."""
    rows = zip(*records.values(), strict=True)
    return f"# {CAUTION}\n" + csv_text([list(records), *rows])


def _parquet(records: Table) -> dict[str, str | bytes]:
    """The same as a Parquet file, where pyarrow is installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return {}
    table: Any = pa.table(records)
    table = table.replace_schema_metadata({"hubbub": CAUTION})
    file = io.BytesIO()
    parquet.write_table(table, file)
    return {"synthetic.parquet": file.getvalue()}


def synthesis_of(study: Study) -> SynthesisQuery:
    """The synthetic records of a study.

    Raises:
        StudyError: it asks for none, or a silo may have more units than sums are exact for.
    """
    if study.synthetic is None:
        raise StudyError("expected a study with [synthetic], got one without; add it")
    data, most, unit = study.data, MOST_UNITS, study.data.unit
    # No silo may, and none must, have more units than sums are exact for (P26 d).
    if max(data.capacity, default=0) > most:
        raise StudyError(
            f"expected data.capacity of at most {most:,} {unit}s of a silo with [synthetic], got "
            f"{max(data.capacity):,}; lower it, and divide a larger silo among several"
        )
    room = study.parties.silos * most
    if not data.capacity and data.records > room:
        raise StudyError(
            f"expected at most {most:,} {unit}s of a silo with [synthetic], {room:,} in all, got "
            f"data.records = {data.records:,}; divide the silos among several"
        )
    return SynthesisQuery(study.synthetic, data, study.privacy)
