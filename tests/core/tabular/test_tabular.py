"""Columns, tables and records: what they accept, what they refuse, and what they never say."""

from __future__ import annotations

import builtins
import math
import tomllib
import traceback
from dataclasses import FrozenInstanceError, replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.core.errors import DataError, StudyError
from hubbub.core.tabular.cells import CellFault, canonical, cells_of, number_in, read_cells, text_of
from hubbub.core.tabular.column import Column, column_features, columns_from
from hubbub.core.tabular.levels import Levels
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import class_rule, encode_table
from hubbub.learning.datasets import HEART_COLUMNS

SECRET = "s3cr3t-cell"
AGE = Column(name="age", low=20, high=90)


def _csv(tmp_path, text, name="silo.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def read_table(path, *, target, columns=(), **options):
    named = [target, *(column.name for column in columns)] if columns else ()
    options |= {"target": target, "columns": columns, "origin": path.name}
    return encode_table(read_cells(path, named), **options)


# Columns ---------------------------------------------------------------------------------------


def test_columns_are_parsed_in_the_order_of_the_study():
    age, sex, chol = columns_from(
        {
            "age": {"low": 20, "high": 90, "default": 55},
            "sex": {"categories": ["Male", "Female"]},
            "chol": {"low": 100, "high": 400, "default": 240, "indicator": True, "missing": [0]},
        }
    )
    assert age == Column(name="age", low=20, high=90, default=55)
    assert sex == Column(name="sex", categories=("Male", "Female"))
    assert chol.missing == ("0",)
    assert chol.feature_names == ("chol", "chol missing")
    assert chol.width == 2


def test_a_reference_is_0_in_all_features_of_a_column():
    flag, stage = columns_from(
        {
            "Dx I10": {"categories": ["0", "1"], "reference": "0"},
            "stage": {"categories": ["I", "II", "III"], "reference": "ii", "ignore_case": True},
        }
    )
    assert flag.feature_names == ("Dx I10=1",)
    assert stage.feature_names == ("stage=I", "stage=III")
    assert column_features(flag, ["0", "1"], "here").tolist() == [[0.0], [1.0]]
    assert column_features(stage, ["I", "II", "III"], "here").tolist() == [[1, 0], [0, 0], [0, 1]]
    with pytest.raises(StudyError, match="reference to be a category"):
        replace(flag, reference="2")
    with pytest.raises(StudyError, match="beside categories alone"):
        replace(AGE, reference="20")


def test_the_documented_study_declares_columns_of_the_heart_data():
    page = Path(__file__).parents[3] / "docs" / "data.md"
    example = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    shown = columns_from(tomllib.loads(example)["data"]["columns"])
    assert shown == tuple(one for one in HEART_COLUMNS if one in shown)
    assert len(shown) == 4


def test_categories_may_be_written_as_numbers():
    (stage,) = columns_from({"stage": {"categories": [1, 2, 3], "default": 2}})
    assert stage.categories == ("1", "2", "3")
    assert stage.default == "2"


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"low": 0, "high": 1, "unit": "mm"}, "'unit'"),
        ({}, "low and high"),
        ({"low": 0}, "low and high"),
        ({"low": 1, "high": 1}, "low < high"),
        ({"low": "a", "high": 1}, "numbers"),
        ({"low": float("nan"), "high": 1}, "numbers"),
        ({"low": True, "high": 2}, "numbers"),
        ({"low": 0, "high": 10**400}, "numbers"),
        ({"low": 0, "high": 1, "default": 2}, "default"),
        ({"low": 0, "high": 1, "default": "x"}, "default"),
        ({"low": 0, "high": 1, "indicator": True}, "default"),
        ({"low": 0, "high": 1, "indicator": "yes"}, "indicator"),
        ({"low": 0, "high": 1, "missing": "0"}, "missing"),
        ({"low": 0, "high": 1, "categories": ["a", "b"]}, "either"),
        ({"low": 0, "high": 10, "step": 0}, "step"),
        ({"low": 0, "high": 10, "step": -1}, "step"),
        ({"low": 0, "high": 10, "step": True}, "step"),
        ({"low": 0, "high": 10, "step": "1"}, "step"),
        ({"low": 0, "high": 10, "step": 1e-300}, "step"),
        ({"low": 0, "high": 10, "step": float("nan")}, "step"),
        ({"low": 0, "high": 10, "step": 3}, "high = 12"),
        ({"low": 1e15, "high": 1e15 + 10, "step": 1}, "as large as low and high"),
        ({"low": 0, "high": 10, "step": 20}, "high = 20"),
        ({"categories": ["a", "b"], "step": 1}, "step"),
        ({"categories": ["a"]}, "two different"),
        ({"categories": ["a", "a"]}, "two different"),
        ({"categories": ["1", "1.0"]}, "two different"),
        ({"categories": "ab"}, "list of texts"),
        ({"categories": [True, False]}, "list of texts"),
        ({"categories": ["a", "b"], "default": "c"}, "default"),
        ({"categories": ["a", "b"], "missing": ["b"]}, "missing"),
        ({"categories": ["True", "b"], "default": True}, "a text or a number"),
        ({"categories": ["[1]", "b"], "default": [1]}, "a text or a number"),
        ({"categories": ["2024-01-01", "b"], "default": date(2024, 1, 1)}, "a text or a number"),
        (3, "table"),
    ],
    ids=str,
)
def test_a_contradictory_column_is_refused_by_name(entry, named):
    with pytest.raises(StudyError, match=named) as caught:
        columns_from({"dose": entry})
    assert "data.columns.dose" in str(caught.value)
    assert "; " in str(caught.value), "a remedy follows the semicolon"


@pytest.mark.parametrize("table", [{}, None, ["age"]], ids=str)
def test_a_table_without_columns_is_refused(table):
    with pytest.raises(StudyError, match=r"data\.columns"):
        columns_from(table)


def test_a_column_is_frozen():
    with pytest.raises(FrozenInstanceError):
        AGE.low = 0  # type: ignore[misc]


# Encoding --------------------------------------------------------------------------------------


def _encode(column, cells):
    table = {column.name: cells, "y": ["0"] * len(cells)}
    return encode_table(table, target="y", columns=[column]).inputs


def test_public_bounds_map_to_minus_one_and_one_and_clip_beyond():
    assert _encode(AGE, ["20", "55", "90", "7", "1e6"]).ravel().tolist() == [-1, 0, 1, -1, 1]


@pytest.mark.parametrize(
    ("low", "high", "step", "cell", "value"),
    [
        (0, 10, 1, "2.6", 3.0),
        (0, 10, 1, "-4", 0.0),
        (80, 200, 2, "123.1", 124.0),
        (0, 1, 0.1, "0.29", 0.3),
        (1.5, 40.5, 3, "4.5", 4.5),
        (-0.3, 0.3, 0.1, "0.01", 0.0),
        (1 / 3, 2 / 3, 1 / 3, "0", 1 / 3),
        (-2 / 3, -1 / 3, 1 / 3, "-9", -2 / 3),
        (0, 13 * 84 / 30.4375, 84 / 30.4375, "8.28", 8.2792607802875),
        (0, 13 * 84 / 30.4375, 84 / 30.4375, "99", 13 * 84 / 30.4375),
    ],
)
def test_a_cell_counts_as_the_nearest_value_on_a_step(low, high, step, cell, value):
    (column,) = columns_from({"x": {"low": low, "high": high, "step": step}})
    assert column.rule(cell) == value
    assert column.rule_with_gaps(cell) == value
    assert column.nearest(value) == value


def test_two_categories_become_one_feature():
    sex = Column(name="sex", categories=("Female", "Male"))
    assert _encode(sex, ["Male", "Female"]).tolist() == [[1], [-1]]


def test_three_categories_become_three_features():
    pain = Column(name="pain", categories=("none", "some", "much"))
    assert _encode(pain, ["much", "none"]).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_missing_spellings_take_the_default_and_set_the_indicator():
    chol = Column(name="chol", low=100, high=400, default=250, missing=("0",), indicator=True)
    assert _encode(chol, ["0", "", "0.0", "400"]).tolist() == [[0, 1], [0, 1], [0, 1], [1, 0]]


@pytest.mark.parametrize("spelling", ["2", "2.0", "2.", " 2 "])
def test_a_whole_number_is_the_same_category_in_every_spelling(spelling):
    stage = Column(name="stage", categories=("1", "2", "3"))
    assert _encode(stage, [spelling]).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("listed", "spelling"), [("M\u00fcller", "Mu\u0308ller"), ("0", "-0"), ("0", "-0.0")]
)
def test_another_form_of_a_listed_spelling_is_no_other_one(listed, spelling):
    """A decomposed umlaut, as macOS writes it, once counted as `other` without a word."""
    place = Column(name="place", categories=(listed, "b", "rest"), other="rest")
    assert _encode(place, [spelling]).tolist() == _encode(place, [listed]).tolist() == [[1, 0, 0]]
    with pytest.raises(StudyError, match="two different"):
        Column(name="place", categories=(listed, spelling))


def test_a_code_with_a_leading_zero_is_a_category_of_its_own():
    code = Column(name="code", categories=("1", "01"))
    assert _encode(code, ["01", "1"]).tolist() == [[1], [-1]]


@given(st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=6))
def test_features_of_a_record_depend_on_that_record_alone(values):
    cells = [repr(value) for value in values]
    together = _encode(AGE, cells)
    alone = np.vstack([_encode(AGE, [cell]) for cell in cells])
    assert np.array_equal(together, alone)
    assert np.abs(together).max() <= 1


# Files -----------------------------------------------------------------------------------------


def test_a_csv_file_is_read_by_column_name_and_extra_columns_are_ignored(tmp_path):
    path = _csv(tmp_path, "id,ill,age\nA,1,20\nB,0,90\n")
    records = read_table(path, target="ill", columns=[AGE])
    assert records.inputs.tolist() == [[-1], [1]]
    assert records.targets.tolist() == [1, 0]
    assert records.inputs.dtype == records.targets.dtype == np.float32


def test_a_byte_order_mark_quotes_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "silo.csv"
    path.write_bytes('\ufeff"age",y\r\n"55",1\r\n\r\n'.encode())
    assert read_table(path, target="y", columns=[AGE]).inputs.tolist() == [[0]]


def test_without_columns_all_others_are_used_unscaled_in_header_order(tmp_path):
    path = _csv(tmp_path, "b,y,a\n3,0,-7.5\n4,1,1e3\n")
    assert read_table(path, target="y").inputs.tolist() == [[3, -7.5], [4, 1000]]


def test_listed_spellings_count_as_one_and_zero(tmp_path):
    path = _csv(tmp_path, "age,num\n30,0\n30,3\n30,4.0\n30,none\n")
    lists = {"positive": ("3", "4"), "negative": ("0", "none")}
    records = read_table(path, target="num", columns=[AGE], **lists)
    assert records.targets.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("label", ["None", "none.", SECRET])
def test_a_spelling_that_neither_list_has_is_refused_and_becomes_no_zero(tmp_path, label):
    path = _csv(tmp_path, f"age,num\n30,0\n30,{label}\n")
    with pytest.raises(DataError, match="row 2 after the header") as refusal:
        read_table(path, target="num", columns=[AGE], positive=("3",), negative=("0", "none"))
    assert label not in str(refusal.value)


def test_a_column_may_ignore_case():
    sex = Column(name="sex", categories=("F", "M"), missing=("na",), default="M", ignore_case=True)
    cells = {"sex": ["f", "M", "m", "NA"], "y": ["0", "1", "0", "1"]}
    assert encode_table(cells, target="y", columns=[sex]).inputs.tolist() == [[-1], [1], [1], [1]]
    with pytest.raises(StudyError, match="two different"):
        Column(name="sex", categories=("F", "f"), ignore_case=True)


def test_a_complete_column_has_no_missing_cell_not_even_for_statistics():
    complete = Column(name="sex", categories=("F", "M"), complete=True)
    assert isinstance(complete.rule_with_gaps(""), CellFault)
    assert isinstance(complete.rule(""), CellFault)
    assert math.isnan(replace(complete, complete=False).rule_with_gaps(""))
    for more in ({"missing": ("na",)}, {"default": "M"}):
        with pytest.raises(StudyError, match="complete = true"):
            replace(complete, **more)


def test_several_classes_become_class_numbers(tmp_path):
    path = _csv(tmp_path, "age,kind\n30,b\n30,c\n30,a\n")
    records = read_table(path, target="kind", columns=[AGE], classes=("a", "b", "c"))
    assert records.targets.tolist() == [1, 2, 0]
    assert records.targets.dtype == np.int64


def test_the_type_of_targets_follows_the_study_not_the_records(tmp_path):
    # A silo that happens to hold two of three classes must not train a two-class model.
    path = _csv(tmp_path, "age,kind\n30,0\n30,1\n")
    assert read_table(path, target="kind", classes=("0", "1", "2")).targets.dtype == np.int64


def test_a_target_that_is_a_number_is_refused_and_not_trained_as_a_class(tmp_path):
    path = _csv(tmp_path, "age,cost\n30,12.5\n")
    with pytest.raises(DataError, match="targets of 0 and 1") as refusal:
        read_table(path, target="cost", classes=())
    assert "12.5" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("age,y\n30,0\n" + SECRET + ",1\n", "column 'age', row 2"),
        ("age,y\n30,0\n,1\n", "column 'age', row 2"),
        ("age,y\nnan,0\n", "column 'age', row 1"),
        ("age,y\n1_0,0\n", "column 'age', row 1"),
        ("age,y\n1e39,0\n", "column 'age', row 1"),
        ("age,y\n30," + SECRET + "\n", "column 'y', row 1"),
        ("age,y\n30,\n", "column 'y', row 1"),
        ("age,y\n30,2\n", "column 'y', row 1"),
        ("age,y\n30,0," + SECRET + "\n", "2 cells in silo.csv, row 1"),
        ("age;y\n30,5;" + SECRET + "\n", "commas between.*comma delimited"),
        ("age;y\n30;" + SECRET + "\n", "commas between.*comma delimited"),
        ('"age";"y"\n"30";"' + SECRET + '"\n', "no commas.*comma delimited"),
        ("year,y\n" + SECRET + ",0\n", "column 'age'"),
        ("age,z\n" + SECRET + ",0\n", "column 'y'"),
        ("age,age,y\n1,2,0\n", "distinct"),
        ("age,y\n", "at least one record"),
        ("", "distinct"),
        ('age,y\n"' + SECRET + ",0\n", "quotes"),
    ],
    ids=repr,
)
def test_a_file_that_does_not_fit_is_refused_without_a_cell_in_the_traceback(tmp_path, text, named):
    path = _csv(tmp_path, text)
    with pytest.raises(DataError, match=named) as caught:
        read_table(path, target="y", columns=[AGE])
    error = caught.value
    assert "silo.csv" in str(error)
    assert error.__context__ is None, "a chained exception may quote the cell"
    assert SECRET not in "".join(traceback.format_exception_only(error))


def test_an_unknown_category_is_refused_without_naming_it(tmp_path):
    path = _csv(tmp_path, f"sex,y\nMale,0\n{SECRET},1\n")
    sex = Column(name="sex", categories=("Female", "Male"))
    with pytest.raises(DataError, match="column 'sex', row 2") as caught:
        read_table(path, target="y", columns=[sex])
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_utf8_is_refused_without_its_bytes(tmp_path):
    path = tmp_path / "silo.csv"
    path.write_bytes(b"age,y\n\xff\xfe,0\n")
    with pytest.raises(DataError, match="not UTF-8 text; save it as CSV UTF-8") as caught:
        read_table(path, target="y")
    assert caught.value.__context__ is None


def test_a_table_in_memory_that_has_no_columns_is_refused_without_its_values():
    """The rows of an array had been taken for names of columns, and quoted."""
    pd = pytest.importorskip("pandas")
    rows = np.array([["n7", SECRET]] * 2)
    for table in (rows, rows.tolist(), pd.Series(rows[:, 1]), pd.Series([1, 2], index=rows[:, 1])):
        with pytest.raises(DataError, match="or a mapping of columns, found") as caught:
            cells_of(table)
        assert SECRET not in str(caught.value)


def test_texts_that_a_file_has_as_bytes_are_texts_and_other_bytes_stay_apart():
    """As Impala and older writers of Parquet have them, a CSV file of the same table as letters."""
    assert text_of("m\u00e4nnlich ".encode()) == "m\u00e4nnlich"
    assert len({text_of(code) for code in (b"\xff", b"\xfe", "\ufffd".encode())}) == 3


def test_a_class_that_no_list_has_is_refused_with_lists_that_can_take_it():
    """Who added it to data.classes, which the study had not, got a third class."""
    for classes, lists in ((("0", "1"), "data.positive or data.negative"), (("a", "b"), "classes")):
        fault = class_rule((), (), classes)("maybe")
        assert fault.remedy.endswith(lists)


@pytest.mark.parametrize("name", ["absent.csv", "absent"])
def test_an_absent_file_is_refused(tmp_path, name):
    with pytest.raises(DataError, match="absent"):
        read_table(tmp_path / name, target="y")


def test_the_target_cannot_be_a_feature(tmp_path):
    with pytest.raises(StudyError, match="target 'age'"):
        read_table(_csv(tmp_path, "age\n1\n"), target="age", columns=[AGE])


def test_a_column_cannot_be_declared_twice(tmp_path):
    with pytest.raises(StudyError, match="twice"):
        read_table(_csv(tmp_path, "age,y\n1,0\n"), target="y", columns=[AGE, AGE])


def test_a_table_of_the_target_alone_is_refused(tmp_path):
    with pytest.raises(DataError, match="besides the target"):
        read_table(_csv(tmp_path, "y\n1\n"), target="y")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without_pyarrow(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(DataError, match=r"pip install '\.\[parquet\]'"):
        read_table(tmp_path / "silo.parquet", target="y")


def test_parquet_and_csv_of_the_same_table_give_the_same_records(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = [
        Column(name="age", low=20, high=90, default=50, indicator=True),
        Column(name="stage", categories=("1", "2", "3"), default="1"),
    ]
    table = {"age": [30.5, None, float("nan")], "stage": [2.0, 3.0, None], "y": [1, 0, 1]}
    parquet.write_table(pyarrow.table(table), tmp_path / "silo.parquet")
    path = _csv(tmp_path, "age,stage,y\n30.5,2,1\n,3,0\n,,1\n")
    first = read_table(tmp_path / "silo.parquet", target="y", columns=columns)
    second = read_table(path, target="y", columns=columns)
    assert np.array_equal(first.inputs, second.inputs)
    assert np.array_equal(first.targets, second.targets)


def test_a_short_float_is_the_number_that_was_written(tmp_path):
    """The float32 nearest to 0.7 is less, so as a longer one it would lie below a cut at 0.7."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    values = np.array([0.7, 0.1, 40.0], dtype=np.float32)
    path = tmp_path / "x.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"x": values}), path)
    coded = pa.array(values).dictionary_encode()
    stand_for = (
        *(
            pd.Series(values, dtype="category"),
            pd.Series(values, dtype="Float32").astype("category"),
        ),
        *(coded, pa.chunked_array([coded]), pd.Series(coded, dtype=pd.ArrowDtype(coded.type))),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array(values)),
    )
    for cells in (
        read_cells(path),
        *map(cells_of, (pd.DataFrame({"x": values}), pl.DataFrame({"x": values}), {"x": values})),
        *(cells_of({"x": column}) for column in stand_for),
    ):
        assert cells == {"x": ["0.7", "0.1", "40.0"]}


def test_an_empty_line_is_a_missing_cell_where_there_is_one_column(tmp_path):
    """So Polars, Arrow and DuckDB write it; where there are more columns it is no row."""
    assert read_cells(_csv(tmp_path, "x\n1\n\n2\n\n")) == {"x": ["1", "", "2", ""]}
    assert read_cells(_csv(tmp_path, "x,y\n1,3\n\n2,4\n\n")) == {"x": ["1", "2"], "y": ["3", "4"]}


def test_an_empty_line_at_the_end_alone_is_refused_as_nobody_knows_what_it_is(tmp_path):
    for spare in ("\n", "\n\n"):
        with pytest.raises(DataError, match="empty line at the end"):
            read_cells(_csv(tmp_path, "x\n1\n2\n" + spare))
    with pytest.raises(DataError, match="expected commas"):
        read_cells(_csv(tmp_path, "x;y\n1;2\n\n"))
    assert read_cells(_csv(tmp_path, 'x\n1\n2\n""\n')) == {"x": ["1", "2", ""]}


def test_short_floats_without_a_type_are_read_as_what_they_were():
    """pandas makes floats of them, beside which a category or break point of .7 is another."""
    pd = pytest.importorskip("pandas")
    values = pd.Series([0.7, 1.5, 1 / 3, 16777217.0], dtype="float32").astype(object)
    cells = cells_of(
        {"x": values, "y": pd.Series([0.7, 1 / 3, 1234567.125, 2.0**25], dtype=object)}
    )
    assert cells["x"] == ["0.7", "1.5", "0.33333334", "16777216.0"]
    assert cells["y"] == ["0.7", "0.3333333333333333", "1234567.125", "33554432.0"]


def test_a_number_in_another_spelling_is_no_other_category():
    dose = Column(name="dose", categories=("1.5", "3", "else"), other="else")
    assert [dose.rule(text) for text in ("1.5", "3.0", "x", "4.5")] == [0, 1, 2, 2]
    assert isinstance(dose.rule("1.50"), CellFault)
    assert [Column(name="code", categories=("1.1", "1.10")).rule("1.10")] == [1]
    codes = Column(name="code", categories=("999000011000001104", "else"), other="else")
    assert codes.rule("999000011000001105") == 1  # one float, and two codes of a catalogue
    tiny = Column(name="code", categories=("0", "else"), other="else")
    assert isinstance(tiny.rule(f"1e-{10**20}"), CellFault)  # of an exponent that no decimal has
    for categories in (("2E1", "3A"), ("2E1", "3A", "20")):  # as a spreadsheet writes the first
        told = Column(name="ward", categories=categories).rule("20")
        assert (told == 2) if "20" in categories else ("list it in categories too" in told.remedy)
    # A Parquet file says True where a database says 1.
    smoker = Column(name="smoker", categories=("0", "1", "unknown"), other="unknown")
    assert isinstance(smoker.rule("True"), CellFault)
    assert isinstance(smoker.rule("false"), CellFault)
    assert isinstance(replace(smoker, categories=("True", "unknown")).rule("1"), CellFault)


def test_digits_of_other_scripts_are_no_number():
    """No engine of a database reads them, and sites with one table must have one answer."""
    assert [*map(number_in, ("12", "+3", "\uff11\uff12", "\u0663", "1\u0660"))] == [
        12,
        3,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "most"), [(np.float64, 2**49), (np.float32, 2**24), (np.float16, 2**11)]
)
def test_a_whole_number_in_floats_of_any_length_has_one_spelling(kind, most):
    """A missing code, a category or a patient's key, whichever program wrote the column."""
    for number in (most - 1, most, -10 * most, 9_999_999 * most // 2**24, 1000):
        assert canonical(text_of(kind(number))) == str(number)


def test_a_parquet_column_that_is_there_twice_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    twice = pyarrow.table([[1.0, 2.0], [0.0, 0.0], [1, 0]], names=["age", "age", "y"])
    parquet.write_table(twice, tmp_path / "silo.parquet")
    with pytest.raises(DataError, match=r"every column of silo\.parquet once"):
        read_table(tmp_path / "silo.parquet", target="y")


def test_parquet_columns_that_are_not_declared_may_hold_anything(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    far = pyarrow.array([2**60, 5], pyarrow.timestamp("us"))  # a year that Python has no date for
    odd = {"age": [1, 2], "y": [0, 1], "seen": far, "scans": [[1.5], []], "age.unit": ["a", "b"]}
    parquet.write_table(pyarrow.table(odd), tmp_path / "silo.parquet")
    columns = (Column(name="age", low=0, high=10),)
    records = read_table(tmp_path / "silo.parquet", target="y", columns=columns)
    assert records.inputs.shape == (2, 1)
    assert records.targets.tolist() == [0, 1]
    with pytest.raises(DataError, match=r"silo\.parquet"):
        read_table(tmp_path / "silo.parquet", target="y")


def test_a_parquet_cell_that_python_cannot_hold_is_not_quoted(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    far = pyarrow.array([2**62 // 1000, 0], type=pyarrow.duration("ms"))
    table = pyarrow.table({"stay": far, "y": pyarrow.array([1, 0])})
    parquet.write_table(table, tmp_path / "silo.parquet")
    with pytest.raises(DataError, match=r"silo\.parquet") as refused:
        read_table(tmp_path / "silo.parquet", target="y")
    assert not any(digits in str(refused.value) for digits in ("days", "4611686"))


def test_a_damaged_parquet_file_is_refused(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    path = _csv(tmp_path, "age,y\n1,0\n", name="silo.parquet")
    with pytest.raises(DataError, match=r"silo\.parquet"):
        read_table(path, target="y")


# Records ---------------------------------------------------------------------------------------

ROWS = np.tile(np.array([0.125, 0.5], dtype=np.float32), (7, 1))
ONES = np.ones(7, dtype=np.float32)


def test_records_show_neither_values_nor_their_number():
    small = Records(inputs=ROWS, targets=ONES)
    large = Records(inputs=np.vstack([ROWS, ROWS]), targets=np.concatenate([ONES, ONES]))
    assert repr(small) == repr(large) == str(small)
    assert "125" not in repr(small)
    assert (len(small), len(large)) == (7, 14)


@pytest.mark.parametrize(
    ("inputs", "targets", "named"),
    [
        (ROWS.astype(np.float64), ONES, "float32"),
        (ROWS, ONES.astype(np.int32), "int64"),
        (ROWS, ONES[:2], "lengths"),
        (ROWS[:, 0], ONES, "dimensions"),
        (ROWS, ONES[:, None], "dimensions"),
        (ROWS * np.float32(np.nan), ONES, "finite"),
        (ROWS, ONES * np.float32(np.inf), "finite"),
        (ROWS, np.array([0, 1, -1, 0, 1, 1, 0]), "negative"),
        (ROWS.tolist(), ONES, "numpy"),
    ],
)
def test_malformed_records_are_refused(inputs, targets, named):
    with pytest.raises(DataError, match=named) as caught:
        Records(inputs=inputs, targets=targets)
    assert "7" not in str(caught.value), "the count must stay home"


def test_images_and_empty_records_are_records():
    assert len(Records(inputs=np.zeros((2, 1, 4, 4), np.float32), targets=np.array([0, 9]))) == 2
    assert len(Records(inputs=ROWS[:0], targets=ONES[:0])) == 0


def test_a_default_may_be_spelled_as_what_means_missing() -> None:
    age = Column(name="age", low=0, high=1000, default=999, missing=("999",), indicator=True)
    assert _encode(age, ["999", "", "0"]).tolist() == [
        [pytest.approx(0.998), 1.0],
        [pytest.approx(0.998), 1.0],
        [-1.0, 0.0],
    ]


def test_what_is_missing_in_an_array_of_any_float_is() -> None:
    for kind in ("f2", "f4", "f8"):
        assert cells_of({"x": np.array([np.nan, -0.0, 1.5], kind)}) == {"x": ["", "0.0", "1.5"]}


def test_an_arrow_table_is_a_table_and_a_lazy_frame_is_told_to_collect() -> None:
    arrow = pytest.importorskip("pyarrow")
    plain = {"age": [30, None, 50], "sex": ["f", "m", None]}
    assert cells_of(arrow.table(plain)) == cells_of(plain)

    class LazyFrame:
        columns = ("age",)
        collect = None

    with pytest.raises(DataError, match=r"found LazyFrame; call its collect\(\)"):
        cells_of(LazyFrame())


def test_a_cell_of_endless_text_is_named_as_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text('age,note\n50,"never closed\n' + "60,x\n" * 30_000)
    with pytest.raises(DataError, match=r"more than 131,072 characters.*close the quote"):
        read_cells(path)


def test_a_refusal_offers_a_few_of_many_classes():
    many = Column(name="icd", categories=tuple(f"C{k}" for k in range(400)))
    with pytest.raises(StudyError, match=r"one of C0, .*, C11 and 388 more as the reference"):
        Levels(column=many, reference="D1")
