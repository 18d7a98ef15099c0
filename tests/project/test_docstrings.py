"""A docstring's arguments are those of what it stands at."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "hubbub"
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def documented(text: str) -> Iterator[tuple[Documented, set[str]]]:
    """Functions and classes, with the names below `Args:` in their docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented) and "Args:\n" in (told := ast.get_docstring(node) or ""):
            below = re.split(r"\n(?=\w)", told.split("Args:\n", 1)[1])[0]
            heads = re.findall(r"^    ([\w*][\w*, ]*):", below, re.MULTILINE)
            yield node, set(re.findall(r"\w+", " ".join(heads)))


def arguments(node: Documented) -> set[str]:
    """What a call may name: parameters, or the fields of a class."""
    if not isinstance(node, ast.ClassDef):
        every = node.args
        named = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
        return {argument.arg for argument in named if argument is not None}
    fields = {
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    makers = (
        arguments(method)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name in ("__init__", "__new__")
    )
    return fields.union(*makers)


def wrong(text: str) -> list[str]:
    """Where a docstring names an argument that is not there; of classes that derive from none."""
    return [
        f"{node.name} ({node.lineno}): {', '.join(sorted(names - arguments(node)))}"
        for node, names in documented(text)
        if names - arguments(node) and not (isinstance(node, ast.ClassDef) and node.bases)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("room", sorted(path.name for path in SOURCE.iterdir() if path.is_dir()))
def test_docstrings_name_arguments_that_are_there(room: str) -> None:
    stale = [
        f"{path.name}: {argument}"
        for path in (SOURCE / room).rglob("*.py")
        for argument in wrong(path.read_text())
    ]
    assert not stale


def test_a_stale_name_is_seen() -> None:
    text = 'def sums(rows):\n    """Adds.\n\n    Args:\n        terms: what.\n    """\n'
    assert wrong(text) == ["sums (1): terms"]
    assert not wrong(text.replace("(rows)", "(terms)"))


# A name that a comment or docstring points to, after "see", or a constant with its module.
POINTER = re.compile(r"\bsee `([\w.]+)`|`((?:\w+\.)*[a-z_]\w*\.[A-Z_]{2,})`")


def pointers(text: str) -> list[str]:
    return [name.removesuffix(".py") for found in POINTER.findall(text) for name in found if name]


def test_a_name_that_a_comment_points_to_is_there() -> None:
    texts = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    words = {
        path: {*re.findall(r"\w+", re.sub(r"`[^`\n]*`", "", text)), path.stem, path.parent.name}
        for path, text in texts.items()
    }

    def is_there(name: str) -> bool:
        """Whether some file has all its parts, or is called as the first and has the last."""
        return any(set(name.split(".")) <= {*every, "hubbub"} for every in words.values())

    stale = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, text in texts.items()
        for name in pointers(text)
        if not is_there(name)
    ]
    assert stale == []
    assert pointers("see `spend`, `laws.NARROW`; `data.records`") == ["spend", "laws.NARROW"]
    assert not is_there("no_such_module.NARROW")
