"""Rules of synthetic records: what follows from other columns, and rows that cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import StudyError, UserError
from hubbub.core.tabular.column import Column
from hubbub.desk.drafting.study_draft import likely_rules
from hubbub.estimation.row_rules import RowRules
from hubbub.estimation.synthesis.design import Design
from hubbub.estimation.synthesis.release import SyntheticData, example, released
from hubbub.estimation.synthesis.synthetic_keys import synthesis_from

FLAG = ("0", "1")
COLUMNS = {
    "age": Column(name="age", low=17, high=57, step=1, complete=True),
    "years": Column(name="years", low=0, high=30, step=1, complete=True),
    "visits": Column(name="visits", low=0, high=40, step=1, complete=True),
    **{
        name: Column(name=name, categories=FLAG, complete=True)
        for name in ("any", "plan a", "plan_b", "plan_c")
    },
    "menopause": Column(name="menopause", categories=("pre", "post"), complete=True),
    "total": Column(name="total", low=0, high=100, step=1, complete=True),
}
RULES: dict[str, Any] = {
    "follows": {"any": "visits > 0", "total": "years + visits"},
    "possible": [
        "age - years >= 14",
        'not (menopause == "pre" and age > 50) and not (menopause == "post" and age < 30)',
        "`plan a` == 1 or plan_b == 1 or plan_c == 1",
        "not (`plan a` == 1 and plan_b == 1 or plan_b == 1 and plan_c == 1)",
        'not (`plan a` == 1 and plan_c != "0")',
    ],
}


def people(many: int) -> dict[str, np.ndarray]:
    """Married from 14 on, insured by one of three plans, some of whom visit nobody."""
    rng = np.random.default_rng(5)
    age = np.round(rng.gamma(9, 3.3, many)).clip(17, 57)
    years = np.round(age - 14 - rng.gamma(2, 3, many)).clip(0, 30)
    visits = np.where(rng.random(many) < 0.3, 0, rng.geometric(0.25, many)).clip(0, 40)
    plan = rng.integers(0, 3, many)
    post = np.where(age > 50, True, (age >= 30) & (age + rng.normal(0, 4, many) > 45))
    cells = {"age": age, "years": years, "visits": visits, "any": visits > 0, "menopause": post}
    cells |= {name: plan == k for k, name in enumerate(("plan a", "plan_b", "plan_c"))}
    return {
        name: np.asarray(one, float) for name, one in (cells | {"total": years + visits}).items()
    }


@pytest.fixture(scope="module")
def made() -> SyntheticData:
    asked = synthesis_from({"targets": ["any"], **RULES}, COLUMNS, alone=True)
    design = Design(
        columns=asked.columns,
        targets=tuple(map(asked.names.index, asked.targets)),
        rounds=3,
        relation="add-remove",
    )
    return replace(released(design, people(4000), sigma=12.0, seed=3), rules=asked.rules)


def broken(table: dict[str, list[Any]]) -> dict[str, float]:
    """Which part of records cannot be, by an account of its own."""
    age, years, visits, total = (np.array(table[n]) for n in ("age", "years", "visits", "total"))
    flags = [np.array(table[name]) == "1" for name in ("plan a", "plan_b", "plan_c")]
    post = np.array(table["menopause"]) == "post"
    off = {
        "married too young": age - years < 14,
        "no visit, and some": (visits > 0) != (np.array(table["any"]) == "1"),
        "premenopausal past 50": (age > 50) & ~post | (age < 30) & post,
        "two plans or none": np.sum(flags, axis=0) != 1,
        "wrong total": total != years + visits,
        "no whole number": age % 1 + years % 1 + visits % 1 + total % 1 != 0,
    }
    return {name: float(one.mean()) for name, one in off.items()}


@pytest.mark.slow
def test_no_record_is_impossible_where_the_study_says_what_is(made: SyntheticData) -> None:
    assert set(broken(made.draw(1000)).values()) == {0.0}
    assert set(broken(next(made.tables(1))).values()) == {0.0}
    free = broken(replace(made, rules=None).draw(1000))
    assert min(free[name] for name in list(free)[:4]) > 0.005
    assert free["no whole number"] == 0.0
    assert made.draw(200, seed=4) == made.draw(200, seed=4)


@pytest.mark.slow
def test_rules_leave_shares_about_where_they_were(made: SyntheticData) -> None:
    kept, free = made.draw(4000), replace(made, rules=None).draw(4000)
    for name in ("plan a", "plan_b", "plan_c", "any"):
        assert kept[name].count("1") / 4000 == pytest.approx(free[name].count("1") / 4000, abs=0.03)
    assert np.mean(kept["age"]) == pytest.approx(np.mean(free["age"]), abs=1.0)


def test_a_study_keeps_its_rules_in_its_table_and_none_where_none_are_said() -> None:
    asked = synthesis_from(RULES, COLUMNS, alone=True)
    assert synthesis_from(asked.to_table(), COLUMNS, alone=True) == asked
    assert asked.canonical()["possible"] == RULES["possible"]
    plain = synthesis_from({}, COLUMNS, alone=True).canonical()
    assert not {"follows", "possible"} & set(plain)


@pytest.mark.parametrize(
    "rules",
    [
        {"possible": ["age"]},
        {"possible": ['age > "x"']},
        {"possible": ['__import__("os")']},
        {"possible": ["age.real > 3"]},
        {"possible": ["[x for x in (1, 2)]"]},
        {"possible": ['menopause == "perhaps"']},
        {"possible": ["ages > 3"]},
        {"possible": ["(" * 200]},
        {"possible": ["age > 3 and " * 100 + "age > 3"]},
        {"possible": ["age ** 9 > 3"]},
        {"possible": ["True"]},
        {"possible": ["menopause < 'pre'"]},
        {"possible": "age > 3"},
        {"follows": {"menopause": "age"}},
        {"follows": {"x": "age"}},
        {"follows": {"age": "menopause"}},
        {"follows": {"menopause": '"peri" if age > 50 else "pre"'}},
        {"follows": ["age"]},
        {"follows": {"menopause": "any"}},
        {"possible": [f"age < 0x{'f' * 280}"]},
        {"possible": ["age < 1e999"]},
        {"possible": [r"menopause == '\ud800'"]},
        {"possible": [r"menopause == '\d'"]},
        {"possible": ["menopause == ('pre' if age > 50 else 'perhaps')"]},
        {"possible": ["any == age"]},
        {"possible": ["age > 3"] * 201},
    ],
    ids=str,
)
def test_what_is_no_rule_of_these_columns_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match="synthetic"):
        synthesis_from(rules, COLUMNS, alone=True)


def test_a_missing_cell_breaks_no_rule_and_numbers_stay_in_their_bounds() -> None:
    rules = RowRules(
        columns=COLUMNS,
        follows=(("total", "(years + visits) / (age - 20)"), ("menopause", '"post"')),
        possible=("age in (20, 30) or not menopause == 'post'",),
    )
    table: dict[str, list[Any]] = {name: [None] * 3 for name in COLUMNS}
    table |= {"age": [20, None, 21], "years": [9, 1, 30], "visits": [0, 1, 400], "total": [5, 5, 5]}
    assert rules.followed(table)["total"] == [5, 5, 100.0]
    assert rules.broken(table) == [2]


def test_a_number_that_follows_is_set_where_no_record_breaks_a_rule() -> None:
    data = example()
    columns = {one.levels.column.name: one.levels.column for one in data.design.columns}
    rules = RowRules(columns=columns, follows=(("age", "40 if sex == 'f' else 50"),))
    drawn = replace(data, rules=rules).draw(200)
    assert drawn["age"] == [40.0 if sex == "f" else 50.0 for sex in drawn["sex"]]
    # Of every other cell there is what there was.
    assert drawn["sex"] == data.draw(200)["sex"]


@pytest.mark.slow
def test_rules_that_nothing_keeps_are_refused_when_records_are_drawn(made: SyntheticData) -> None:
    none = RowRules(columns=COLUMNS, possible=("age > 100",))
    with pytest.raises(UserError, match="correct follows and possible"):
        replace(made, rules=none).draw(20)


def test_rules_that_hold_in_every_row_of_files_are_proposed_and_chance_is_not() -> None:
    cells = people(3000)
    texts = {
        name: [
            COLUMNS[name].categories[int(one)] if COLUMNS[name].categories else f"{one:g}"
            for one in column
        ]
        for name, column in cells.items()
    }
    found = likely_rules(list(COLUMNS.values()), texts)
    assert found.follows == {"any": "visits > 0"}
    assert 'not (`plan a` == "1" and plan_b == "1")' in found.possible
    assert 'not (menopause == "pre" and age > 50)' in found.possible
    rules = RowRules(columns=COLUMNS, possible=found.possible)
    table = {name: [*column] for name, column in texts.items()}
    numbers = {
        name: [*map(float, column)]
        for name, column in texts.items()
        if name in ("age", "years", "visits", "total")
    }
    assert rules.broken(table | numbers) == []
    rng = np.random.default_rng(6)
    mixed = {name: list(rng.permutation(column)) for name, column in texts.items()}
    by_chance = likely_rules(list(COLUMNS.values()), mixed)
    assert (by_chance.follows, by_chance.possible) == ({}, ())


def test_a_text_of_a_rule_is_a_category_in_every_record_and_not_the_first_alone() -> None:
    rules = RowRules(
        columns=COLUMNS,
        follows=(("menopause", "'post' if age > 50 else ' pre'"),),
        possible=("menopause == ('post' if age > 50 else 'pre')", "any == (1 if age > 50 else 0)"),
    )
    table: dict[str, list[Any]] = {name: [None] * 2 for name in COLUMNS}
    table |= {"age": [51, 20], "menopause": ["post", "post"], "any": ["1", "0"]}
    assert rules.broken(table) == [1]
    assert rules.unfollowed(table) == [1]
    assert rules.followed(table)["menopause"] == ["post", "pre"]
    assert rules.broken({name: [] for name in COLUMNS}) == []


def test_a_name_of_a_column_is_read_as_it_is_whatever_it_looks_like() -> None:
    names = ("k_61", "k_zz", "class", "_", "it's")
    columns = {name: Column(name=name, low=0, high=9) for name in names}
    columns["kept"] = Column(name="kept", categories=("a`b", "c`d"))
    said = ("k_61 < 5", "k_zz < 5", "`class` < 5", "_ < 5", "`it's` < 5", 'kept in ("a`b", "c`d")')
    for text in said:
        rules = RowRules(columns=columns, possible=(text,))
        assert rules.broken({name: [4, 6] for name in names} | {"kept": ["a`b", "?"]}) == [1]


@pytest.mark.parametrize(
    ("level", "levels"), [("(1 if {} in(0,0,0,0,0,0)else 2)", 9), ("(1 if 0<{}<1 else 2)", 16)]
)
def test_a_part_of_a_rule_is_evaluated_once(
    level: str, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "age"
    for _ in range(levels):
        text = level.format(text)
    parts = 0
    part = RowRules._part

    def counted(*given: Any) -> Any:
        nonlocal parts
        parts += 1
        assert parts <= len(text)
        return part(*given)

    monkeypatch.setattr(RowRules, "_part", counted)
    RowRules(columns=COLUMNS, possible=(f"{text}<3",))


def test_rules_are_proposed_by_round_numbers_and_only_such_as_a_study_can_read() -> None:
    age = Column(name="class", low=0, high=100)
    wide = Column(name="x" * 290, low=0, high=100)
    columns = [age, wide, Column(name="old", categories=("no", "yes"), complete=True)]
    values = [f"{41.37 + k / 1000}" for k in range(100)] + [f"{52.91 + k}" for k in range(40)]
    cells = {"class": values, wide.name: values, "old": ["no"] * 100 + ["yes"] * 40}
    rules = likely_rules(columns, cells)
    assert (rules.follows, rules.possible) == ({"old": "`class` > 50"}, ())


@pytest.mark.parametrize(
    ("last", "first", "said"),
    [
        ("392.615605", "392.615606", "392.615605"),
        ("0.0000029", "0.0000031", "0.000003"),
        ("0.3", "0.30000000000000004", "0.3"),
        ("123456789.12345", "123456789.12346", "123456789.12345"),
        ("1.1", "1.2", "1.1"),
    ],
)
def test_a_proposed_number_parts_the_rows_however_many_digits_it_takes(
    last: str, first: str, said: str
) -> None:
    """In steps of a tenth 1.1 / 0.1 is above 11, and a twelfth digit may be on the other side."""
    number = Column(name="x", low=0, high=2e8)
    columns = [number, Column(name="old", categories=("no", "yes"), complete=True)]
    cells = {"x": [last] * 100 + [first] * 100, "old": ["no"] * 100 + ["yes"] * 100}
    assert likely_rules(columns, cells).follows == {"old": f"x > {said}"}
