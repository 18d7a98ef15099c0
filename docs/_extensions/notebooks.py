"""Notebooks on the site, with what their cells give.

A page with the line `<!-- notebook ../NAME.ipynb -->` shows that notebook. Its cells are run in one
process while the page is made, so that what stands under them is never old; one that fails ends
the making of the site.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
_NOTEBOOK = re.compile(r"(?m)^<!-- notebook (\S+) -->$")
_LIMIT = 600  # seconds for all cells together

# Runs cells that come as JSON, and prints what each printed, warned and gave, as JSON.
_RUN = """
import ast, contextlib, io, json, sys
cells, names, out = json.load(sys.stdin), {}, sys.stdout
told = []
for cell in cells:
    body = ast.parse(cell).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    given = "" if value is None else repr(value)
    told.append("\\n".join(part for part in (said.getvalue().strip(), given) if part))
json.dump(told, out)
"""


def shown(notebook: Path) -> str:
    """A notebook as a page's text: its cells, and under each what it gave."""
    cells = [
        (cell["cell_type"], "".join(cell["source"]))
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    ]
    given = iter(_given([source for kind, source in cells if kind == "code"]))
    parts = []
    for kind, source in cells:
        if kind == "code":
            parts += [f"```python\n{source}\n```", _answer(next(given))]
        else:
            parts.append(re.sub(r"(?m)^#", "##", source))
    return "\n\n".join(part for part in parts if part)


def _given(cells: list[str]) -> list[str]:
    """What each cell gave, all of them run in one process."""
    done = subprocess.run(  # noqa: S603 - this Python
        [sys.executable, "-c", _RUN],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=True,
    )
    return [str(text) for text in json.loads(done.stdout)]


def _answer(text: str) -> str:
    return f"```text\n{text}\n```" if text else ""


def _read(app: Any, docname: str, source: list[str]) -> None:
    def whole(found: re.Match[str]) -> str:
        path = (DOCS / docname).parent.joinpath(found[1]).resolve()
        app.env.note_dependency(str(path))
        return shown(path)

    source[0] = _NOTEBOOK.sub(whole, source[0])


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
