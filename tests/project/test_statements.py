"""docs/privacy.md lists every statement, and each has one page where it is proven."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {page: page.read_text(encoding="utf-8") for page in (DOCS / "privacy").glob("*.md")}
TABLE = (DOCS / "privacy.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r'(?m)^\| <a id="(p\d+)"></a>\[(P\d+)\]\((privacy/\w+\.md)#(p\d+)\) \| ([^|]+) \| .+ \|$',
    TABLE,
)
NAMES = sorted(name for _, name, *_ in ROWS)


def on_the_pages(pattern: str) -> list[str]:
    return sorted(found for text in PAGES.values() for found in re.findall(pattern, text))


def test_a_row_leads_to_the_page_on_which_the_statement_is() -> None:
    assert len(ROWS) == TABLE.count('<a id="p') == len(set(NAMES))
    for anchor, name, page, target, title in ROWS:
        assert anchor == target == name.lower()
        assert f'<a id="{anchor}"></a>\n\n## {name} {title}\n' in PAGES[DOCS / page]


def test_every_statement_has_its_row() -> None:
    assert on_the_pages(r"(?m)^## (P\d+) ") == NAMES
    assert on_the_pages(r'(?m)^<a id="(p\d+)"') == [name.lower() for name in NAMES]


def test_every_statement_that_code_cites_is_there() -> None:
    cited = {
        name
        for path in (DOCS.parent / "src").rglob("*.py")
        for name in re.findall(r"privacy\.md[`,\s]*(P\d+)", path.read_text(encoding="utf-8"))
    }
    assert len(cited) > 20
    assert cited <= set(NAMES)
