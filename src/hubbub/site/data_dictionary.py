"""A study's data dictionary: what each column means, for the people who fill it at a site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hubbub.core.errors import StudyError
from hubbub.core.study.source import table_source
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column


class DictionaryEntry(NamedTuple):
    """One column: its role and kind, bounds in its unit, and what a missing cell means."""

    column: str
    role: str  # "target", "event", "patient", "order", "feature" or "statistics"
    kind: str  # "number", "code" or "key"
    low: str = ""
    high: str = ""
    step: str = ""  # of which values are multiples, counted from low
    codes: tuple[str, ...] = ()  # spellings that may occur
    unit: str = ""
    missing: str = "not allowed"
    concepts: tuple[int, ...] = ()  # OMOP's ids

    def row(self) -> tuple[str, ...]:
        """As texts."""
        concepts = " ".join(map(str, self.concepts))
        return (*self[:6], " | ".join(self.codes), self.unit, self.missing, concepts)


HEAD = DictionaryEntry._fields


def data_dictionary(study: Study) -> list[DictionaryEntry]:
    """What each column of a study means.

    Raises:
        StudyError: the study says nothing of columns.
    """
    if not study.data.is_declared or not study.data.columns:
        raise StudyError(
            "expected data.columns of files, a query or a cohort, got none; a function of one's "
            "own says itself what records are"
        )
    source = table_source(study.data.source)
    meanings = {} if source is None else source.meanings(study.data.request)
    return [
        *_keys(study),
        *_targets(study),
        *(
            _entry(study, column, *meanings.get(column.name, ("", ())))
            for column in study.data.columns
        ),
    ]


def _keys(study: Study) -> Iterator[DictionaryEntry]:
    if study.data.patient:
        yield DictionaryEntry(column=study.data.patient, role="patient", kind="key")
    if study.data.order:
        yield DictionaryEntry(
            column=study.data.order, role="order", kind="number", missing="comes last"
        )


def _targets(study: Study) -> Iterator[DictionaryEntry]:
    """The target, and the event of a time."""
    data, outcome = study.data, study.data.outcome
    if not data.target:
        return
    if outcome is None:
        codes = (*data.negative, *data.positive) or data.classes
        yield DictionaryEntry(column=data.target, role="target", kind="code", codes=codes)
        return
    high = outcome.grid[-1] if outcome.grid else outcome.high
    low = 0.0 if outcome.grid else outcome.low
    yield DictionaryEntry(
        column=data.target, role="target", kind="number", low=f"{low:g}", high=f"{high:g}"
    )
    if outcome.event:
        codes = (*outcome.negative, *outcome.positive)
        yield DictionaryEntry(column=outcome.event, role="event", kind="code", codes=codes)
    if outcome.exposure:
        longest = f"{outcome.exposure_high:g}"
        yield DictionaryEntry(
            column=outcome.exposure, role="exposure", kind="number", low="above 0", high=longest
        )


def _entry(study: Study, one: Column, unit: str, concepts: tuple[int, ...]) -> DictionaryEntry:
    """A column that is declared."""
    missing = "not allowed" if one.complete or one.default is None else f"counts as {one.default}"
    if one.default is None and not one.complete and not (one.feature and study.model):
        missing = "allowed"
    spelled = f", also written {' | '.join(one.missing)}" if one.missing else ""
    low, high = ("", "") if one.categories else (f"{bound:g}" for bound in one.bounds)
    return DictionaryEntry(
        column=one.name,
        role="feature" if one.feature and study.model else "statistics",
        kind="code" if one.categories else "number",
        low=low,
        high=high,
        step="" if one.step is None else f"{one.step:.15g}",
        codes=one.categories,
        unit=unit,
        missing=missing + spelled,
        concepts=concepts,
    )
