"""The dossier: a sentence says what was found to hold, of the member that it names, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from hashlib import sha256
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tests.learning.run.finished import a_study, finished

import hubbub
from hubbub.core.errors import UserError
from hubbub.core.verification.evidence.evidence_file import with_signature
from hubbub.desk.cli import dossier_command
from hubbub.desk.cli.main import main
from hubbub.desk.report.dossier.composing import (
    CHAPTERS,
    NOT_SHOWN,
    BoardQuestion,
    Sentence,
    blanks_of,
    compose,
    draft_of,
    sentence_of,
)
from hubbub.desk.report.dossier.facts import Facts
from hubbub.desk.report.dossier.written_files import as_docx, as_html

QUESTIONS = [part for one in CHAPTERS for part in one.parts if isinstance(part, BoardQuestion)]
# What only says which of two sentences is said; each choice has a test of its own below.
CHOICES = {
    "asked.model",
    "asked.training",
    "asked.privacy",
    "asked.statistics",
    "plan.patient",
    "trust",
}
# Words by which a text would judge by law.
VERDICTS = (
    "compliant",
    "complies",
    "lawfully processed",
    "is anonymous",
    "is legitimate",
    "legal.",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps."""
    folder = tmp_path_factory.mktemp("dossier") / "run"
    finished(a_study(steps=2), folder)
    return folder


@pytest.fixture(scope="module")
def facts(run: Path) -> Facts:
    return dossier_command.facts_of(run, quiet=True)


def leaves_changed(value: Any) -> Any:
    """The same value with everything in it another."""
    if isinstance(value, dict):
        return {key: leaves_changed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [*map(leaves_changed, value), *map(leaves_changed, value[:1])]
    if isinstance(value, bool) or value is None:
        return value
    return f"{value}x" if isinstance(value, str) else 2 * value + 1


def with_value(facts: Facts, path: str, value: Any) -> Facts:
    values: Any = deepcopy(dict(facts.values))
    *outer, last = path.split(".")
    inner = values
    for key in outer:
        inner = inner[key]
    inner[last] = value
    return Facts(values=values, findings=facts.findings)


def with_verdict(facts: Facts, path: str, verdict: str) -> Facts:
    """The same facts, with all findings about a member as told."""
    found = [
        (claim, verdict, about)
        if any(
            f"{path}.".startswith(f"{one}.") or f"{one}.".startswith(f"{path}.") for one in about
        )
        else (claim, was, about)
        for claim, was, about in facts.findings
    ]
    return Facts(values=facts.values, findings=found)


def read_by(question: BoardQuestion, facts: Facts) -> Iterator[str]:
    yield from sentence_of(question, facts).fields


@pytest.mark.slow
def test_every_sentence_of_an_honest_run_is_shown_but_those_that_nothing_shows(
    facts: Facts,
) -> None:
    shown = compose(facts).sentences
    hidden = {one.text for one in shown if one.standing == NOT_SHOWN}
    assert hidden == {
        "Not shown: no part of the evidence is about it.",  # what no run can show
        "Not shown: no checked evidence is about it.",  # the audit, which was not made
    }
    assert sum(one.standing == "re-derived" for one in shown) > len(shown) / 2
    assert {"silos", "versions", "model"} <= {
        field for one in shown if one.standing == "signed" for field in one.fields
    }


@pytest.mark.quick_cases("not checked", "wrong: made up")
@pytest.mark.parametrize("verdict", ["not verifiable", "not checked", "wrong: made up"])
def test_a_sentence_whose_member_is_not_verified_is_not_said(facts: Facts, verdict: str) -> None:
    said = 0
    for question in QUESTIONS:
        before = sentence_of(question, facts)
        for field in before.fields:
            after = sentence_of(question, with_verdict(facts, field, verdict))
            assert after.standing == NOT_SHOWN
            assert after.fields == ()
            assert after.text.startswith("Not shown: ")
            said += 1
    assert said > 100


def test_a_sentence_whose_member_no_finding_is_about_is_not_said(facts: Facts) -> None:
    bare = Facts(values=facts.values, findings=[(c, v, ()) for c, v, _ in facts.findings])
    assert {one.standing for one in compose(bare).sentences} == {NOT_SHOWN}


def test_a_sentence_is_only_as_good_as_its_weakest_member(facts: Facts) -> None:
    weaker = with_verdict(facts, "plan.delta", "signed")
    for question in QUESTIONS:
        if "plan.delta" in sentence_of(question, facts).fields:
            assert sentence_of(question, weaker).standing == "signed"


def test_a_changed_member_changes_its_sentence(facts: Facts) -> None:
    tried = set()
    for question in QUESTIONS:
        before = sentence_of(question, facts)
        for field in set(before.fields) - CHOICES:
            value = facts.value(field)
            if value is None or field.endswith(".stated_adversary"):
                continue  # a name that the rows have as well
            other = 1 if value == 0 else leaves_changed(value)
            if value == []:
                other = [{"purpose": "made up"}]
            if field in ("plan.epsilon", "epsilon.after_attempts"):  # names stay, numbers do not
                other = [
                    {
                        **row,
                        "epsilon": 2 * row["epsilon"] + 1,
                        "colluding_silos": row.get("colluding_silos", 0),
                    }
                    for row in value
                ]
            if field in ("plan.unit", "asked.parties.trust"):
                other = {"record": "patient", "none": "tee"}[value]
            if field in ("asked.data.source", "asked.model.kind"):
                other = "python:mine.py:rows"
            changed = with_value(facts, field, other)
            if other == "patient":
                changed = with_value(changed, "plan.patient", {"in_two_silos": 2.0, "who": "x"})
            assert sentence_of(question, changed).text != before.text, (question.ask, field)
            tried.add(field)
    assert len(tried) > 20


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("asked.model", None, "No model is trained"),
        ("asked.training", None, "No gradient is clipped"),
        ("asked.privacy", {"cap": 3.0}, "a cap of 3 over"),
        ("trust", [], "does not say that the parties ran in one process"),
        (
            "plan.patient",
            {"is_unit": False, "who": "a patient with 5 records", "epsilon": 2.5},
            "For a patient with 5 records epsilon is at most 2.5",
        ),
        ("plan.unit", "patient", "patients of all silos together, at most"),
        ("plan.unit", "patient", "each patient's contribution is clipped"),
        ("plan.unit", "patient", "Of 100 patients that took part"),
        ("plan.unit", "patient", "one patient (whose records were used, or were not)"),
    ],
)
def test_a_choice_changes_the_sentence(facts: Facts, path: str, value: Any, words: str) -> None:
    assert not any(words in one.text for one in compose(facts).sentences)
    changed = with_value(facts, path, value)
    assert any(words in one.text for one in compose(changed).sentences)


@pytest.mark.slow
def test_a_run_of_statistics_says_what_is_asked_and_that_its_answers_follow(tmp_path: Path) -> None:
    text = """
[study]
name = "ages"
transcript = "full"
[parties]
names = ["cleveland", "hungary", "switzerland", "va-long-beach"]
colluders = 1
[data]
source = "hubbub.datasets:heart"
[statistics.baseline]
kind = "table"
columns = ["age", "sex"]
[privacy]
epsilon = 1.0
delta = 1e-5
"""
    hubbub.run(hubbub.Study.parse(text), out=tmp_path / "run")
    facts = dossier_command.facts_of(tmp_path / "run", quiet=True)
    said = {one.ask: one for one in compose(facts).sentences}
    asked = said["Which statistics are computed?"]
    assert asked.text == "The study asks for 1 statistic: “baseline” (table of age, sex)."
    digest = sha256((tmp_path / "run" / "statistics.json").read_bytes()).hexdigest()
    follows = said["Does the result follow from the messages?"]
    assert follows.standing == "re-derived"
    assert f"statistics.json (SHA-256 {digest})" in follows.text
    assert "Charged: 1 attempt." in said["Was more spent than planned?"].text
    assert "it names no target" in said["Which columns are read?"].text
    columns = [{"categories": ["f"], "name": "sex"}, {"low": 1, "name": "age"}]
    crossed = [{"name": "both", "kind": "crosstab", "rows": "sex", "columns": "stage"}]
    facts_of_more = with_value(facts, "asked.data.columns", columns)
    facts_of_more = with_value(facts_of_more, "asked.statistics", {"statistics": crossed})
    more = {one.ask: one.text for one in compose(facts_of_more).sentences}
    assert "reads the columns sex, age;" in more["Which columns are read?"]
    assert "“both” (crosstab of sex, stage)" in more["Which statistics are computed?"]
    hidden = sentence_of(
        next(one for one in QUESTIONS if one.ask == follows.ask),
        with_verdict(facts, "replay.answers", "not verifiable"),
    )
    assert hidden.standing == NOT_SHOWN


def test_a_lie_that_the_aggregator_signs_is_named_and_nothing_rests_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, parties = finished(a_study(steps=2), tmp_path / "run")
    content = json.loads((tmp_path / "run" / "evidence.json").read_text())
    content.pop("signature")
    content["plan"]["attack_power_at_1_percent"] = 0.011
    alone = tmp_path / "evidence.json"
    alone.write_text(with_signature(content, parties.keys[0].sign))
    assert main(["dossier", str(alone), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert any("attack_power_at_1_percent" in one for one in said["wrong"])
    asked = {one["ask"]: one for one in said["sentences"]}
    assert asked["Can an attacker detect who took part?"]["standing"] == NOT_SHOWN
    assert "does not hold" in (tmp_path / "dossier.html").read_text()


@pytest.mark.parametrize("odd", [None, 3, "x", [3], [{"silo": 1}], {}, [{"data_set": "x"}]])
def test_what_a_party_signs_of_itself_may_be_anything(facts: Facts, odd: Any) -> None:
    for path in ("silos", "versions", "model", "trust"):
        changed = with_value(facts, path, odd)
        assert len(compose(changed).sentences) == len(QUESTIONS)


def test_evidence_that_was_altered_makes_no_dossier(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (run / "evidence.json").read_text()
    (tmp_path / "evidence.json").write_text(text.replace("add-remove", "substitute", 1))
    assert main(["dossier", str(tmp_path / "evidence.json")]) == 1
    assert "altered" in capsys.readouterr().err
    assert not (tmp_path / "dossier.html").exists()


def test_the_evidence_alone_shows_less_than_the_folder(run: Path, facts: Facts) -> None:
    alone = compose(dossier_command.facts_of(run / "evidence.json", quiet=True))
    whole = compose(facts)
    less = {
        one.ask
        for one, other in zip(alone.sentences, whole.sentences, strict=True)
        if one.text != other.text
    }
    assert less == {
        "Does the result follow from the messages?",
        "Did the study run as planned?",
        "Do the published results follow from the sums?",
        "Are messages signed?",
        "Which parties took part, under which keys?",
        "What was logged of the processing?",
    }


def test_what_people_write_is_theirs_and_what_they_do_not_stays_open(facts: Facts) -> None:
    open_before = compose(facts).open
    assert list(open_before) == list(blanks_of())
    filled = compose(facts, {"controller": "The four <hospitals>"})
    assert set(open_before) - set(filled.open) == {"controller"}
    page = as_html(filled)
    assert "The four &lt;hospitals&gt;" in page
    assert "purpose, legal-basis" not in page  # 40 names ahead of the first chapter
    assert 'href="#chapter-1"' in page
    assert filled.sentences == compose(facts).sentences


def test_the_file_of_blanks_is_drafted_once_and_then_read(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill, out = tmp_path / "written.toml", tmp_path / "d.html"
    command = ["dossier", str(run), "--out", str(out), "--fill", str(fill), "--json"]
    assert main(command) == 0
    assert fill.read_text() == draft_of()
    assert list(json.loads(capsys.readouterr().out)["open"]) == list(blanks_of())
    fill.write_text('purpose = "To know."\n')
    assert main(command) == 0
    assert "purpose" not in json.loads(capsys.readouterr().out)["open"]
    assert fill.read_text() == 'purpose = "To know."\n'
    for wrong in ("propose = 'x'", "purpose = 3", "= 3"):
        fill.write_text(wrong)
        assert main(command) == 2


def test_no_sentence_judges_by_law(facts: Facts) -> None:
    for one in compose(facts).sentences:
        assert not any(word in one.text.lower() for word in VERDICTS), one.text


def test_the_page_has_every_sentence_and_every_member(facts: Facts) -> None:
    page = unescape(as_html(compose(facts)))
    for one in compose(facts).sentences:
        assert one.text in page
        assert all(field in page for field in one.fields)
    assert "default-src 'none'" in page
    assert as_html(compose(facts)) == as_html(compose(facts))


def test_hostile_text_in_a_study_is_text(facts: Facts) -> None:
    hostile = "</title><script>alert(1)</script>"
    page = as_html(compose(with_value(facts, "study.name", hostile)))
    assert "<script" not in page


@pytest.mark.slow
def test_the_word_file_has_the_same_sentences(facts: Facts) -> None:
    docx = pytest.importorskip("docx", reason="python-docx is not installed: '.[paper]'")
    dossier = compose(facts)
    written = docx.Document(BytesIO(as_docx(dossier)))
    text = "\n".join(one.text for one in written.paragraphs)
    for chapter in dossier.chapters:
        assert chapter.title in text
        for part in chapter.parts:
            if isinstance(part, Sentence):
                assert f"{part.ask} {part.text} [{part.standing}" in text
    assert "________ [to be answered by a person: controller]" in text


def test_a_file_of_another_kind_is_refused(run: Path, tmp_path: Path) -> None:
    assert main(["dossier", str(run), "--out", str(tmp_path / "d.pdf")]) == 2
    assert main(["dossier", str(tmp_path)]) == 2
    with pytest.raises(UserError, match="names of questions"):
        dossier_command.read_written("nobody = ''", "here")
