"""Nothing that is planted in a silo's file is in any byte that leaves it, in any known encoding.

What leaves: every frame that any party makes, every file of the run and of the ledgers, the screen,
the log, the warnings, what the caller gets and what an error says. Planted are the values of one
record, as they are and as features, how many records there are, how many are ill, a name in a
column that no study declares, and the sums of clipped gradients as they come.

A number of four bytes is in a few hundred kilobytes of masked vectors by chance about once in ten
thousand; a leak is there every time. So a planted value counts as found only where two runs hold it
in the same place: the false-alarm rate is below 1e-6. Compressed or encrypted copies are not found.
"""

from __future__ import annotations

import base64
import logging
import re
import sqlite3
import struct
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from hubbub import Study, learning, plan, run
from hubbub.core.errors import DataError, HubbubError, ModelError, ProtocolError
from hubbub.core.protocol.primitives.wire import Frame, Tag
from hubbub.learning import TrainingTask

DOSE, AGE = 0.7317529481, 62.83917361
NAME = "Zebulon Quackenbush"
COUNT, ILL = 20_011, 7_919
STUDY = """
[study]
name = "planted"
[parties]
names = ["north", "south", "west"]
compute_nodes = {nodes}
colluders = 0
[data]
files = "{{name}}.csv"
test = "test.csv"
target = "ill"
[data.columns]
dose = {{ low = 0, high = 1 }}
age = {{ low = 0, high = 100 }}
ward = {{ categories = ["a", "b"] }}
[model]
kind = "{kind}"
[training]
steps = 3
sample_rate = 0.05
[privacy]
epsilon = 8.0
delta = 1e-5
"""

# Of a line in a log: the process that wrote it, and when; both may be any number.
WHERE = {"process", "thread", "created", "msecs", "relativeCreated"}

Places = dict[str, bytes]


# What is planted, and how it may be written -------------------------------------------------------


def real_traces(value: float) -> Iterator[bytes]:
    """A real number in binary, hexadecimal and decimal, in either precision and byte order."""
    for kind in ("<f4", ">f4", "<f8", ">f8"):
        yield np.array(value, kind).tobytes()
        yield np.array(np.float32(value), kind).tobytes()
    for one in (float(value), float(np.float32(value))):
        yield one.hex().partition(".")[2][:9].encode()
        digits = f"{abs(one):.15e}".replace(".", "")[:7]  # seven digits are in every longer form
        yield re.sub(r"^0*", "", f"{abs(one):.12f}")[:9].encode()
        yield digits.encode()


def pair_traces(one: float, other: float) -> list[bytes]:
    """Each of two numbers, and both in a row, which is long enough for base 64."""
    rows = [np.array([one, other], kind).tobytes() for kind in ("<f4", ">f4", "<f8", ">f8")]
    return [*real_traces(one), *real_traces(other), *rows]


def whole_traces(value: int) -> Iterator[bytes]:
    """A whole number in binary; its decimal form is looked for as a word of its own."""
    for kind in ("<u4", ">u4", "<u8", ">u8", "<f4", ">f4", "<f8", ">f8"):
        yield np.array(value, kind).tobytes()
    yield bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14])  # LEB128, as in protobuf
    yield f"{value:,}".encode()
    yield f"{value:#x}".encode()


def text_traces(value: str) -> Iterator[bytes]:
    """A text, or its longest word, in any case and in three encodings."""
    for one in (value, value.rsplit(maxsplit=1)[-1]):
        for form in (one, one.lower(), one.upper(), one.encode().hex()):
            yield form.encode()
            yield form.encode("utf-16-le")


def wrapped(trace: bytes) -> Iterator[bytes]:
    """The bytes as they are, in hexadecimal, and in base 64 wherever they may begin."""
    yield trace
    yield trace.hex().encode()
    for shift in range(3):
        coded = base64.b64encode(bytes(shift) + trace)
        inner = coded[-(-shift * 4 // 3) : (shift + len(trace)) * 4 // 3]
        if len(inner) >= 9:  # a shorter text is there by chance
            yield inner


def traces() -> dict[str, list[bytes]]:
    """Everything that is planted, by name, in every form."""
    found: dict[str, list[bytes]] = {
        "the name": [*text_traces(NAME)],
        "the record": pair_traces(DOSE, AGE),
        "the features": pair_traces(2 * DOSE - 1, AGE / 50 - 1),
        "the number of records": [*whole_traces(COUNT)],
        "the number of the ill": [*whole_traces(ILL), *whole_traces(COUNT - ILL)],
        "the share of the ill": [*real_traces(ILL / COUNT), *real_traces(1 - ILL / COUNT)],
    }
    return {name: [w for t in ways for w in wrapped(t)] for name, ways in found.items()}


WORDS = {
    "the number of records": re.compile(rb"(?<![\w.])%d(?!\d)" % COUNT),
    "the number of the ill": re.compile(rb"(?<![\w.])(%d|%d)(?!\d)" % (ILL, COUNT - ILL)),
}


def found_in(places: Places) -> set[tuple[str, str]]:
    """What is found, and where."""
    known = traces()
    by_trace = {
        (name, place)
        for place, content in places.items()
        for name, ways in known.items()
        if any(way in content for way in ways)
    }
    by_word = {
        (name, place)
        for place, content in places.items()
        for name, word in WORDS.items()
        if word.search(content)
    }
    return by_trace | by_word


def found_twice(first: Places, again: Callable[[], Places]) -> set[tuple[str, str]]:
    """What is found, and once more in the same place: scores of a run have digits by chance."""
    found = found_in(first)
    return found & found_in(again()) if found else found


def leaks(*runs: Places) -> set[tuple[str, str]]:
    """What is found in the same place of every run."""
    return set.intersection(*map(found_in, runs))


@lru_cache
def table(party: str, rows: int) -> str:
    """A party's file; that of south holds what is planted."""
    generator = np.random.default_rng(5)
    dose, age = generator.uniform(size=rows), generator.uniform(20, 90, rows)
    ill = np.arange(rows) < (ILL if party == "south" else rows // 2)
    names = ["Jones"] * rows
    if party == "south":
        dose[9], age[9], names[9] = DOSE, AGE, NAME
    lines = [
        f"{d:.10f},{a:.8f},{int(i)},{n},{'ab'[k % 2]}"
        for k, (d, a, i, n) in enumerate(zip(dose, age, ill, names, strict=True))
    ]
    return "\n".join(["dose,age,ill,name,ward", *lines]) + "\n"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A folder with everybody's file."""
    monkeypatch.chdir(tmp_path)
    for party, rows in (("north", 300), ("south", COUNT), ("west", 500), ("test", 200)):
        Path(f"{party}.csv").write_text(table(party, rows))
    return tmp_path


# What leaves --------------------------------------------------------------------------------------


class Outside:
    """All that is seen of a run from outside the silos."""

    def __init__(self, capfd, caplog, monkeypatch) -> None:
        self._capfd, self._caplog = capfd, caplog
        self._made: dict[str, list[bytes]] = defaultdict(list)
        caplog.set_level(logging.DEBUG)
        original = Frame.sealed

        def sealed(frame, keys):
            self._made[f"frame {frame.tag.name}"].append(original(frame, keys))
            return self._made[f"frame {frame.tag.name}"][-1]

        monkeypatch.setattr(Frame, "sealed", sealed)

    def places(self, folder: Path, act: Callable[[Path], object]) -> Places:
        """Everything that `act` on a fresh folder lets out, an error included, by place."""
        self._made.clear()
        self._caplog.clear()
        self._capfd.readouterr()
        said: list[str] = []
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            try:
                said.append(_shown(act(folder)))
            except HubbubError as error:
                said.append(_told(error))
        screen = self._capfd.readouterr()
        texts = {
            "caller": "\n".join(said),
            "screen": screen.out + screen.err,
            "log": self._caplog.text + str(self._logged()),
            "warnings": str([str(one.message) for one in raised]),
        }
        for place, text in texts.items():  # folders of tests are numbered
            self._made[place].append(text.replace(str(folder.parent), "").encode())
        for path in sorted(folder.rglob("*.*")):
            self._made[f"file {path.suffix}"].append(path.read_bytes())
        return {place: b"\0\0\0\0".join(contents) for place, contents in self._made.items()}

    def _logged(self) -> list[dict[str, object]]:
        """All that lines in the log hold."""
        lines = [vars(one) for one in self._caplog.records]
        return [{key: value for key, value in one.items() if key not in WHERE} for one in lines]


def _shown(result) -> str:
    """What the caller of a run can print."""
    return repr(result) + str(result.metrics) + str(result.plan.to_dict())


def _told(error: BaseException) -> str:
    """Everything that a person or a program can read off an error and those behind it."""
    chain = [error]
    while chain[-1].__context__ is not None:
        chain.append(chain[-1].__context__)
    said = [repr(one.args) + str(vars(one)) for one in chain]
    return "".join(traceback.format_exception(error)) + "".join(said)


@pytest.fixture
def outside(capfd, caplog, monkeypatch) -> Outside:
    return Outside(capfd, caplog, monkeypatch)


planned = lru_cache(partial(plan, dimension=4))


def training(nodes: int = 0, kind: str = "logistic") -> Callable[[Path], object]:
    """A whole run, whose progress is written to the screen as the command line does."""
    study = Study.parse(STUDY.format(nodes=nodes, kind=kind))
    made = planned(study)
    return lambda folder: run(
        study, folder / "run", ledgers=folder / "ledgers", progress=print, plan=made
    )


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_nothing_planted_leaves_a_silo_in_a_whole_run(home, outside, nodes):
    runs = [outside.places(home / str(k), training(nodes)) for k in range(2)]
    expected = {f"frame {Tag.MASKED.name}", f"frame {Tag.MODEL.name}", "file .safetensors"}
    assert set(runs[0]) >= expected | {"file .html", "file .jsonl", "file .sqlite", "screen"}
    assert b"auc" in runs[0]["screen"]
    assert leaks(*runs) == set()


@pytest.mark.slow
def test_no_clipped_sum_leaves_a_silo_before_noise_and_masks(home, outside, monkeypatch):
    sums: list[np.ndarray] = []
    spied(monkeypatch, lambda task, chosen, total: sums.append(total.copy()))
    places = outside.places(home / "a", training())
    assert len(sums) == 9
    assert not any(seen(total, places) for total in sums)
    for form in (largest(sums), largest(sums).astype(">f4")):
        assert seen(largest(sums), {"a": b"?" + form.tobytes()})
        assert seen(largest(sums), {"a": str(largest(sums).tolist()).encode()})


def largest(sums: list[np.ndarray]) -> np.ndarray:
    return max(sums, key=np.linalg.norm)


def seen(total: np.ndarray, places: Places) -> bool:
    """Whether neighbouring coordinates of a sum are anywhere in binary, or one of them as text."""
    pairs = [total[k : k + 2] for k in range(total.size - 1) if total[k : k + 2].all()]
    rows = [pair.astype(kind).tobytes() for pair in pairs for kind in ("<f4", ">f4", "<f8", ">f8")]
    texts = [repr(value)[:12].encode() for value in total.tolist() if abs(value) > 1e-4]
    ways = [way for row in rows for way in wrapped(row)] + [t for t in texts if len(t) == 12]
    return any(way in content for content in places.values() for way in ways)


# A search that finds nothing proves nothing unless it finds what is there -------------------------


def spied(monkeypatch, leak: Callable[[TrainingTask, np.ndarray, np.ndarray], object]) -> None:
    """Let every silo also do `leak` with its task, its batch and its sum."""
    original = TrainingTask.clipped_sum

    def clipped_sum(self, parameters, chosen):
        total = original(self, parameters, chosen)
        leak(self, chosen, total)
        return total

    monkeypatch.setattr(TrainingTask, "clipped_sum", clipped_sum)


def record_of(task: TrainingTask) -> np.ndarray:
    """The planted record's features, where the task is that of south."""
    return task._rows._records.inputs[9] if task.count == COUNT else np.zeros(3, np.float32)


def logs(task, chosen, total):
    logging.getLogger("hubbub.learning").debug("%d records", task.count)


def prints(task, chosen, total):
    print("batch out of", {"records": task.count})  # noqa: T201


def warns(task, chosen, total):
    warnings.warn(f"large feature {record_of(task)[0]}", stacklevel=1)


def keeps(task, chosen, total):
    for folder in Path().glob("?/run"):
        np.save(folder / f"debug-{task.count > 1000}.npy", record_of(task).astype(">f8"))


def keeps_coded(task, chosen, total):
    if task.count == COUNT:
        for folder in Path().glob("?/run"):
            text = base64.b64encode(b"x" + record_of(task).tobytes()).decode()
            (folder / "debug.txt").write_text(text)


def raises(task, chosen, total):
    if task.count == COUNT:
        raise DataError(f"expected fewer ill than {int(task._rows._records.targets.sum())}")


LEAKS = {
    logs: ("the number of records", "log"),
    prints: ("the number of records", "screen"),
    warns: ("the features", "warnings"),
    keeps: ("the features", "file .npy"),
    keeps_coded: ("the features", "file .txt"),
    raises: ("the number of the ill", "caller"),
}


@pytest.mark.slow
@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_a_leak_that_is_planted_on_purpose_is_found(home, outside, monkeypatch, leak):
    spied(monkeypatch, leak)
    runs = [outside.places(home / str(k), training()) for k in range(2)]
    assert LEAKS[leak] in leaks(*runs)


@pytest.mark.slow
def test_a_metric_of_the_training_records_is_found(home, outside, monkeypatch):
    original = learning.evaluate_records

    def told(model, records, **options):
        return original(model, records, **options) | {"ill": ILL / COUNT}

    monkeypatch.setattr(learning, "evaluate_records", told)
    runs = [outside.places(home / str(k), training()) for k in range(2)]
    share = "the share of the ill"
    assert leaks(*runs) >= {(share, "file .jsonl"), (share, "screen"), (share, "caller")}


@pytest.mark.slow
def test_a_count_beside_the_masked_vector_is_found(home, outside, monkeypatch):
    collecting = Frame.sealed
    count = struct.pack("<I", COUNT)

    def sealed(frame, keys):
        if frame.tag != Tag.MASKED:
            return collecting(frame, keys)
        longer = Frame(**{**fields_of(frame), "payload": bytes(frame.payload) + count})
        return collecting(longer, keys)

    monkeypatch.setattr(Frame, "sealed", sealed)
    runs = [outside.places(home / str(k), training()) for k in range(2)]
    assert ("the number of records", "frame MASKED") in leaks(*runs)
    with pytest.raises(ProtocolError):  # whose length nobody accepts
        training()(home / "again")


def fields_of(frame: Frame) -> dict[str, object]:
    return {name: getattr(frame, name) for name in Frame.__dataclass_fields__}


# Errors -------------------------------------------------------------------------------------------


def swapped(old: str, new: str) -> Callable[[], None]:
    """Spoils the planted line of south's file."""

    def spoil() -> None:
        text = Path("south.csv").read_text()
        assert old in text
        Path("south.csv").write_text(text.replace(old, new))

    return spoil


PLANTED_LINE = f"{DOSE:.10f},{AGE:.8f},1,{NAME},b"
SPOILT = {
    "a number that is none": swapped(f"{DOSE:.10f},", f"{DOSE:.10f}x,"),
    "a category that is none": swapped(f"{NAME},b", f"{NAME},{NAME}"),
    "a target that is no class": swapped(",1,Zebulon", f",{DOSE},Zebulon"),
    "a longer row": swapped(PLANTED_LINE, f"{PLANTED_LINE},{NAME}"),
    "an open quote": swapped(NAME, f'"{NAME}'),
    "a missing cell": swapped(f"{DOSE:.10f},", ","),
    "another header": swapped("dose,age", f"{NAME},age"),
    "no file": lambda: Path("south.csv").rename("elsewhere.csv"),
    "a byte that is no text": lambda: Path("south.csv").write_bytes(
        Path("south.csv").read_bytes().replace(b"Quack", b"\xff\xfe")
    ),
}


@pytest.mark.quick_cases("an open quote", "a byte that is no text", "no file", "a longer row")
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=list(SPOILT))
def test_a_wrong_file_is_told_without_anything_that_is_in_it(home, outside, spoil):
    spoil()
    places = outside.places(home / "a", training())
    assert b"DataError: expected" in places["caller"]
    assert b"south" in places["caller"]
    assert not any(place.startswith("frame") for place in places)
    assert found_in({"caller": places["caller"], "log": places["log"]}) == set()


PARQUET = {
    "a column is missing": lambda t: t.drop_columns(["age"]),
    "texts for numbers": lambda t: t.set_column(0, "dose", [[NAME] * len(t)]),
    "lists for numbers": lambda t: t.set_column(0, "dose", [[[DOSE]] * len(t)]),
    "a missing cell": lambda t: t.set_column(0, "dose", [[None] + [DOSE] * (len(t) - 1)]),
    "another category": lambda t: t.set_column(4, "ward", [[NAME] * len(t)]),
    "a target that is no class": lambda t: t.set_column(2, "ill", [[ILL] * len(t)]),
    "no records": lambda t: t.slice(0, 0),
}


@pytest.mark.quick_cases("no records", "a column is missing", "a target that is no class")
@pytest.mark.parametrize("spoil", PARQUET.values(), ids=list(PARQUET))
def test_a_wrong_parquet_file_at_one_silo_is_one_sentence_for_that_silo(home, outside, spoil):
    parquet, csv = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.csv")
    for path in home.glob("*.csv"):
        table_ = csv.read_csv(path)
        table_ = spoil(table_) if path.stem == "south" else table_
        parquet.write_table(table_, path.with_suffix(".parquet"))
    study = Study.parse(STUDY.format(nodes=0, kind="logistic").replace(".csv", ".parquet"))
    places = outside.places(home / "a", lambda folder: run(study, folder / "run"))
    assert places["caller"].count(b"DataError: expected") == 1
    assert b"south.parquet" in places["caller"]
    assert not {b"north.parquet", b"west.parquet"} & set(places["caller"].split())
    assert not any(place.startswith("frame") for place in places)
    assert found_in({place: places[place] for place in ("caller", "log", "warnings")}) == set()


def asked(folder: Path) -> Callable[[Path], object]:
    """A whole run of the same records, asked of databases that lie where connections are."""
    connections = []
    for party in ("north", "south", "west"):
        lines = Path(f"{party}.csv").read_text().splitlines()
        with closing(sqlite3.connect(folder / f"{party}.sqlite")) as opened:
            opened.execute("CREATE TABLE seen (pid, dose, age, ill, name, ward)")
            rows = [(k, *line.split(",")) for k, line in enumerate(lines[1:])]
            opened.executemany("INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?)", rows)
            opened.commit()
        connections += [f"[{party}]", f'url = "sqlite:///{party}.sqlite"']
    (folder / "sources.toml").write_text("\n".join(connections))
    (folder / "sources.toml").chmod(0o600)
    query = """source = "sql"
query = "SELECT pid, dose, age, ill, ward FROM seen"
tables = { seen = "pid" }
patient = "pid"
most_per_patient = 1"""
    text = STUDY.format(nodes=0, kind="logistic").replace('files = "{name}.csv"', query)
    study = Study.parse(text)
    made = planned(study)
    return lambda run_folder: run(
        study, run_folder / "run", ledgers=run_folder / "ledgers", progress=print, plan=made
    )


@pytest.mark.slow
def test_nothing_planted_leaves_a_silo_whose_records_are_asked_of_a_database(home, outside):
    act = asked(home)
    runs = [outside.places(home / str(k), act) for k in range(2)]
    assert set(runs[0]) >= {f"frame {Tag.MASKED.name}", "file .safetensors", "file .jsonl"}
    assert leaks(*runs) == set()
    assert (home / "extracts").is_dir()


CELLS = {
    "a cell that is no number": f"UPDATE seen SET dose = '{NAME}' WHERE pid = 9",  # noqa: S608 (the test's own database)
    "a category that is none": f"UPDATE seen SET ward = '{NAME}' WHERE pid = 9",  # noqa: S608 (the test's own database)
    "a target that is no class": f"UPDATE seen SET ill = {ILL} WHERE pid = 9",  # noqa: S608 (the test's own database)
    "nobody's record": "UPDATE seen SET pid = NULL WHERE pid = 9",
    "a missing cell": "UPDATE seen SET dose = NULL WHERE pid = 9",
    "no records": "DELETE FROM seen",
}
TABLES = {
    "no column": "ALTER TABLE seen RENAME COLUMN dose TO quackenbush",
    "no table": "ALTER TABLE seen RENAME TO quackenbush",
}


def spoiled(home, spoil):
    act = asked(home)
    with closing(sqlite3.connect(home / "south.sqlite")) as opened:
        opened.execute(spoil)
        opened.commit()
    return act


@pytest.mark.quick_cases("no records")
@pytest.mark.slow_cases("a target that is no class", "a missing cell")
@pytest.mark.parametrize("spoil", CELLS.values(), ids=list(CELLS))
def test_p31_a_wrong_cell_of_a_database_keeps_no_silo_away(home, outside, spoil):
    act = spoiled(home, spoil)
    places = outside.places(home / "a", act)
    assert f"frame {Tag.MASKED.name}" in places
    assert b"DataError" not in places["caller"]

    def told(places: Places) -> Places:
        return {place: places[place] for place in ("caller", "log")}

    assert found_twice(told(places), lambda: told(outside.places(home / "b", act))) == set()


@pytest.mark.parametrize("spoil", TABLES.values(), ids=list(TABLES))
def test_a_wrong_database_is_told_without_anything_that_is_in_it(home, outside, spoil):
    places = outside.places(home / "a", spoiled(home, spoil))
    assert b"DataError: expected" in places["caller"]
    assert b"south" in places["caller"]
    assert not any(place.startswith("frame") for place in places)
    assert found_in({"caller": places["caller"], "log": places["log"]}) == set()


class Quoting(nn.Module):
    """A model that cannot take real records, and says so with one of them."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, 1)

    def forward(self, x):
        if (x[:, 2].abs() == 1).all():  # the ward, which is never so in made-up records
            raise ArithmeticError(f"cannot take {DOSE} of {NAME}")
        return self.head(x).squeeze(-1)


def quoting(inputs, outputs):
    return Quoting(inputs[0])


@pytest.mark.slow
def test_an_error_of_a_model_on_private_records_does_not_quote_them(home, outside):
    places = outside.places(home / "a", training(kind=f"python:{__name__}:quoting"))
    assert ModelError.__name__.encode() in places["caller"]
    assert b"raised ArithmeticError" in places["caller"]
    assert found_in({place: places[place] for place in ("caller", "screen", "log")}) == set()


def test_the_search_finds_every_form_of_what_is_planted():
    features = np.array([2 * DOSE - 1, AGE / 50 - 1], np.float32)
    for form in (
        features.tobytes(),
        features.astype(">f8").tobytes(),
        str(features.tolist()).encode(),
    ):
        for content in (form, form.hex().encode(), base64.b64encode(b"ab" + form)):
            assert found_in({"a": b"..." + content}) == {("the features", "a")}
    for text in (f'{{"n": {COUNT}}}', f"{COUNT:,} records", f"{COUNT}.0", hex(COUNT)):
        assert found_in({"a": text.encode()}) == {("the number of records", "a")}
    for value in (struct.pack(">Q", COUNT), struct.pack("<i", COUNT), struct.pack("<d", COUNT)):
        assert found_in({"a": value}) == {("the number of records", "a")}
    assert found_in({"a": f"0.{COUNT}77 1{COUNT} {COUNT}4".encode()}) == set()
    assert found_in({"a": f"{DOSE} {AGE:.9e} {NAME.upper()}".encode()}) == {
        ("the record", "a"),
        ("the name", "a"),
    }
