"""Files: written whole or not at all, and read through one guard, whoever made them.

Reading: a file of a few bytes must not cost minutes or gigabytes, whatever it holds. So a file is
opened only if it is an ordinary one (to open a pipe would wait for whoever writes to it), is read
up to a stated size, and is counted before it is parsed. What is refused is an `OSError` or a
`ValueError` in a few words; whoever reads says what was expected. Writing: a file is still there
after a crash, and may be read by all (`PUBLIC`) or its owner alone, whatever the umask.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import stat
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EISDIR
from itertools import chain, count
from math import prod
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

PUBLIC, PRIVATE = 0o644, 0o600
MOST_BYTES = 1 << 24  # of a study, a roster, a note: all that people look at
# Of JSON and TOML: a value of a few letters takes up to a few hundred bytes once it is read.
_MOST_VALUES = 1_000_000
_MOST_ENTRIES = 400_000  # of TOML, whose reader takes some ten microseconds for each
_MOST_PARTS = 32  # of a dotted key, for which the reader's time and memory grow with the square
_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"""(?<![\w"'-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{_MOST_PARTS}}}""")
_MOST_UNPACKED = 32  # how much larger than the file the arrays of an archive may be
_NO_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, OverflowError),
    *(KeyError, MemoryError),
)
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a letter that JSON spells in two
_SIZES = {(1, 0): 2, (2, 0): 4}  # of how many bytes an array's header says its length in
_MOST_HEADER = 10_000
# A header is a text of Python: of any other than these, its reader would make what it likes.
_NPY_HEADER = re.compile(
    rb"""\{\s*'descr':\s*'([<>|=]?[biuf]\d{1,2})',\s*'fortran_order':\s*(True|False),\s*'shape':"""
    rb"""\s*\(((?:\d{1,18},\s?)*(?:\d{1,18})?)\),?\s*\}\s*"""
)
# A file may say that it has any number of zeros and take no room on the disk. So large, and so many
# times as large as its room, is nothing that a file system has packed.
_ALL_HOLE, _PACKED = 1 << 30, 1000
_DEVICE = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)", re.IGNORECASE)  # of Windows
_MOST_LETTERS = 50  # of a file's name, of up to four bytes each, of which disks take 255


def why_of(error: OSError) -> str:
    """What went wrong, in a few words; not every such error has the system's."""
    return error.strerror or str(error) or type(error).__name__


def open_ordinary(path: Path) -> BinaryIO:
    """An ordinary file, open to be read.

    OSError: it cannot be opened, or is a pipe, a device, a folder, or a gigabyte of hole.
    """
    descriptor = _ordinary(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    status = os.fstat(descriptor)
    if status.st_size > max(_ALL_HOLE, status.st_blocks * 512 * _PACKED):
        os.close(descriptor)
        raise OSError(0, "a sparse file with hardly any data")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """All of an ordinary file.

    OSError: as for `open_ordinary`, or it has more than `most` bytes.
    """
    with open_ordinary(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(0, f"more than {most} bytes")
        content = file.read(size + 1)  # some files say that they are empty, and never end
        if len(content) > size:
            raise OSError(0, "more bytes than its size")
        return content


def read_text(path: Path, *, most: int = MOST_BYTES) -> str:
    """All of an ordinary file of UTF-8, its line ends as Python knows them.

    Raises:
        OSError: as for `read_bytes`.
        UnicodeDecodeError: it is no text.
    """
    text = read_bytes(path, most=most).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_value(text: bytes | str) -> Any:
    """JSON in which every name stands once and every number is one.

    Of a name that stands twice, readers differ in which they believe.

    ValueError: it is not that, or has more values or levels than anybody needs.
    """
    marks: tuple[Any, ...] = ("[", "{", ",") if isinstance(text, str) else (b"[", b"{", b",")
    if sum(map(text.count, marks)) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values")
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refused
        )
    except RecursionError:
        raise ValueError("nested too deep") from None
    if _HALF.search(text if isinstance(text, str) else text.decode()):
        json.dumps(value, ensure_ascii=False).encode()  # half a letter cannot be written
    return value


def toml_table(text: str) -> dict[str, Any]:
    """The table of a TOML text.

    ValueError: it is none, or has more entries, levels or parts of a key than anybody needs;
    `tomllib.TOMLDecodeError` where it is a matter of syntax.
    """
    if sum(map(text.count, "=,[{")) > _MOST_ENTRIES:
        raise ValueError(f"more than {_MOST_ENTRIES} entries")
    if long := _LONG_KEY.search(text):
        line = 1 + text.count("\n", 0, long.start())
        raise ValueError(f"a key of more than {_MOST_PARTS} parts in line {line}")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("lists or tables nested too deep to read") from None


def npz_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of numbers in an `.npz` file, which may be packed, but not to next to nothing.

    ValueError: it is no such file, or its arrays are out of proportion to it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.infolist()
            if sum(part.file_size for part in parts) > _MOST_UNPACKED * len(content) + MOST_BYTES:
                raise ValueError("its arrays are far larger than the file")
            return {part.filename.removesuffix(".npy"): _array(archive, part) for part in parts}
    except _NO_ARCHIVE as error:
        raise ValueError(
            f"it is not a complete archive of arrays ({type(error).__name__})"
        ) from None


def _array(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, whose size is known before anything is made; ValueError if it is none."""
    with archive.open(part) as file:
        shape, by_columns, dtype = _npy_header(file)
        count = prod(shape)
        if count * dtype.itemsize > part.file_size:
            raise ValueError("it has an array that is not numeric, or is cut short")
        numbers = file.read(count * dtype.itemsize)
    array = np.frombuffer(bytearray(numbers), dtype, count)
    return array.reshape(shape, order="F" if by_columns else "C")


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape of an array of numbers, whether its columns come first, and its type."""
    length = _SIZES.get(np.lib.format.read_magic(file))
    if length is None:
        raise ValueError("it has an array of another format")
    size = int.from_bytes(file.read(length), "little")
    said = _NPY_HEADER.fullmatch(file.read(size)) if size <= _MOST_HEADER else None
    if said is None:
        raise ValueError("it has an array with an invalid header")
    kind, order, shape = (text.decode() for text in said.groups())
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise ValueError("it has an array of numbers of unknown size") from None
    return tuple(map(int, shape.replace(",", " ").split())), order == "True", dtype


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object; ValueError if one stands twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _finite(digits: str) -> float:
    """A number that is not past all others; ValueError if it is."""
    number = float(digits)
    if number - number != 0:
        raise ValueError("a number that is too large")
    return number


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def file_name(text: str, is_free: Callable[[str], bool] = lambda _: True) -> str:
    """A text from anywhere as the name of a file, which lies in the folder where it is put.

    A number is added until `is_free` says that nothing else has this name, which it is given in
    small letters, as many disks tell no others apart.

    >>> file_name("../../by arm"), file_name("/srv/x"), file_name(""), file_name("NUL.x")
    ('by-arm', 'srv-x', 'unnamed', 'NUL-.x')
    """
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in text)
    name = plain.lstrip(".-")[:_MOST_LETTERS] or "unnamed"
    name = _DEVICE.sub(r"\1-", name, count=1)
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(free for free in names if is_free(free.casefold()))


def inside(folder: Path, name: str) -> Path:
    """The path of that name below a folder.

    OSError: it is above it or beside it, be it by a link.
    """
    path = folder / name
    if not path.parent.resolve().is_relative_to(folder.resolve()) or path.name in ("", ".."):
        raise OSError(0, f"{name!r} lies outside {folder}")
    return path


def fresh(path: Path, *, mode: int = PUBLIC) -> BinaryIO:
    """A new file, without a buffer, in the place of whatever is there; no link is followed.

    The folder may be a stranger's, whose links point at files of whoever looks into it.
    """
    path.unlink(missing_ok=True)
    return _made(path, os.O_WRONLY | os.O_EXCL, mode)


def appending(path: Path, *, mode: int = PUBLIC) -> BinaryIO:
    """A file to be written to at its end, without a buffer; made if it is not there.

    OSError: something else than an ordinary file is there, or a link.
    """
    return _made(path, os.O_WRONLY | os.O_APPEND, mode)


def append_line(path: Path, line: str, *, mode: int = PUBLIC) -> None:
    """Add a line to a log; what a full disk or a crash has torn off before stays a line of its own.

    OSError: as for `appending`, or the disk is full.
    """
    with appending(path, mode=mode) as file, open_ordinary(path) as before:
        before.seek(max(0, before.seek(0, os.SEEK_END) - 1))
        is_torn = before.read(1) not in (b"", b"\n")
        write_all(file, b"\n" * is_torn + line.encode() + b"\n")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that a file stands for; the system frees it when the process ends.

    BlockingIOError: somebody holds it.
    """
    with appending(path, mode=PRIVATE) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def make_private(path: Path) -> None:
    """Make an empty file that its owner alone may read, unless there is something."""
    try:
        _made(path, os.O_WRONLY | os.O_EXCL, PRIVATE).close()
    except FileExistsError:
        return


def _made(path: Path, how: int, mode: int) -> BinaryIO:
    """A file that is open for writing; if it is new, just these may use it."""
    how |= os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, how | os.O_EXCL, mode)
        os.fchmod(descriptor, mode)  # the umask may allow more than is meant, or less
    except FileExistsError:
        if how & os.O_EXCL:
            raise
        descriptor = os.open(path, how, mode)
    return os.fdopen(_ordinary(descriptor), "wb", buffering=0)


def _ordinary(descriptor: int) -> int:
    """The descriptor of an ordinary file; another's is closed, and OSError raised."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(0, "not an ordinary file")


def write_all(file: BinaryIO, content: bytes | memoryview) -> None:
    """All of it into a file without a buffer: a disk that is nearly full takes a part."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def sync_folder(folder: Path) -> None:
    """Have a new name on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(
    path: Path,
    *content: bytes | memoryview,
    durable: bool = True,
    mode: int = PUBLIC,
    named: Callable[[], Path] | None = None,
) -> None:
    """Write a file, given in pieces, all at once or not at all; what is there is replaced.

    Args:
        durable: it is on disk when this returns; else it may be lost with the power.
        mode: who may read it: `PUBLIC` or `PRIVATE`.
        named: what it is called instead, in the same folder; asked once the disk has all of it.
    """
    if not path.name:  # as "." and "/" have none
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    part = path.with_name(path.name + ".part")
    try:
        with fresh(part, mode=mode) as file:
            for piece in content:
                write_all(file, piece)
            if durable:
                os.fsync(file.fileno())
        part.replace(named() if named else path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_text(path: Path, text: str, *, durable: bool = True, mode: int = PUBLIC) -> None:
    """Write a text file all at once or not at all."""
    write_bytes(path, text.encode(), durable=durable, mode=mode)
