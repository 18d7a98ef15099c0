"""Synthetic records of all silos, made of a few noisy sums over their columns (P26)."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hubbub.core.errors import StudyError, UserError
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Query, QueryWarnings, Released
from hubbub.core.study.data import Data
from hubbub.core.study.privacy import Privacy
from hubbub.core.study.study import Study
from hubbub.core.tabular.csv_text import csv_text
from hubbub.estimation.queries.promise_of_answers import promise_of
from hubbub.estimation.queries.statistic_sums import SumLayout
from hubbub.estimation.queries.sums_query import SumsQuery
from hubbub.estimation.queries.synthesis_ask import SynthesisAsk
from hubbub.estimation.synthesis import expectation
from hubbub.estimation.synthesis.choice import without_room
from hubbub.estimation.synthesis.design import MOST_UNITS, Design
from hubbub.estimation.synthesis.drawn_cells import Table
from hubbub.estimation.synthesis.release import SyntheticData, summary_of
from hubbub.estimation.synthesis.synthesis_answers import CAUTION, answers_of
from hubbub.estimation.synthesis.synthetic_keys import AskedSynthesis

SYNTHESIS = "synthetic"
SYNTHETIC_SUMS, SYNTHETIC, SYNTHETIC_MODEL, RECORDS = SynthesisAsk.files


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

    @cached_property
    def design(self) -> Design:
        """What a record sends."""
        return Design(
            columns=self.asked.columns,
            targets=self.asked.target_places,
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
    def purpose(self) -> str:
        """What its sums are for."""
        return SYNTHESIS

    @property
    def most_units(self) -> int:
        """For which sums of counts are exact (P26 d)."""
        return MOST_UNITS

    @property
    def epsilon(self) -> float | None:
        """Its part beside other queries; None where nothing else is asked."""
        return self.asked.epsilon or None

    @property
    def kept_in(self) -> str:
        """The file of a run's folder that keeps the sums."""
        return SYNTHETIC_SUMS

    @property
    def answered_in(self) -> str:
        """The file that says what they say."""
        return SYNTHETIC

    def warnings(self, study: Study) -> QueryWarnings:
        """Of what cannot be foreseen, and of silos and targets that may be too large."""
        data, sums = self.data, []
        if data.records > self.most_units and not data.capacity:
            sums.append(
                f"a silo of more than {self.most_units:,} {data.unit}s cannot take part in "
                "synthetic records: divide it among several, and state data.capacity"
            )
        if crowded := without_room(self.design):
            sums.append(
                f"synthetic.targets have too many levels together: {', '.join(crowded)} will not "
                "be counted with each of them; take fewer bins, categories or targets"
            )
        return QueryWarnings(
            records_unknown=(
                "data.records is not stated: how near synthetic records will be cannot be foreseen",
            ),
            sums=tuple(sums),
        )

    def plan_rows(self, planned: PlannedQuery[Query], records: int) -> list[PlanRow]:
        """What noise alone will do to the records, and which columns are too fine for it."""
        if not records:
            return []
        foreseen = expectation.foreseen(self.design, planned.total_sigma, records)
        fine = ", ".join(foreseen.too_fine) or "none"
        return [
            PlanRow("synthetic records", foreseen.column, "share that noise misplaces in a column"),
            PlanRow(
                "synthetic records", foreseen.pair, "share that noise misplaces in a pair, at most"
            ),
            PlanRow("synthetic records", fine, "columns too fine for the noise"),
        ]

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

    def released(self, plan: Plan, parameters: Parameters) -> Released:
        """Records, the model that they are drawn from, and how both compare with the sums.

        Where hardly a record keeps the rules there are none: the sums are spent and say the rest.
        """
        planned, data = plan.planned(SYNTHESIS), self.synthetic(plan, parameters)
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
    _check_units(study.data, study.parties.silos)
    return SynthesisQuery(study.synthetic, study.data, study.privacy)


def _check_units(data: Data, silos: int) -> None:
    """No silo may, and none must, have more units than sums are exact for (P26 d)."""
    most, unit = MOST_UNITS, data.unit
    if max(data.capacity, default=0) > most:
        raise StudyError(
            f"expected data.capacity of at most {most:,} {unit}s of a silo with [synthetic], got "
            f"{max(data.capacity):,}; lower it, and divide a larger silo among several"
        )
    if not data.capacity and data.records > silos * most:
        raise StudyError(
            f"expected at most {most:,} {unit}s of a silo with [synthetic], {silos * most:,} in "
            f"all, got data.records = {data.records:,}; divide the silos among several"
        )
