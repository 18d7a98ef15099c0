"""Formulas as MathML, made by docutils while the site is built: no script, no font, no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

# What our pages use and docutils does not know: the sizes are its own choice, and the parts of a
# fraction want braces.
_OTHER_WORDS = (
    (re.compile(r"\\[bB]igg?[lr]?(?![a-zA-Z])"), ""),
    (re.compile(r"\\dots(?![a-z])"), r"\\ldots "),
    (re.compile(r"\\([td]?frac)(\w)(\w)"), r"\\\1{\2}{\3}"),
)


def mathml(formula: str, *, block: bool) -> str:
    """A formula in TeX as MathML."""
    for pattern, other in _OTHER_WORDS:
        formula = pattern.sub(other, formula)
    return str(tex2mathml(formula, as_block=block))


def _inline(self: Any, node: nodes.Element) -> None:
    self.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.Element) -> None:
    self.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
