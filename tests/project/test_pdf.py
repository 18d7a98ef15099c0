"""The PDF has every statement, and its links lead to places in it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

MAKE = Path(__file__).parents[2] / "docs" / "pdf" / "make.py"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    for package in ("pypandoc", "typst"):
        pytest.importorskip(package, reason="make pdf installs it")
    spec = importlib.util.spec_from_file_location("make", MAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_of_statements_is_in_the_document(make: ModuleType) -> None:
    pages = set((make.DOCS / "privacy").glob("*.md"))
    assert pages <= set(make.PAGES)


def test_every_link_leads_to_a_place_in_the_document(make: ModuleType) -> None:
    text = make.document()
    places = re.findall(r"(?m)^#+ .* \{#([\w-]+)\}$", text)
    assert len(places) == len(set(places)) > 60
    links = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert len(links) > 30
    assert links <= set(places)


@pytest.mark.slow
def test_the_same_text_gives_the_same_pdf(make: ModuleType) -> None:
    text = make.document()
    assert make.pdf(text) == make.pdf(text)
    assert make.pdf(text).startswith(b"%PDF")
