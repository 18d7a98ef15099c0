"""Pages in docs/reference that are made from the code: reasons to withhold, and messages."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/_extensions/refusals.py"))


def test_the_page_is_what_the_code_says_now(made: dict[str, Any]) -> None:
    """If this fails: describe the reason there, then `python docs/_extensions/refusals.py`."""
    assert (ROOT / "docs/reference/refusals.md").read_text(encoding="utf-8") == made["page"]()


@pytest.mark.parametrize(
    ("name", "texts", "missing", "words"),
    [
        ("wire", "TAGS", "SHARE", "a description of each Tag, not: .*SHARE"),
        ("wire", "CALLS", "SEED", "a description of each Call, not: .*SEED"),
        ("kinds", "FORMULAS", "cox", "formulas of each kind, not: .*cox"),
        ("platforms", "SIGNERS", "tdx", "a signer of each platform, not: .*tdx"),
        ("events", "REMEDIES", "twice", "a remedy for each warning, not: .*twice"),
    ],
)
def test_a_list_from_the_code_is_fresh_and_lacks_nothing(
    name: str, texts: str, missing: str, words: str
) -> None:
    """If this fails: describe the new thing there, then run `python docs/_extensions/NAME.py`."""
    written = runpy.run_path(str(ROOT / f"docs/_extensions/{name}.py"))
    page = (ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8")
    assert page == written["page"]()
    del written[texts][missing]
    with pytest.raises(ValueError, match=words):
        written["page"]()


def test_reasons_are_found_wherever_an_answer_takes_them_from(
    made: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "one.py").write_text(
        'FEW = "too few of them"\n'
        "def more(name) -> str:\n"
        '    """No reason of its own."""\n'
        '    return f"{FEW} in {name} today"\n'
        "def answer(self):\n"
        '    self.make_answer(FEW if self else "", notes=(more(1), "and so it is"))\n'
        '    other("which is said elsewhere")\n'
    )
    found = made["reasons_in"]([tmp_path / "one.py"])
    assert found == {"too few of them", "too few of them in … today", "and so it is"}


def test_levels_of_events_are_found_wherever_a_log_is_told_them(tmp_path: Path) -> None:
    written = runpy.run_path(str(ROOT / "docs/_extensions/events.py"))
    (tmp_path / "one.py").write_text(
        'self.log.note("came", whom="north")\n'
        'log.warn("late")\n'
        'log.note("late")\n'
        "log.note(event)\n"
        'other("gone")\n'
    )
    levels = written["events_in"]([tmp_path / "one.py"])
    assert levels == {"came": "info", "late": "warning"}
    written["page"].__globals__["events"] = lambda: levels
    with pytest.raises(ValueError, match=r"a sentence of each event, not: .*late"):
        written["page"]()


def test_the_page_and_the_picture_of_rooms_are_what_the_contract_says_now() -> None:
    """If this fails: run `python docs/_extensions/rooms.py`."""
    written = runpy.run_path(str(ROOT / "docs/_extensions/rooms.py"))
    assert (ROOT / "docs/reference/rooms.md").read_text(encoding="utf-8") == written["page"]()
    assert (ROOT / "docs/pictures/rooms.svg").read_text(encoding="utf-8") == written["picture"]()
    assert written["layers"]("rooms")[-1] == ["core"]
    assert ["protocol", "privacy"] in written["layers"]("core")
    with pytest.raises(LookupError):
        written["layers"]("cellar")
    with pytest.raises(ValueError, match=r"a docstring in hubbub\.cellar"):
        written["summary"]("hubbub.cellar")


def test_each_statement_is_named_by_the_code_that_rests_on_it_and_by_a_test() -> None:
    """If this fails: name the statement where it is relied on, and in the test that tries it."""
    written = runpy.run_path(str(ROOT / "docs/_extensions/statements.py"))
    rows = written["written"]().splitlines()[2:]
    assert len(rows) == len(written["statements"]()) > 30
    assert "core/protocol/round/silo.py" in next(row for row in rows if row.startswith("| [P3 "))


def test_statements_are_found_alone_in_a_range_and_in_the_name_of_a_test(tmp_path: Path) -> None:
    written = runpy.run_path(str(ROOT / "docs/_extensions/statements.py"))
    (tmp_path / "one.py").write_text("# P3 to P5, not P256\ndef test_p9_lists(): ...\n")
    names = {name: ["one.py"] for name in ("P3", "P4", "P5", "P9")}
    assert written["named_in"](tmp_path, [tmp_path / "one.py"]) == names
    with pytest.raises(ValueError, match="code that names P7"):
        written["_row"]("P7", "Word size", names, names)
