"""Files of records as people really send them, made here: what each is called says what is wrong.

Every case is three silos' files of some forty records, from which one can learn who died.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

HEADER = ("patient", "age", "sex", "pressure", "smoker", "died")
SILOS = ("north", "south", "west")

Rows = list[list[str]]
Files = dict[str, bytes]


def records(seed: int, rows: int = 40) -> Rows:
    """A header, and records in which the old and those who smoke die sooner."""
    draw = random.Random(seed)
    found = [list(HEADER)]
    for number in range(rows):
        age, smoker = draw.randint(31, 88), draw.random() < 0.4
        died = draw.random() < (age - 20) / 120 + 0.2 * smoker
        cells = [f"P-{seed}{number:03d}", str(age), draw.choice("FM"), f"{draw.gauss(130, 15):.1f}"]
        found.append([*cells, "smoker" if smoker else "never", "yes" if died else "no"])
    return found


def text(rows: Rows, separator: str = ",", end: str = "\n") -> str:
    """The rows as a CSV text."""
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator=end).writerows(rows)
    return out.getvalue()


def clean() -> dict[str, Rows]:
    return {name: records(seed) for seed, name in enumerate(SILOS, 1)}


def column(rows: Rows, name: str, change: Callable[[int, str], str]) -> None:
    """Change every cell of a column."""
    k = rows[0].index(name)
    for number, row in enumerate(rows[1:]):
        row[k] = change(number, row[k])


def added(rows: Rows, name: str, value: Callable[[int], str], at: int | None = None) -> None:
    """One column more."""
    k = len(rows[0]) if at is None else at
    rows[0].insert(k, name)
    for number, row in enumerate(rows[1:]):
        row.insert(k, value(number))


def every(change: Callable[[Rows], None]) -> Files:
    """All silos' files, changed alike."""
    made = clean()
    for rows in made.values():
        change(rows)
    return {f"{name}.csv": text(rows).encode() for name, rows in made.items()}


def one(change: Callable[[Rows], None]) -> Files:
    """The files of which the first alone is changed."""
    made = clean()
    change(made["north"])
    return {f"{name}.csv": text(rows).encode() for name, rows in made.items()}


def written(write: Callable[[Rows], bytes], *, all_of_them: bool = True) -> Files:
    """The files, or the first alone, written in another way."""
    return {
        f"{name}.csv": write(rows) if all_of_them or name == "north" else text(rows).encode()
        for name, rows in clean().items()
    }


def mixed_case(rows: Rows) -> None:
    column(rows, "died", lambda k, cell: (cell, cell.title(), cell.upper(), f"{cell} ")[k % 4])
    column(rows, "sex", lambda k, cell: (cell, cell.lower())[k % 2])


def decimal_comma(rows: Rows) -> None:
    column(rows, "pressure", lambda _, cell: cell.replace(".", ","))


def thousands(rows: Rows) -> None:
    added(rows, "cost", lambda k: f"{1000 + 137 * k % 9000:,}", 2)


def swapped(rows: Rows) -> None:
    for row in rows:
        row[1], row[4], row[0], row[5] = row[5], row[0], row[4], row[1]


def renamed(rows: Rows) -> None:
    rows[0] = [name.upper() if name != "died" else " Died " for name in rows[0]]


def target_first(rows: Rows) -> None:
    for row in rows:
        row.insert(0, row.pop())


def of_zero_and_one(rows: Rows) -> None:
    column(rows, "died", lambda _, cell: "1" if cell == "yes" else "0")


def missing_spellings(rows: Rows) -> None:
    spelled = ("NA", "", "?", ".", "-9", "null", "n/a", "N/A", "NaN", "-999")
    column(rows, "age", lambda k, cell: spelled[k // 4 % 10] if k % 4 == 3 else cell)
    column(rows, "smoker", lambda k, cell: ("NA", "")[k % 2] if k % 5 == 0 else cell)


def without(name: str) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        k = rows[0].index(name)
        for row in rows:
            del row[k]

    return change


def dates(rows: Rows) -> None:
    added(rows, "admitted", lambda k: f"{1 + k % 28:02d}.{1 + k % 12:02d}.2021", 1)
    added(rows, "born", lambda k: f"19{40 + k % 50}-0{1 + k % 9}-11", 1)


def free_text(rows: Rows) -> None:
    added(rows, "remarks", lambda k: f'came with "pain", number {k},\nsent home, seen {k} times', 3)


def quoted_newlines(rows: Rows) -> None:
    added(rows, "ward", lambda k: ("4\nEast", "5\nWest")[k % 2], 1)


def outlier(rows: Rows) -> None:
    column(rows, "pressure", lambda k, cell: "1e30" if k == 7 else cell)


def beyond_float(rows: Rows) -> None:
    column(rows, "pressure", lambda k, cell: "1e400" if k == 7 else cell)


def percent(rows: Rows) -> None:
    added(rows, "saturation", lambda k: f"{88 + k % 12} %", 2)


def empty_target(rows: Rows) -> None:
    column(rows, "died", lambda k, cell: ("", "NA", "unknown")[k % 3] if k % 9 == 0 else cell)


def ragged(rows: Rows) -> None:
    rows[3].append("extra")
    del rows[8][-2:]


def twice(rows: Rows) -> None:
    added(rows, "age", lambda k: str(30 + k % 50))


def nameless(rows: Rows) -> None:
    added(rows, "", str, 0)


NO_RECORDS: dict[str, Callable[[Rows], None]] = {
    "title": lambda rows: rows.insert(0, ["Cohort, as of May"]),
    "title, with separators": lambda rows: rows.insert(0, ["Cohort", "2024", "", "", "", ""]),
    "comments": lambda rows: rows.insert(0, ["# by us"]) or rows.insert(0, ["# for you"]),
    "header again": lambda rows: rows.insert(20, [*rows[0]]),
    "means": lambda rows: rows.extend([[""] * 6, ["Mean:", "50.2", "", "99.1", "", ".336"]]),
    "n beside": lambda rows: rows.append(["", "", "", "", "N", "40"]),
}
CASES: dict[str, Callable[[], Files]] = {
    "clean": lambda: every(lambda _: None),
    "semicolons": lambda: written(lambda rows: text(rows, ";").encode()),
    "semicolons with decimal commas": lambda: written(
        lambda rows: (decimal_comma(rows), text(rows, ";").encode())[1]
    ),
    **{
        f"lines that are no records: {name}": partial(every, change)
        for name, change in NO_RECORDS.items()
    },
    "a title over semicolons": lambda: written(
        lambda rows: b"# Cohort, as of May\n\n" + text(rows, ";").encode()
    ),
    "tabs": lambda: written(lambda rows: text(rows, "\t").encode(), all_of_them=False),
    "latin-1 bytes": lambda: written(
        lambda rows: text(rows).replace("never", "nié").encode("latin-1"), all_of_them=False
    ),
    "UTF-16": lambda: written(lambda rows: text(rows).encode("utf-16")),
    "UTF-16 without a mark": lambda: written(lambda rows: text(rows).encode("utf-16-le")),
    "byte order mark": lambda: written(lambda rows: text(rows).encode("utf-8-sig")),
    "mixed case labels": lambda: every(mixed_case),
    "mixed case labels in one": lambda: one(mixed_case),
    "quoted newlines": lambda: every(quoted_newlines),
    "decimal commas in quotes": lambda: every(decimal_comma),
    "decimal commas in one": lambda: one(decimal_comma),
    "thousands separators": lambda: every(thousands),
    "percent signs": lambda: every(percent),
    "a column missing in one": lambda: one(without("smoker")),
    "another order in one": lambda: one(swapped),
    "other names in one": lambda: one(renamed),
    "row numbers": lambda: every(lambda rows: added(rows, "", str, 0)),
    "constant column": lambda: every(lambda rows: added(rows, "country", lambda _: "FI", 2)),
    "dates": lambda: every(dates),
    "free text": lambda: every(free_text),
    "target first": lambda: every(target_first),
    "target 0 and 1 in one": lambda: one(of_zero_and_one),
    "target 1.0 and 0.0": lambda: every(
        lambda rows: column(rows, "died", lambda _, cell: "1.0" if cell == "yes" else "0.0")
    ),
    "no header in one": lambda: one(lambda rows: rows.pop(0) and None),
    "no header": lambda: every(lambda rows: rows.pop(0) and None),
    "all-missing column": lambda: every(lambda rows: added(rows, "ward", lambda _: "NA", 1)),
    "one class in one": lambda: one(lambda rows: column(rows, "died", lambda *_: "no")),
    "one class only": lambda: every(lambda rows: column(rows, "died", lambda *_: "no")),
    "an outlier": lambda: one(outlier),
    "beyond a float": lambda: one(beyond_float),
    "CRLF": lambda: written(lambda rows: text(rows, end="\r\n").encode()),
    "CR": lambda: written(lambda rows: text(rows, end="\r").encode()),
    "trailing separators": lambda: written(
        lambda rows: text(rows).replace("\n", ",\n").encode(), all_of_them=False
    ),
    "empty lines at the end": lambda: written(lambda rows: text(rows).encode() + b"\n\n\n"),
    "separators alone at the end": lambda: written(
        lambda rows: text(rows).encode() + b",,,,,\n,,,,,\n"
    ),
    "a blank first line": lambda: written(lambda rows: b"\n" + text(rows).encode()),
    "missing spellings": lambda: every(missing_spellings),
    "missing in one": lambda: one(missing_spellings),
    "no target in some rows": lambda: one(empty_target),
    "ragged rows": lambda: one(ragged),
    "a header twice": lambda: one(twice),
    "a column without a name": lambda: one(nameless),
    "an empty file": lambda: {**every(lambda _: None), "west.csv": b""},
    "a header alone": lambda: {**every(lambda _: None), "west.csv": text([[*HEADER]]).encode()},
    "a few records": lambda: {
        f"{name}.csv": text(rows[:7]).encode() for name, rows in clean().items()
    },
    "stages": lambda: every(
        lambda rows: column(rows, "died", lambda k, cell: str(k % 4 + 1) if cell == "yes" else "0")
    ),
    "three classes": lambda: every(
        lambda rows: column(rows, "died", lambda k, _: ("low", "mid", "High", "high")[k % 4])
    ),
    "names with spaces": lambda: {
        f"Site {name.title()} (2).csv": text(rows).encode() for name, rows in clean().items()
    },
    "text files": lambda: {f"{name}.txt": text(rows).encode() for name, rows in clean().items()},
    "sep line": lambda: written(lambda rows: b"sep=;\n" + text(rows, ";").encode()),
    "a quote without its pair": lambda: {
        **every(lambda _: None),
        "west.csv": text(clean()["west"]).encode() + b'P-9,50,F,120,"never,no\n',
    },
}


def lay(case: str, folder: Path) -> list[Path]:
    """The files of a case, in a folder."""
    made = CASES[case]()
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in made]
