"""Files that anybody may have made cost no more than their size, and end in one sentence."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hubbub import learning
from hubbub.core import disk
from hubbub.core.errors import HubbubError, IntegrityError, StudyError, UserError
from hubbub.core.ledger.entry import Cap
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.runs.checkpoint import newest_checkpoint
from hubbub.core.study.study import Study
from hubbub.core.tabular.cells import read_cells
from hubbub.core.tabular.records import Standardisation
from hubbub.core.verification.evidence.evidence_file import load
from hubbub.desk.cli.main import main
from hubbub.desk.report.report_of_run import write_report
from hubbub.learning.parameters import read_pinned
from hubbub.learning.runs.run_study import resume
from hubbub.site.network.folder_files import identities, read_identity, read_roster

SPECIAL = ["/dev/zero", "pipe", "folder"]
NOTHING = "0" * 64

READERS: dict[str, Callable[[Path], object]] = {
    "study": Study.load,
    "roster": read_roster,
    "identity": read_identity,
    "evidence": load,
    "weights.npz": lambda path: read_pinned(path, NOTHING),
    "weights.safetensors": lambda path: read_pinned(path, NOTHING),
    "model": lambda path: learning.load_model(path, learning.build_model("logistic", **ONE)),
    "csv": read_cells,
    "parquet": lambda path: read_cells(path.rename(path.with_suffix(".parquet"))),
    "standardisation": lambda path: Standardisation.read(path, 2),
}
ONE = {"inputs": (2,), "outputs": 1, "seed": b"x"}


@pytest.fixture
def special(tmp_path: Path) -> Callable[[str], Path]:
    """A path at which there is no ordinary file."""

    def made(kind: str) -> Path:
        path = tmp_path / "there"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to(kind)
        return path

    return made


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_ordinary_file_is_refused_and_not_waited_for(special, reader, kind) -> None:
    if reader == "parquet":
        pytest.importorskip("pyarrow")
    with pytest.raises(HubbubError) as refusal:
        READERS[reader](special(kind))
    assert str(refusal.value).startswith("expected ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize(
    "command",
    [
        ["plan", "{}"],
        ["run", "{}"],
        ["audit", "{}"],
        ["roster", "{}"],
        ["ledger", "show", "{}"],
        ["ledger", "witness", "{}", "--key", "own.key"],
        ["verify", "{}"],
        ["status", "{}"],
        ["report", "{}"],
    ],
    ids=" ".join,
)
def test_every_command_on_such_a_path_says_one_sentence(
    special, command, kind, capsys, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = special(kind)
    assert main([one.format(path) for one in command]) in (1, 2)
    said = capsys.readouterr()
    assert said.err.startswith("hubbub: expected ")
    assert said.err.count("\n") == 1


def test_plan_of_a_device_without_an_end_is_bad_input(capsys) -> None:
    assert main(["plan", "/dev/zero"]) == 2
    assert "not an ordinary file" in capsys.readouterr().err


# TOML ---------------------------------------------------------------------------------------------

TOML = {
    "one key of many parts": "a" + ".a" * 30_000 + " = 1",
    "quoted parts": "'a'" + '."a"' * 15_000 + " = 1",
    "a table of many parts": "[a" + ".a" * 1000 + "]\n" + "".join(f"b{k}=1\n" for k in range(9000)),
    "lists in lists": "a = " + "[" * 30_000,
    "tables in tables": "a = " + "{a = " * 12_000,
    "a million entries": "a = [" + "1," * 1_000_000 + "]",
}


@pytest.mark.parametrize("case", TOML)
def test_texts_that_cost_more_than_their_size_are_refused_before_they_are_read(case) -> None:
    tracemalloc.start()
    with pytest.raises(StudyError, match="expected an identity or a roster"):
        identities(TOML[case])
    with pytest.raises(StudyError, match="expected a TOML file"):
        Study.parse(TOML[case])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 2**20


def test_lists_of_numbers_and_names_with_points_are_no_long_keys() -> None:
    text = f"a = [{'0.5, ' * 1000}]\nb = '{'w.' * 20}'\nc.d.e = 1"
    assert disk.toml_table(text)["c"] == {"d": {"e": 1}}


# JSON ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" + "[]," * 1_000_001 + "0]", "values"),
        ("[" * 100_000, "deep"),
        ('{"a": 1, "a": 2}', "twice"),
        ("NaN", "no number"),
        ("[1e999]", "too large"),
        ("9" * 5000, "digits"),
    ],
    ids=["many", "deep", "twice", "nan", "infinite", "long"],
)
def test_json_that_readers_could_differ_in_or_choke_on_is_refused(text, why) -> None:
    for one in (text, text.encode()):
        with pytest.raises(ValueError, match=why):
            disk.json_value(one)


def test_evidence_of_many_empty_lists_takes_little_memory(tmp_path) -> None:
    path = tmp_path / "evidence.json"
    body = '{\n "a": [' + "[]," * 3_000_000 + "[]]"
    path.write_text(f'{body},\n "signature": "{"0" * 128}"\n}}\n')
    tracemalloc.start()
    with pytest.raises(IntegrityError, match="as its aggregator signed it"):
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * path.stat().st_size


@pytest.mark.parametrize(
    "text", ["[]", "7", '{"time": "soon"}', '{"a": 1}', "{", f"[{'1' * 5000}]"]
)
def test_an_odd_status_is_one_sentence(tmp_path, capsys, text) -> None:
    (tmp_path / "status.json").write_text(text)
    assert main(["status", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["plan.json", "run.json", "metrics.jsonl", "comparison.json"])
@pytest.mark.parametrize("text", ["[]", "7", "{", "[" * 5000, '{"a": NaN}', '{"time": 1e999}'])
def test_an_odd_file_of_a_run_is_one_sentence(tmp_path, name, text) -> None:
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / name).write_text(text)
    with pytest.raises(HubbubError, match="expected "):
        write_report(tmp_path)
    (tmp_path / "study.toml").write_text("")
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(HubbubError, match="expected "):
        resume(tmp_path)


# Arrays -------------------------------------------------------------------------------------------


def npy(shape: str = "(2,)", descr: str = "'<f4'", content: bytes = bytes(8)) -> bytes:
    """A file of one array that says this of itself."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def archive(**parts: bytes) -> bytes:
    """An `.npz` of these files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in parts.items():
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


NPZ: dict[str, Callable[[], bytes]] = {
    "a header that states gigabytes": lambda: archive(a=npy("(1000000000,)")),
    "a negative shape": lambda: archive(a=npy("(-1,)")),
    "a torn array": lambda: archive(a=npy("(3,)")),
    "objects": lambda: archive(a=npy(descr="'|O'")),
    "a structure": lambda: archive(a=npy(descr="[('a', '<f4')]")),
    "no header": lambda: archive(a=b"nothing"),
    "an odd header": lambda: archive(a=npy("__import__('os')")),
    "zeros packed a thousand times": lambda: archive(a=npy("(7500000,)", content=bytes(3 * 10**7))),
    "no archive": lambda: b"PK\x03\x04" + bytes(100),
    "nothing": lambda: b"",
    "a torn archive": lambda: archive(a=npy())[:-30],
}


@pytest.mark.slow_cases("zeros packed a thousand times")
@pytest.mark.parametrize("case", NPZ)
def test_an_archive_of_something_else_is_one_sentence_and_little_memory(tmp_path, case) -> None:
    path = tmp_path / "weights.npz"
    content = NPZ[case]()
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(IntegrityError, match=r"^expected tensors in .*; name another file"):
        read_pinned(path, sha256(content).hexdigest())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22 + 4 * len(content)


def test_an_archive_that_numpy_wrote_is_read(tmp_path) -> None:
    path = tmp_path / "weights.npz"
    matrix = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    np.savez_compressed(path, a=matrix, b=np.zeros(()), c=np.zeros((2, 0)), d=np.ones(3, bool))
    found = read_pinned(path, sha256(path.read_bytes()).hexdigest())
    assert (found["a"].numpy() == matrix).all()
    assert {name: tuple(one.shape) for name, one in found.items()} == {
        "a": (2, 3),
        "b": (),
        "c": (2, 0),
        "d": (3,),
    }


def test_a_header_of_tensors_that_states_gigabytes_is_refused(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.zeros(2, np.float32)}, path)
    path.write_bytes((2**33).to_bytes(8, "little") + path.read_bytes()[8:])
    for read in (READERS["model"], lambda one: learning.stored_parameters(one, 2)):
        with pytest.raises(IntegrityError, match="header"):
            read(path)


def test_an_odd_checkpoint_is_one_sentence(tmp_path) -> None:
    for content in (b"", b"\xff" * 20, (2).to_bytes(8, "little") + b"[]"):
        name = f"step-00000001-{sha256(content).hexdigest()}.safetensors"
        (tmp_path / name).write_bytes(content)
        with pytest.raises(IntegrityError, match="expected a checkpoint"):
            newest_checkpoint(tmp_path)
        (tmp_path / name).unlink()


# Tables -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_parquet_file_of_more_cells_than_bytes_can_say_is_refused(tmp_path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "silo.parquet"
    parquet.write_table(pa.table({"a": pa.array(np.zeros(20_000_000, np.int8))}), path)
    assert path.stat().st_size < 2**18
    before = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    with pytest.raises(UserError, match="in proportion to its size"):
        read_cells(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert pa.default_memory_pool().max_memory() <= before + 2**20


@pytest.mark.slow
def test_a_parquet_file_of_equal_cells_takes_little_memory(tmp_path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "silo.parquet"
    parquet.write_table(pa.table({"a": ["x" * 1000] * 50_000, "b": [1.5, None] * 25_000}), path)
    tracemalloc.start()
    found = read_cells(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()
    assert found["a"] == ["x" * 1000] * 50_000
    assert found["b"] == ["1.5", ""] * 25_000


def test_a_ledger_whose_key_is_no_file_is_one_sentence(tmp_path) -> None:
    with Ledger(tmp_path / "a.sqlite") as ledger:
        ledger.set_cap(Cap(epsilon=1.0, delta=1e-5, relation="add-remove"))
    for name in ("a.sqlite.key", "a.sqlite.head"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(IntegrityError), Ledger(tmp_path / "a.sqlite") as ledger:
            ledger.verify()
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes(whole)
