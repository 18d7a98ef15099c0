"""Docstrings on the page of Python names: properties read like methods, statements are links."""

from __future__ import annotations

import re
from typing import Any

from sphinx.ext.napoleon.docstring import GoogleDocstring

_STATEMENT = re.compile(r"docs/privacy\.md P(\d+)")


def _like_a_method(self: Any) -> list[str]:
    """Napoleon takes what stands before a property's first colon for its type; ours have none."""
    self._what = "method"
    self._parse()
    return []


def _linked(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [_STATEMENT.sub(r"`P\1 <../privacy.html#p\1>`__", line) for line in lines]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    GoogleDocstring._parse_attribute_docstring = _like_a_method  # type: ignore[method-assign]
    app.connect("autodoc-process-docstring", _linked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
