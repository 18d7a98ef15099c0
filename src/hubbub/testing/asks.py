"""The contract of an ask: of which table a study has it, what silos sum for it, and what follows.

Three silos' files are made up in a temporary folder and read as a run reads them. Sums are made by
the silos' own tasks, noise is drawn from a seed, and what a verifier does with what is kept is done
here. There are no parties, frames or ledgers: those know no ask.
"""

from __future__ import annotations

import csv
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import HubbubError
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Query, QueryState, Released, SteppedQuery
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.study.ask import ENTRY_POINTS, Ask, asks
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.verification.replay.course import Course
from hubbub.learning.runs.preparing import prepare
from hubbub.testing.laws import (
    as_declared,
    check_keys,
    completing,
    hold,
    installed,
    opened_by,
    trying,
)

SILOS = ("north", "south", "east")
_RECORDS = 80  # of a silo
_TRIED = 40  # of them by themselves
_ROUNDING = 1 + 1e-5  # of gradients in float32, for which plans leave room
_MISSING = 0.05


def check_ask(
    ask: Ask | type[Ask],
    tables: Mapping[str, Any],
    columns: Sequence[Column],
    *,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Hold an ask, registered or not, to everything that a study relies on.

    Laws:
        1. It has tables, keys and files of its own, and says what they are.
        2. Its tables are read, written and read again to the same study; missing keys, unknown ones
           and wrong types are refused by name. Its query is made with nothing opened.
        3. A unit's part in a sum is no longer than its mechanism says, and no further from another
           unit's; it follows from that unit and what goes down alone. Places without a record add
           nothing, and nothing that silos hold is shown by what prints a task.
        4. The same sums lead to the same state, also from a state that was kept.
        5. What is released follows from the state alone, and its file says what is shown. What is
           kept of it verifies; an answer or sums that were changed do not.

    Args:
        ask: the class, or one of it.
        tables: of a study that asks for it: its own, and others such as `model`.
        columns: of the silos' tables; `data.target` among them is their outcome.
        data: further keys of `[data]`.

    Raises:
        AssertionError: it breaks a law; the sentence says which, and how to mend it.

    >>> age = Column(name="age", low=20, high=90)
    >>> (ask,) = (ask for ask in asks() if ask.tables == ("statistics",))
    >>> check_ask(ask, {"statistics": {"ages": {"kind": "histogram", "column": "age"}}}, [age])
    """
    gaps = "target" not in (data or {})  # of which models make features
    with trying(ask), made_up_silos(columns, gaps=gaps) as folder, ExitStack() as standing:
        ask = ask() if isinstance(ask, type) else ask
        _describes(ask)
        # The ask is found, as if a package registered it.
        registered = {other.tables[0]: other for other in asks()}
        standing.enter_context(installed(ENTRY_POINTS, ask, registered))
        content = study_table(folder, columns, {**tables}, data or {})
        _reads(ask, content)
        study = Study.from_table(content)
        _opens_nothing(ask, study)
        with completing(f"a study with {_name(ask)} is planned", "mend its queries"):
            prepared = prepare(study)
        case = _Case(ask, prepared)
        files = {""}  # of an ask without answers
        for planned in case.mine:
            _sums(case, planned)
            if isinstance(planned.query, SteppedQuery):
                files |= _leads(case, cast("PlannedQuery[SteppedQuery]", planned))
        hold(
            f"the file with answers of {_name(ask)} is written",
            ask.answers in files,
            f"the files {', '.join(sorted(files))}",
            "release it, or name none in `answers`",
        )


def _name(ask: Ask) -> str:
    return f"[{ask.tables[0]}]"


@contextmanager
def made_up_silos(columns: Sequence[Column], *, gaps: bool = True) -> Iterator[Path]:
    """A folder with a CSV file of each silo, of records at random."""
    with tempfile.TemporaryDirectory() as home:
        for seed, silo in enumerate(SILOS):
            rng = np.random.default_rng(seed)
            texts = [_texts(column, rng, gaps) for column in columns]
            with (Path(home) / f"{silo}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow([column.name for column in columns])
                writer.writerows(zip(*texts, strict=True))
        yield Path(home)


def _texts(column: Column, rng: np.random.Generator, gaps: bool) -> list[str]:
    """Cells of a column as files have them; some beyond its bounds, some missing where they may."""
    if column.categories:
        return [str(rng.choice(column.categories)) for _ in range(_RECORDS)]
    low, high = column.bounds
    reach = 0.1 * (high - low)
    values = np.maximum(rng.uniform(low - reach, high + reach, _RECORDS), min(low, 0.0))  # times
    gone = rng.random(_RECORDS) < (_MISSING if gaps and not column.complete else 0.0)
    return ["" if gap else f"{value:.17g}" for value, gap in zip(values, gone, strict=True)]


def study_table(
    folder: Path, columns: Sequence[Column], tables: dict[str, Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """A study of the silos in a folder, with these tables."""
    declared = {
        column.name: as_declared(column) for column in columns if column.name != data.get("target")
    }
    return {
        "study": {"name": "checked", "transcript": "full"},
        "parties": {"names": list(SILOS), "colluders": 1},
        "data": {
            "files": str(folder / "{name}.csv"),
            "columns": declared,
            "records": _RECORDS * len(SILOS),
            **data,
        },
        "privacy": {"epsilon": 20.0, "delta": 1e-5},
        **tables,
    }


@dataclass(frozen=True)
class _Case:
    """An ask that is tried, in a study made ready to run."""

    ask: Ask
    prepared: PreparedStudy

    @property
    def mine(self) -> list[PlannedQuery[Query]]:
        """What is planned for it."""
        study, learner = self.prepared.study, self.prepared.learner
        dimension = None if learner is None else learner.initial.size
        queries = [self.ask.query(study, dimension), *self.ask.extras(study, dimension)]
        purposes = {query.mechanism.purpose for query in queries}
        plan = self.prepared.plan
        planned = {one.purpose: one for one in (plan.main, *plan.beside) if one.purpose in purposes}
        hold(
            f"everything that {_name(self.ask)} asks is planned",
            planned.keys() == purposes,
            f"{', '.join(planned)} of {', '.join(purposes)}",
            "give each query a `purpose` of its own",
        )
        return list(planned.values())


# 1. and 2. What a study says.


def _describes(ask: Ask) -> None:
    """Names, keys and files."""
    tables = ask.tables
    hold(
        f"{type(ask).__name__} has tables of its own, with a place and keys",
        tables
        and hasattr(ask, "rank")
        and set(tables) <= ask.keys().keys()
        and all(key.split(".")[0] in tables for key in list(ask.keys()))
        and set(tables) <= ask.schemas().keys(),
        f"tables = {tables}, rank = {getattr(ask, 'rank', None)} and keys of "
        f"{', '.join(ask.keys())}",
        "name each table in `tables`, and its keys in `keys`",
    )
    plain = all(Path(name).name == name for name in ask.files)
    hold(
        f"{_name(ask)} names its files, and the one with answers among them",
        plain and len(set(ask.files)) == len(ask.files) and ask.answers in ("", *ask.files),
        f"files = {ask.files} and answers = {ask.answers!r}",
        "name files of a run's folder without a path",
    )


def _reads(ask: Ask, content: dict[str, Any]) -> None:
    """The same study whichever way it is written; what is wrong is refused by name."""
    law = f"a study with {_name(ask)} is read"
    with completing(law, "mend `read`, or the tables that the suite was given"):
        study = Study.from_table(content)
    with completing(f"{_name(ask)} is written as it is read", "mend `written`"):
        again = Study.parse(study.changed(name=study.name).as_toml())
    turned = {
        name: dict(reversed(table.items())) if name in ask.tables else table
        for name, table in content.items()
    }
    hold(
        f"a study with {_name(ask)} has one id, however it is written",
        study.id == again.id == Study.from_table(turned).id,
        "several",
        "let `canonical` give every default in one form",
    )
    with completing(f"{_name(ask)} is plain in the canonical form", "mend `canonical`"):
        json.dumps(ask.canonical(study), allow_nan=False)
    for name in ask.tables:
        if name in content:
            read = partial(lambda name, table: Study.from_table({**content, name: table}), name)
            check_keys(name, content[name], read, keys=ask.keys()[name])
    parts = ask.parts(study)
    hold(
        f"{_name(ask)} takes parts of epsilon by the keys that say so",
        all(0 < part < study.privacy.epsilon for part in parts.values())
        and all(key.split(".")[0] in ask.tables for key in parts),
        f"{parts}",
        "name each part's key, such as `statistics.epsilon`",
    )


def _opens_nothing(ask: Ask, study: Study) -> None:
    """Who checks a study of somebody else reads nothing that it names."""
    ask.query(study)  # what is imported for it is imported
    opened = opened_by(lambda: (ask.query(study), ask.canonical(study)))
    hold(
        f"nothing is opened for the query of {_name(ask)}",
        not opened,
        "; ".join(opened[:3]),
        "read what the study names in `task`, at the silo",
    )


# 3. What silos sum.


def _begin(case: _Case, query: Query) -> Parameters:
    """What goes down first."""
    learner = case.prepared.learner
    model = np.zeros(0, np.float32) if learner is None else learner.initial
    begin = query.start(model) if isinstance(query, SteppedQuery) else model
    assert begin is not None, "a query begins with the model or its own"  # noqa: S101
    return begin


def _sums(case: _Case, planned: PlannedQuery[Query]) -> None:
    """Each unit's part, by itself and beside others."""
    query, who = planned.query, f"{_name(case.ask)} ({planned.purpose})"
    begin, mechanism = _begin(case, query), planned.mechanism
    with completing(f"a silo's records are ready for {who}", "mend `task`"):
        tasks = case.prepared.tasks_of(query)
    task = tasks[0]
    with completing(f"a silo's units are summed for {who}", "mend `clipped_sum`"):
        parts = np.array([_of(task, begin, [row]) for row in range(min(_TRIED, task.count))])
    hold(
        f"a sum of {who} has as many finite numbers as the query says",
        parts.shape == (len(parts), query.numbers or parts.shape[1]) and np.isfinite(parts).all(),
        f"an array of the shape {parts.shape}, of numbers = {query.numbers}",
        "let `numbers` be the length of what `clipped_sum` gives",
    )
    longest = float(np.linalg.norm(parts, axis=1).max())
    hold(
        f"no unit's part in {who} is longer than its clip",
        longest <= mechanism.clip * _ROUNDING,
        f"{longest:.8g} of at most {mechanism.clip:.8g}",
        "divide by the longest that is possible, or clip",
    )
    apart = np.linalg.norm(parts[:, None] - parts, axis=2).max()
    most = (mechanism.diameter or 2.0) * mechanism.clip
    hold(
        f"no two units' parts in {who} are further apart than its diameter",
        apart <= most * _ROUNDING,
        f"{apart:.8g} of at most {most:.8g}",
        "state the largest distance that is possible as the mechanism's `diameter`",
    )
    rows = list(range(len(parts)))
    near = 1e-5 * max(longest, 1e-6) * len(rows)
    for order, with_gap in ((rows, False), (rows[::-1], False), (rows[::-1], True)):
        given = [*order, -1] if with_gap else order
        hold(
            f"a sum of {who} is that of its units' parts, in any order and beside empty places",
            np.allclose(_of(task, begin, given), parts.sum(axis=0), rtol=0, atol=near),
            "another",
            "compute each unit's part from that unit and what goes down alone; row -1 is no unit",
        )
    shown = f"{task!r} {task}"
    hold(
        f"nothing that a silo holds is shown by its task of {who}",
        len(shown) < 200 and "array" not in shown,
        shown[:80],
        "give the task a `__repr__` without records",
    )
    for other, silo in zip(tasks, case.prepared.silos, strict=True):
        hold(
            f"a silo has no more units for {who} than is public",
            other.count == query.units(silo) <= query.max_units(silo)
            and other.count <= other.capacity,
            f"{other.count} of {query.max_units(silo)}",
            "let `units` and `max_units` say what the task counts",
        )


def _of(task: LocalTask, begin: Parameters, rows: Sequence[int]) -> NDArray[np.float64]:
    return np.asarray(task.clipped_sum(begin.copy(), np.array(rows, np.intp)), dtype=np.float64)


# 4. and 5. What follows from sums.


def _leads(case: _Case, planned: PlannedQuery[SteppedQuery]) -> Set[str]:
    """Where sums lead, what is released of it, in which files, and what a verifier finds."""
    who, query = f"{_name(case.ask)} ({planned.purpose})", planned.query
    begin = _begin(case, query)
    with completing(f"{who} goes on from sum to sum", "mend its `stepper`"):
        sums, states = _folded(case, planned, begin)
    hold(
        f"{who} begins where its first sum is asked",
        not query.misfit(begin, begin, 0),
        query.misfit(begin, begin, 0),
        "let `misfit` take what `start` gives",
    )
    course, kept = Course(planned, begin), query.stepper(planned)
    for number, total in enumerate(sums, 1):
        course.reach(number)
        course.step(number, total.copy())
        # Another process, which has kept the state alone, takes the same step.
        kept.load_state(_copied(states[number - 1].optimizer))
        before = states[number - 1].parameters.copy()
        again = kept.step(before, total.copy(), planned.mechanism.divisor)
        hold(
            f"the same sum leads {who} to the same state, also from one that was kept",
            again.tobytes() == states[number].parameters.tobytes(),
            f"another after sum {number}",
            "let `state` give all that the stepper remembers, and draw nothing",
        )
    led, plan = course.led, case.prepared.plan
    hold(
        f"a verifier is led where {who} was",
        led is not None and led.parameters.tobytes() == query.result(states[-1]).tobytes(),
        "elsewhere",
        "compute every step from the sums and the plan alone",
    )
    query.check_complete(states[-1])
    with completing(f"{who} is released where its sums led", "mend `released`"):
        first, second = (query.released(plan, states[-1]) for _ in range(2))
    hold(
        f"what is released of {who} follows from its state alone, in files that the ask names",
        first.files == second.files
        and first.files.keys() <= set(case.ask.files)
        and all(any(map(Path(name).match, case.ask.copies)) for name in first.copies),
        f"the files {', '.join([*first.files, *first.copies])}",
        "draw nothing, and name every file in `files`, or by a pattern in `copies`",
    )
    shown = {name: answer.to_dict() for name, answer in first.answers.items()}
    told = json.loads(first.files.get(case.ask.answers, "{}")).get("statistics", {})
    hold(
        f"the file with answers of {who} says what a terminal shows",
        told == shown,
        f"answers to {', '.join(told) or 'nothing'} beside {', '.join(shown) or 'none'}, or others",
        'write all of `answers` into the file `answers` names, under "statistics" by name',
    )
    if first.files:
        _verifies(case, planned, course, states[-1], first)
    return first.files.keys()


def _folded(
    case: _Case, planned: PlannedQuery[SteppedQuery], begin: Parameters
) -> tuple[list[NDArray[np.float64]], list[QueryState]]:
    """A few noisy sums, one after the other, and where each led."""
    query, rng = planned.query, np.random.default_rng(9)
    tasks, stepper = case.prepared.tasks_of(query), query.stepper(planned)
    sums = list[NDArray[np.float64]]()
    states = [QueryState(parameters=begin, optimizer=_copied(stepper.state()))]
    sigma = planned.total_noise_multiplier * planned.mechanism.clip
    for number in range(1, planned.mechanism.steps + 1):
        before = states[-1].parameters
        exact = np.sum([_of(task, before, range(task.count)) for task in tasks], axis=0)
        sums.append(exact + sigma * rng.standard_normal(len(exact)))
        after = stepper.step(before.copy(), sums[-1].copy(), planned.mechanism.divisor)
        state = _copied(stepper.state())
        states.append(QueryState(step=number, parameters=after, optimizer=state))
    return sums, states


def _copied(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {key: value.copy() for key, value in state.items()}


def _verifies(
    case: _Case,
    planned: PlannedQuery[SteppedQuery],
    course: Course,
    state: QueryState,
    released: Released,
) -> None:
    """What is kept verifies; what was changed does not."""
    query, plan, who = planned.query, case.prepared.plan, _name(case.ask)

    def holds(folder: Path) -> bool:
        try:
            findings = list(query.replay_findings(folder, plan, course, set()))
        except HubbubError:
            return False
        return bool(findings) and all(finding.holds for finding in findings)

    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        query.store(folder, state)
        for name, text in released.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        hold(
            f"what a run keeps of {who} verifies",
            holds(folder),
            "a finding that it does not hold, or none",
            "let `replay_findings` compare what is kept with where the sums led",
        )
        restored = query.restored(folder, QueryState(parameters=_begin(case, query)))
        hold(
            f"an interrupted run of {who} goes on from what it kept",
            restored.parameters.tobytes() == state.parameters.tobytes(),
            "another state",
            "let `restored` read what `store` has written",
        )
        for path in sorted(folder.iterdir()):
            text = path.read_text(encoding="utf-8")
            path.write_text(_forged(text), encoding="utf-8")
            hold(
                f"{path.name} of {who} is refused where somebody changed it",
                not holds(folder),
                "that it verifies all the same",
                "let `replay_findings` compare every file with what the sums say",
            )
            path.write_text(text, encoding="utf-8")


def _forged(text: str) -> str:
    """The text with one number larger by half: the largest, so that its last digits do not hide."""
    try:
        content = json.loads(text)
    except ValueError:
        return text + "\n9"
    places = list(_numbers(content))
    if not places:
        return text + " "
    holder, key = max(places, key=lambda place: abs(place[0][place[1]]))
    holder[key] = 1.5 * holder[key] + 1
    return json.dumps(content)


def _numbers(content: Any) -> Iterator[tuple[Any, Any]]:
    """Each number of plain values, as what holds it and its place there."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in list(pairs):
        if isinstance(value, dict | list):
            yield from _numbers(value)
        elif isinstance(value, float) and math.isfinite(value):
            yield content, key
