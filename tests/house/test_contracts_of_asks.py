"""Every ask keeps the contract that one from outside keeps; broken ones do not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.house.outside import quarters
from tests.house.outside.quarters import Quarters, QuartersAsk, QuartersQuery

from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import Query, QueryState, Released
from hubbub.core.registered import registered
from hubbub.core.settings import Section
from hubbub.core.study.ask import ENTRY_POINTS, Surroundings, asks
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.estimation.queries.sum_layout import SumLayout
from hubbub.testing import check_ask

AGE = Column(name="age", low=0, high=90)
SEX = Column(name="sex", categories=("f", "m"))
DIED = Column(name="died", categories=("no", "yes"))
TARGET = {"target": "died", "positive": ["yes"], "negative": ["no"]}
TRAINING: dict[str, Any] = {
    "model": {"kind": "logistic"},
    "training": {"steps": 2, "sample_rate": 0.5},
}
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "training": (TRAINING, TARGET),
    "statistics": ({"statistics": {"ages": {"kind": "histogram", "column": "age"}}}, {}),
    "synthetic": ({"synthetic": {"bins": 4}}, {}),
    "validation": ({**TRAINING, "validation": {"epsilon": 2.0}}, TARGET),
    "coefficients": ({**TRAINING, "coefficients": {"epsilon": 8.0}}, TARGET),
}
assert STUDIES.keys() == registered(ENTRY_POINTS).keys()  # none is left untried


@pytest.mark.parametrize("table", STUDIES)
def test_an_ask_keeps_its_contract(table: str) -> None:
    (ask,) = (one for one in asks() if table in one.tables)
    tables, data = STUDIES[table]
    check_ask(ask, tables, [AGE, SEX, DIED] if data else [AGE, SEX], data=data)


TABLES = {"quarters": {"column": "age"}}


def test_an_ask_from_outside_keeps_the_contract_and_is_forgotten_again() -> None:
    check_ask(QuartersAsk, TABLES, [AGE])
    assert all("quarters" not in ask.tables for ask in asks())


# Asks that break a law each, all of one that keeps them.


class Pathed(QuartersAsk):
    files = ("../quarters.json",)


class Keyless(QuartersAsk):
    def keys(self) -> dict[str, Any]:
        return {"thirds": super().keys()["quarters"]}


class Unread(QuartersAsk):
    """Takes whatever stands there for age."""

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        return {"quarters": quarters.AskedQuarters(column="age")}


class Mistyping(QuartersAsk):
    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        return {"quarters": quarters.AskedQuarters(column=top.table("quarters")["column"])}


class Ordered(QuartersAsk):
    """An id that depends on the moment."""

    def canonical(self, study: Study) -> dict[str, Any]:
        return {"quarters": {"column": study.quarters.column, "at": time.perf_counter()}}


class Curious(QuartersAsk):
    """Looks at the silos' files as soon as somebody checks the study."""

    def query(self, study: Study, dimension: int | None = None) -> QuartersQuery:
        Path(study.data.files.replace("{name}", "north")).read_text(encoding="utf-8")
        return super().query(study, dimension)


class Other(QuartersAsk):
    """Another query in the place of the sound one."""

    kind: type[QuartersQuery]

    def query(self, study: Study, dimension: int | None = None) -> QuartersQuery:
        sound = super().query(study, dimension)
        return self.kind(sound.column, sound.data, sound.privacy)


def with_layout(stacked: type[Quarters], **changes: Any) -> type[Other]:
    class Query(QuartersQuery):
        @property
        def layout(self) -> SumLayout:
            return replace(super().layout, stacked=stacked(self.column), **changes)

    class Ask(Other):
        kind = Query

    return Ask


@dataclass(frozen=True)
class Doubled(Quarters):
    def sum(self, cells: Mapping[str, Any], at: Any, shares: np.ndarray) -> np.ndarray:
        return 2 * super().sum(cells, at, shares)


@dataclass(frozen=True)
class Ranked(Quarters):
    """Says which place a record has among the others."""

    def sum(self, cells: Mapping[str, Any], at: Any, shares: np.ndarray) -> np.ndarray:
        values = np.nan_to_num(cells["age"])
        return np.bincount((values > values.mean()).astype(int), shares.reshape(-1), 4)


@dataclass(frozen=True)
class Counting(Quarters):
    """Counts places where no record is, too."""

    def sum(self, cells: Mapping[str, Any], at: Any, shares: np.ndarray) -> np.ndarray:
        return super().sum({"age": np.nan_to_num(cells["age"])}, at, np.ones_like(shares))


@dataclass(frozen=True)
class Longer(Quarters):
    size: int = 5


class Drawing(QuartersQuery):
    def released(self, plan: Plan, state: QueryState) -> Released:
        drawn = state.parameters + np.float32(np.random.default_rng().random())
        return super().released(plan, replace(state, parameters=drawn))


class Embellishing(QuartersQuery):
    """Shows a person more than it keeps."""

    def released(self, plan: Plan, state: QueryState) -> Released:
        sound = super().released(plan, state)
        (row, *others) = sound.answers["quarters"].rows
        rows = (replace(row, value=row.value + 100), *others)
        shown = {"quarters": replace(sound.answers["quarters"], rows=rows)}
        return replace(sound, answers=shown)


class Mute(QuartersQuery):
    def released(self, plan: Plan, state: QueryState) -> Released:
        return Released()


class Failing(QuartersQuery):
    def misfit(self, sent: Any, begin: Any, sums: int) -> str:
        raise ZeroDivisionError


class Unnamed(QuartersQuery):
    def released(self, plan: Plan, state: QueryState) -> Released:
        files = super().released(plan, state).files
        return Released(files={**files, "more.json": "{}"})


class Trusting(QuartersQuery):
    """Verifies whatever lies there."""

    def replay_findings(self, folder: Any, plan: Plan, course: Any, shown: Any) -> Any:
        for finding in super().replay_findings(folder, plan, course, shown):
            yield finding if finding.holds else finding._replace(verdict="re-derived")


class Losing(QuartersQuery):
    def restored(self, folder: Path, state: QueryState) -> QueryState:
        return state


class Suspicious(QuartersQuery):
    def misfit(self, sent: Any, begin: Any, sums: int) -> str:
        return "it is not what I like"


class Noisy(QuartersQuery):
    def stepper(self, planned: Any) -> Any:
        sound = super().stepper(planned)

        class Stepper:
            state, load_state = sound.state, sound.load_state

            def step(self, parameters: Any, total: Any, divisor: float) -> Any:
                drawn = np.random.default_rng().random(4)
                return sound.step(parameters, np.asarray(total) + drawn, divisor)

        return Stepper()


class Showing(QuartersQuery):
    def task(self, silo: Any) -> Any:
        task = super().task(silo)
        shown = type("Shown", (), {"__repr__": lambda _: f"{silo.cells.columns}"})()
        for name in ("count", "capacity", "clipped_sum"):
            setattr(shown, name, getattr(task, name))
        return shown


def asking(kind: type[QuartersQuery]) -> type[Other]:
    return type(kind.__name__, (Other,), {"kind": kind})


@dataclass(frozen=True)
class Crowded(QuartersQuery):
    """Has more units than it says that there can be."""

    def max_units(self, silo: Any) -> int:
        return 1


BROKEN: dict[str, tuple[type[QuartersAsk], str]] = {
    "a file with a path": (Pathed, "names its files"),
    "keys of another table": (Keyless, "tables of its own, with a place and keys"),
    "a key that is not read": (Unread, r"a wrong value of quarters\.column is refused"),
    "a text of any type": (Mistyping, r"quarters\.column"),
    "an id by the clock": (Ordered, "is written as it is read"),
    "files opened too soon": (Curious, "nothing is opened"),
    "twice the length": (with_layout(Doubled), "no unit's part .* is longer than its clip"),
    "a diameter too small": (with_layout(Quarters, diameter=1.0), "than its diameter"),
    "records beside others": (with_layout(Ranked), "that of its units' parts"),
    "empty places counted": (with_layout(Counting), "that of its units' parts"),
    "another number of numbers": (with_layout(Longer), "units are summed|as many finite numbers"),
    "drawn answers": (asking(Drawing), "follows from its state alone"),
    "more shown than kept": (asking(Embellishing), "says what a terminal shows"),
    "nothing released": (asking(Mute), "the file with answers .* is written"),
    "an error of its own": (asking(Failing), "nothing of Failing raises .* ZeroDivisionError"),
    "a file nobody named": (asking(Unnamed), "in files that the ask names"),
    "believed by itself": (asking(Trusting), "refused where somebody changed it"),
    "lost in a crash": (asking(Losing), "verifies|goes on from what it kept"),
    "its own start refused": (asking(Suspicious), "begins where its first sum is asked"),
    "drawn steps": (asking(Noisy), "to the same state"),
    "more units than is public": (asking(Crowded), "no more units for .* than is public"),
    "records in a repr": (asking(Showing), "nothing that a silo holds is shown"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_ask_that_breaks_a_law_is_refused_by_that_law(name: str) -> None:
    kind, law = BROKEN[name]
    with pytest.raises(AssertionError, match=law):
        check_ask(kind, TABLES, [AGE])
    assert issubclass(QuartersQuery, Query)
