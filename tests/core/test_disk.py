"""Files are there as a whole or not at all, and nobody else's file is written."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from hubbub.core import disk
from hubbub.core.disk import (
    PRIVATE,
    PUBLIC,
    appending,
    inside,
    locked,
    read_bytes,
    why_of,
    write_bytes,
    write_text,
)


@pytest.mark.parametrize("durable", [True, False])
def test_a_link_in_the_way_is_replaced_and_not_followed(tmp_path: Path, durable: bool) -> None:
    """Whoever made the folder may have pointed at a file of whoever writes into it."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    theirs.mkdir()
    for name in ("page.html", "page.html.part"):
        (theirs / name).symlink_to(mine)
    write_text(theirs / "page.html", "a page", durable=durable)
    assert mine.read_text() == "mine"
    assert (theirs / "page.html").read_text() == "a page"
    assert not (theirs / "page.html").is_symlink()
    assert [one.name for one in theirs.iterdir()] == ["page.html"]


@pytest.mark.parametrize("path", [".", "/"])
def test_a_folder_in_the_place_of_a_file_is_an_error_of_the_disk(path: str) -> None:
    with pytest.raises(IsADirectoryError):
        write_text(Path(path), "a page")


def test_what_could_not_be_written_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    write_bytes(path, b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["state"]
    write_bytes(path, b"newer")
    assert path.read_bytes() == b"newer"


def test_a_file_is_named_once_the_disk_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", synced.append)

        def named() -> Path:
            assert len(synced) == 1
            return tmp_path / "named"

        write_bytes(tmp_path / "state", b"all", named=named)
    assert [one.name for one in tmp_path.iterdir()] == ["named"]


@pytest.mark.parametrize("umask", [0, 0o077])
def test_who_may_read_a_file_is_what_its_writer_means(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        for mode in (PUBLIC, PRIVATE):
            write_bytes(tmp_path / "whole", b"", mode=mode)
            appending(tmp_path / f"end-{mode}", mode=mode).close()
            for name in ("whole", f"end-{mode}"):
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_lock_is_held_once_and_free_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock"):
            pass


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("no wire"), "no wire"),
        (OSError(), "OSError"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_error_without_a_number_has_words_too(error: OSError, why: str) -> None:
    assert why_of(error) == why


# Arrays -------------------------------------------------------------------------------------------

HEADERS = {
    "brackets": b"((((",
    "many brackets": b"(" * 9_000,
    "signs": b"-" * 9_000 + b"1",
    "no text": b"\xff" * 60,
    "a torn text": b"{'descr': '<f4",
    "another name": b"{'descr': '<f4', 'fortran_order': False, 'size': (1,), }",
    "objects": b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "a negative size": b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "floats of 99 bytes": b"{'descr': '<f99', 'fortran_order': False, 'shape': (1,), }",
    "a shape of shapes": b"{'descr': '<f4', 'fortran_order': False, 'shape': ((1,),), }",
    "more than there is": b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999,), }",
    "a size that is none": b"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2,), }",
    "nothing": b"",
}


def archive_of(header: bytes, version: bytes = b"\x01\x00") -> bytes:
    """An archive of one array with that header."""
    size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY" + version + size + header + bytes(8))
    return file.getvalue()


@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\xff\xff"])
@pytest.mark.parametrize("case", HEADERS)
def test_an_array_whose_header_is_none_is_refused_in_a_few_words(case, version) -> None:
    with pytest.raises(ValueError, match=r"^it (has|is)"):
        disk.npz_arrays(archive_of(HEADERS[case], version))


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2", "|b1", "|u1", "<i8"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4), (2, 1, 3)])
def test_arrays_of_numbers_are_read_as_numpy_writes_them(kind, shape) -> None:
    array = np.arange(np.prod(shape, dtype=int)).astype(kind).reshape(shape)
    for one in (array, np.asfortranarray(array)):
        file = io.BytesIO()
        np.savez(file, one=one)
        read = disk.npz_arrays(file.getvalue())["one"]
        assert read.dtype == array.dtype
        assert np.array_equal(read, one)
        assert read.shape == one.shape


# Locks --------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize("is_read", [False, True])
def test_a_pipe_is_neither_waited_for_nor_written_to(tmp_path, is_read) -> None:
    path = tmp_path / "lock"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if is_read else None
    with pytest.raises(OSError, match=r"not an ordinary file|No such device"):
        appending(path)
    with pytest.raises(OSError, match=r"not an ordinary file|No such device"), locked(path):
        pass
    if reader is not None:
        os.close(reader)


def test_a_link_is_not_followed_to_be_written_to(tmp_path) -> None:
    path, target = tmp_path / "lock", tmp_path / "other"
    path.symlink_to(target)
    for _ in range(2):
        with pytest.raises(OSError, match="symbolic"):
            appending(path)
        target.touch()
    assert not target.read_bytes()


def test_a_gigabyte_of_hole_is_not_opened(tmp_path) -> None:
    path = tmp_path / "hole"
    path.touch()
    os.truncate(path, 2**31)
    with pytest.raises(OSError, match="sparse"):
        disk.open_ordinary(path)
    os.truncate(path, 2**20)
    disk.open_ordinary(path).close()


def test_a_new_name_is_on_the_disk_where_a_file_is_to_stay(tmp_path, monkeypatch) -> None:
    synced = []
    monkeypatch.setattr(disk, "sync_folder", synced.append)
    write_text(tmp_path / "passing", "x", durable=False)
    assert synced == []
    write_text(tmp_path / "lasting", "x")
    assert synced == [tmp_path]


def test_a_file_that_has_more_than_it_says_is_not_read(tmp_path, monkeypatch) -> None:
    """As some that the system makes up have: they are empty, and never end."""
    (path := tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(path, most=5) == b"12345"
    said = mock.Mock(st_mode=stat.S_IFREG, st_size=4, st_blocks=8)
    monkeypatch.setattr(disk.os, "fstat", lambda _: said)
    with pytest.raises(OSError, match="more bytes than its size"):
        read_bytes(path, most=5)


@pytest.mark.parametrize("name", ["../file", "..", "", "away/file", "/etc/passwd", "in/../../file"])
def test_what_lies_outside_of_a_folder_has_no_path_in_it(tmp_path, name) -> None:
    (folder := tmp_path / "folder").mkdir()
    (folder / "in").mkdir()
    (folder / "away").symlink_to(tmp_path)
    with pytest.raises(OSError, match="lies outside"):
        inside(folder, name)
    assert inside(folder, "in/file") == folder / "in" / "file"
