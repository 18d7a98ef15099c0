"""The pages name files that exist, and docs/architecture.md every room."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hubbub"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PAGES = sorted(
    page
    for folder in (ROOT, ROOT / "docs", ROOT / "fuzz", ROOT / "benchmarks")
    for page in folder.glob("*.md" if folder == ROOT else "**/*.md")
)
# A file, or a folder that ends in a slash, with at least one slash in it.
PATH = re.compile(r"(?<![\w/.:-])((?:\w+/)+(?:\w+\.py)?)(?![\w/.-])")
QUOTED = re.compile(r"`([^`\n]+)`")


def exists(path: str) -> bool:
    """Whether a page may name a path: from the source folder, or from the root."""
    return any((folder / path).exists() for folder in (SOURCE, ROOT))


def paths_in(text: str) -> set[str]:
    """The paths of Python files and folders in a text, but not those of other people's code."""
    return set(PATH.findall(text))


def test_every_path_on_the_architecture_page_is_in_the_source_folder() -> None:
    quoted = {path for text in QUOTED.findall(PAGE) for path in paths_in(text)}
    drawn = {path for text in PAGE.split("```")[1::2] for path in paths_in(text)}
    whole = {path for path in quoted | drawn if path.endswith(".py")} | quoted - {"src/hubbub/"}
    assert len(whole) > 60
    assert sorted(path for path in whole if not (SOURCE / path).exists()) == []


def test_the_architecture_page_draws_the_layers_that_are_checked() -> None:
    """Line by line those of the contract in pyproject.toml, and all that stands at the top."""
    picture = PAGE.split("```")[1]
    rooms = r"[a-z_]+(?: \| [a-z_]+)*"
    drawn = re.findall(rf"(?m)^({rooms})(?:  |$)", picture)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(one for one in contracts["contracts"] if one["type"] == "layers")["layers"]
    told = [re.sub(r"[()]", "", one) for one in layers]
    assert drawn == [one for one in told if one != "__main__"]
    found = {one.stem for one in SOURCE.iterdir() if not one.name.startswith(("_", "py."))}
    assert {room for line in drawn for room in line.split(" | ")} == found


def test_every_place_in_the_glossary_exists() -> None:
    """Each entry ends with where its thing lives; its words stand there once each."""
    entries = re.findall(r"(?ms)^- \*\*(.+?)\*\*(.+?)(?=\n- |\n\n|\Z)", GLOSSARY)
    assert len(entries) > 100
    quoted = [text for _, told in entries for text in QUOTED.findall(told)]
    named = [text for text in quoted if text.endswith((".py", "/"))]
    assert len(named) > 100
    assert sorted(path for path in named if not exists(path)) == []
    words = [word for heads, _ in entries for word in heads.split(", ")]
    assert sorted(word for word in words if words.count(word) > 1) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_file_that_a_page_names_with_its_folder_exists(page: Path) -> None:
    quoted = QUOTED.findall(page.read_text(encoding="utf-8"))
    named = {path for text in quoted for path in paths_in(text) if path.endswith(".py")}
    assert sorted(path for path in named if not exists(path)) == []
