"""How the pages become a site: `make docs`.

Everything that a reader's browser needs is on the site itself: formulas become MathML while the
site is built, and the search is Sphinx's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent / "src"), str(DOCS / "_extensions")]

from hubbub import VERSION  # noqa: E402 - its folder has just been added

project = "hubbub"
author = "The hubbub contributors"
version = release = VERSION
exclude_patterns = ["_build", "_extensions"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "commands",
    "docstrings",
    "formulas",
    "study_keys",  # before "links", which turns what the tables link to
    "statements",
    "links",
    "notebooks",
]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # included pages begin at a level of their own

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Guarantees", "Requires", "Source", "Theory of operation"]
default_role = "code"
highlight_language = "text"

html_theme = "furo"
html_title = f"hubbub {release}"
html_show_sourcelink = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
