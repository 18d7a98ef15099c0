"""What runs of a study's own code is the very bytes that were hashed, on the whole way to it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import py_compile
import sys
import zipfile
from pathlib import Path

import pytest

from hubbub import Study
from hubbub.core.errors import HubbubError, StudyError, loggable
from hubbub.core.study.foreign_code import (
    bind,
    keep,
    keep_known,
    knows,
    note,
    source_hash,
    user_state,
)
from hubbub.core.study.silo_records import attempted, named_object

HONEST = "def records(party):\n    return 'honest'\n"
EVIL = "def records(party):\n    return 'evil'\n"
SOURCE = "python:ward_of_pins.south.bed:records"


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in a package, with a module."""
    south = tmp_path / "ward_of_pins" / "south"
    south.mkdir(parents=True)
    for package in (south.parent, south):
        (package / "__init__.py").write_text("")
    (south / "bed.py").write_text(HONEST)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [one for one in sys.modules if one.startswith("ward_of_pins")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def of(source: str = SOURCE, *, code: dict[str, str] | None = None, name: str = "pins") -> Study:
    return Study(
        name=name,
        code=tuple((code or {}).items()),
        parties={"silos": 4, "colluders": 1},  # type: ignore[arg-type]
        data={"source": source, "records": 740},  # type: ignore[arg-type]
        model={"kind": "logistic", "inputs": [26]},  # type: ignore[arg-type]
        training={"steps": 10, "sampling": "full-batch"},  # type: ignore[arg-type]
        privacy={"epsilon": 1.0, "delta": 1e-5},  # type: ignore[arg-type]
    )


def runs(source: str = SOURCE) -> str:
    """What a study's code says once it was read and hashed."""
    keep(of(source, code={source: source_hash(source)}))
    return str(named_object(source, "data.source")("north"))


def unchecked(path: Path, text: str) -> None:
    """Put a `.pyc` of another text beside a file, which says that nobody need check it."""
    other = path.with_suffix(".other")
    other.write_text(text)
    py_compile.compile(
        str(other),
        importlib.util.cache_from_source(str(path)),
        str(path),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    other.unlink()


def marking(folder: Path) -> str:
    """Code that leaves a mark once it runs."""
    return f"open({str(folder / 'evil')!r}, 'w').close()\n"


@pytest.mark.slow
def test_an_unchecked_pyc_does_not_run_in_the_place_of_the_hashed_file(ward) -> None:
    unchecked(ward / "ward_of_pins" / "south" / "bed.py", EVIL)
    assert importlib.import_module("ward_of_pins.south.bed").records("") == "evil"  # as Python does
    assert runs() == "honest"  # and though it is loaded already


@pytest.mark.parametrize("package", ["ward_of_pins", "ward_of_pins/south"])
def test_an_unchecked_pyc_of_a_package_on_the_way_does_not_run(ward, package) -> None:
    unchecked(ward / package / "__init__.py", marking(ward))
    assert runs() == "honest"
    assert not (ward / "evil").exists()


def test_a_pyc_with_the_time_and_size_of_the_file_does_not_run(ward) -> None:
    path = ward / "ward_of_pins" / "south" / "bed.py"
    path.write_text(EVIL.replace("'evil'", "'evil'  "))
    assert path.stat().st_size == len(HONEST)
    os.utime(path, (10**9, 10**9))
    py_compile.compile(str(path), doraise=True)
    path.write_text(HONEST)
    os.utime(path, (10**9, 10**9))
    assert runs() == "honest"


@pytest.mark.parametrize("package", ["ward_of_pins", "ward_of_pins/south"])
def test_the_hash_is_of_every_init_on_the_way_too(ward, package) -> None:
    before = source_hash(SOURCE)
    (ward / package / "__init__.py").write_text(marking(ward))
    with pytest.raises(StudyError, match=r"as study\.code says, found"):
        keep(of(code={SOURCE: before}))
    (ward / package / "__init__.py").unlink()  # a namespace is another way, too
    assert source_hash(SOURCE) not in ("", before)
    assert not (ward / "evil").exists()


def test_the_hash_is_what_sha256sum_says(ward) -> None:
    names = [
        f"ward_of_pins/{name}" for name in ("__init__.py", "south/__init__.py", "south/bed.py")
    ]
    lines = [f"{hashlib.sha256((ward / name).read_bytes()).hexdigest()}  {name}" for name in names]
    assert source_hash(SOURCE) == hashlib.sha256("\n".join([*lines, ""]).encode()).hexdigest()
    (ward / "bed_of_pins.py").write_text(HONEST)
    alone = hashlib.sha256(HONEST.encode()).hexdigest()
    assert source_hash("python:bed_of_pins:records") == alone


def test_a_file_that_is_changed_after_it_was_hashed_runs_as_it_was(ward) -> None:
    keep(of(code={SOURCE: source_hash(SOURCE)}))
    for path in ward.glob("ward_of_pins/**/*.py"):
        path.write_text(marking(ward) + EVIL)
    assert named_object(SOURCE, "data.source")("") == "honest"
    assert not (ward / "evil").exists()
    assert runs() == "evil"  # once it was hashed again


def test_what_was_approved_binds_whoever_reads_the_sources_again(ward) -> None:
    study = of(name="approved")
    bind(study, {SOURCE: source_hash(SOURCE)})
    keep(study)
    (ward / "ward_of_pins" / "south" / "bed.py").write_text(EVIL)
    with pytest.raises(StudyError, match="the one that was approved, found another"):
        keep(study)


def test_a_module_that_took_the_name_before_does_not_run(ward) -> None:
    for name in ("ward_of_pins", "ward_of_pins.south", "ward_of_pins.south.bed"):
        impostor = type(sys)(name)
        impostor.__path__ = []
        exec(EVIL, vars(impostor))  # noqa: S102
        sys.modules[name] = impostor
    assert runs() == "honest"


def test_packages_and_modules_that_import_each_other_are_those_that_were_hashed(ward) -> None:
    package = ward / "ward_of_pins"
    (package / "__init__.py").write_text("from .south import bed\nfrom .south.bed import records\n")
    (package / "south" / "bed.py").write_text(
        "from .. import south as here\nfrom ..south import __name__ as where\n"
        "def records(party):\n    return where if party else 'honest'\n"
    )
    unchecked(package / "south" / "bed.py", EVIL)
    assert runs() == "ward_of_pins.south"
    loaded = sys.modules["ward_of_pins"]
    assert loaded.bed is sys.modules["ward_of_pins.south.bed"] is loaded.south.bed


def test_two_names_of_one_package_share_it(ward) -> None:
    package = ward / "ward_of_pins"
    (package / "__init__.py").write_text("beds = []\n")
    for name in ("bed", "sofa"):
        text = "from ward_of_pins import beds\ndef records(party):\n    return beds\n"
        (package / "south" / f"{name}.py").write_text(text)
    source = SOURCE.replace("bed", "sofa")
    keep(of())
    keep(of(source))
    assert named_object(SOURCE, "a")("") is named_object(source, "a")("")


def test_modules_of_a_package_that_were_loaded_before_are_still_in_it(ward) -> None:
    package = ward / "ward_of_pins"
    (package / "other.py").write_text("size = 3\n")
    importlib.import_module("ward_of_pins.other")
    (package / "south" / "bed.py").write_text(
        "import ward_of_pins.other\ndef records(party):\n    return ward_of_pins.other.size\n"
    )
    assert runs() == "3"


def test_a_compiled_module_beside_the_source_is_refused(ward) -> None:
    bed = ward / "ward_of_pins" / "south" / "bed.py"
    library = bed.with_suffix(importlib.machinery.EXTENSION_SUFFIXES[0])  # which Python prefers
    library.write_bytes(b"\x7fELF")
    with pytest.raises(StudyError, match=r"bed as Python source, .* found .*\.so"):
        keep(of())
    library.unlink()
    py_compile.compile(str(bed), str(bed.with_suffix(".pyc")))
    bed.unlink()
    with pytest.raises(StudyError, match=r"bed as Python source, .* found .*\.pyc"):
        source_hash(SOURCE)


def test_a_folder_without_an_init_is_on_no_way_and_a_link_leads_to_the_same(ward) -> None:
    for init in ward.glob("ward_of_pins/**/__init__.py"):
        init.unlink()
    assert source_hash(SOURCE) == hashlib.sha256(HONEST.encode()).hexdigest()
    assert runs() == "honest"
    bed = ward / "ward_of_pins" / "south" / "bed.py"
    bed.rename(ward / "elsewhere.py")
    bed.symlink_to(ward / "elsewhere.py")
    assert runs() == "honest"
    assert source_hash("python:ward_of_pins.south:records") == ""


def test_the_first_on_the_path_is_hashed_and_run(ward, monkeypatch) -> None:
    before = source_hash(SOURCE)
    other = ward / "first" / "ward_of_pins" / "south"
    other.mkdir(parents=True)
    for path in ward.glob("ward_of_pins/**/*.py"):
        (ward / "first" / path.relative_to(ward)).write_text(path.read_text())
    (other / "bed.py").write_text(EVIL)
    monkeypatch.syspath_prepend(ward / "first")
    assert source_hash(SOURCE) != before
    assert runs() == "evil"
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(ward / "first")])
    assert runs() == "honest"


def test_code_in_a_zip_file_is_hashed_and_run_as_source(ward, monkeypatch) -> None:
    path = ward / "code.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("__init__.py", "bed.py"):
            archive.writestr(f"zip_of_pins/{name}", HONEST)
    monkeypatch.syspath_prepend(path)
    source = "python:zip_of_pins.bed:records"
    assert len(source_hash(source)) == 64
    assert runs(source) == "honest"
    py_compile.compile(str(ward / "ward_of_pins/south/bed.py"), str(ward / "compiled"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.write(ward / "compiled", "zip_of_pins/bed.pyc")
    importlib.invalidate_caches()
    with pytest.raises(StudyError, match=r"found .*bed\.pyc"):
        source_hash(source)


def test_what_hubbub_runs_on_is_hashed_and_not_loaded_twice() -> None:
    torch = pytest.importorskip("torch")
    name = "python:torch.nn.functional:mse_loss"
    assert len(source_hash(name)) == 64
    assert named_object(name, "model.loss") is torch.nn.functional.mse_loss
    assert sys.modules["torch"] is torch
    assert named_object("python:os:getcwd", "a") is os.getcwd


def test_a_module_that_came_after_the_sources_were_read_does_not_run(ward) -> None:
    source = "python:late_of_pins:records"
    keep(of(source))
    (ward / "late_of_pins.py").write_text(EVIL)
    with pytest.raises(StudyError, match="no module named 'late_of_pins'"):
        named_object(source, "data.source")


def test_what_own_code_says_of_records_is_in_no_log_whatever_error_it_raises() -> None:
    def source() -> None:
        raise StudyError("record 7 has 41.5")

    with pytest.raises(HubbubError, match=r"record 7 has 41\.5") as raised:
        attempted(source)
    assert "41.5" not in loggable(raised.value)
    with pytest.raises(StudyError):
        attempted(source, quotes=True)  # code that sees no record


@pytest.mark.parametrize(("mode", "is_mine"), [(0o700, True), (0o770, False), (0o702, False)])
def test_a_note_counts_only_where_nobody_else_can_have_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_mine: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    note("python:model:net", "ab" * 32)
    (user_state() / "code").chmod(mode)
    assert knows("python:model:net", "ab" * 32) == is_mine


def test_code_of_a_folder_runs_once_its_very_bytes_were_noted(
    ward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(ward / "state"))
    note(SOURCE, "ab" * 32)
    with pytest.raises(StudyError, match="approved or run by this user before"):
        keep_known(of(), [SOURCE], trusted=False)
    note(SOURCE, source_hash(SOURCE))
    keep_known(of(), [SOURCE], trusted=False)
