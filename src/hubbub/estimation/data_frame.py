"""Plain values as a data frame of the library that a user has; none of them is part of hubbub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from hubbub.core.errors import UserError

_MAKERS: Mapping[str, Callable[[Any, dict[str, list[Any]]], Any]] = {
    "pandas": lambda pandas, columns: pandas.DataFrame(columns),
    "polars": lambda polars, columns: polars.DataFrame(columns, strict=False),
    "pyarrow": lambda pyarrow, columns: pyarrow.table(columns),
}


def library_of(table: Any) -> str:
    """Which library's data frame a table is: "pandas", "polars" or "pyarrow"; "" if none of theirs.

    >>> library_of({"age": [50, 60]})
    ''
    """
    library = type(table).__module__.partition(".")[0]
    return library if library in _MAKERS else ""


def data_frame(
    content: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]], library: str = ""
) -> Any:
    """A data frame of one of the libraries; only that one is imported.

    Args:
        content: columns by name, or rows, of which each may lack some columns.
        library: "pandas", "polars" or "pyarrow"; "": the first of them that is installed.

    Raises:
        UserError: the library is not installed, or is none of these.
    """
    if isinstance(content, Mapping):
        columns = {name: list(values) for name, values in content.items()}
    else:
        names = dict.fromkeys(name for row in content for name in row)
        columns = {name: [row.get(name) for row in content] for name in names}
    for name in (library,) if library else _MAKERS:
        with suppress(ImportError, KeyError):
            return _MAKERS[name](import_module(name), columns)
    raise UserError(
        f"expected {' or '.join([library] if library in _MAKERS else _MAKERS)} for a data frame, "
        f"found {'none' if library in {'', *_MAKERS} else repr(library)}; pip install it, or take "
        "plain values: to_dict(), draw(), predict()"
    )
