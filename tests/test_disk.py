"""Files are there as a whole or not at all, and nobody else's file is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hubbub.disk import PRIVATE, PUBLIC, appending, locked, why_of, write_bytes, write_text


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
