"""What Python files import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# No statement is within an expression.
BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)


def imports(path: Path, package: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Modules that a file imports, wherever in it, each with a name that it takes of it or none.

    Args:
        path: of the file.
        package: the parts of its package's name, by which relative imports are read.
    """
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            yield from ((module, name.name) for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((name.name, "") for name in node.names)
        else:
            nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, BLOCKS)]
