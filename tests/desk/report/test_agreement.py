"""Every number of one run is the same on its page, in papers, on a terminal and for machines."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from html import unescape
from io import StringIO
from typing import Any

import pytest

from hubbub.core.number_format import at_least, at_most
from hubbub.desk.cli import terminal
from hubbub.desk.cli.main import main
from hubbub.desk.report.run_result import in_notebook, in_text
from hubbub.learning.runs import run_study

STUDY = """
[study]
name = "agreement"
[parties]
names = ["north", "south", "west"]
colluders = 1
[data]
files = "{name}.csv"
target = "died"
positive = ["yes"]
negative = ["no"]
records = 3000
capacity = 2000
columns = { age = { low = 20, high = 100 }, sex = { categories = ["f", "m"] } }
[model]
kind = "logistic"
[training]
steps = 3
sampling = "poisson"
sample_rate = 0.5
clip_norm = 1.0
optimizer = { name = "adam", lr = 0.1 }
[validation]
epsilon = 1.5
records = "training"
[statistics]
epsilon = 1.5
[statistics.baseline]
kind = "table"
columns = ["age", "sex"]
by = "died"
[privacy]
epsilon = 4.9999
delta = 1e-5
relation = "add-remove"
cap = 12.0
"""


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One run, as machines are told of it, and in every form that people read."""
    home, draw = tmp_path_factory.mktemp("agreement"), random.Random(5)
    for name in ("north", "south", "west"):
        rows = [(round(draw.gauss(60, 12)), draw.choice("fm")) for _ in range(1000)]
        lines = [f"{age},{sex},{'yes' if draw.gauss(age, 9) > 66 else 'no'}" for age, sex in rows]
        (home / f"{name}.csv").write_text("\n".join(["age,sex,died", *lines]) + "\n")
    (home / "study.toml").write_text(STUDY)
    real, results = run_study.run, []

    def kept(*given: Any, **named: Any) -> Any:
        """The first command runs; the second one is shown the same result."""
        results.append(results[0] if results else real(*given, **named))
        return results[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setattr(run_study, "run", kept)
        patch.setattr(terminal._out, "width", 400)
        shown = {"json": json.loads(said("run", "study.toml", "--out", "runs/a", "--json"))}
        shown["terminal"] = said("run", "study.toml", "--out", "runs/a")
        shown["page"] = plain((home / "runs/a/report.html").read_text())
        dossier = json.loads(said("dossier", "runs/a", "--json"))
        shown["dossier"] = " ".join(one["text"] for one in dossier["sentences"])
        said("table", "runs/a", "--format", "html,latex,csv")
        shown["paper"] = plain((home / "runs/a/paper/tables.html").read_text())
        shown["notebook"] = plain(in_notebook(results[0]))
        shown["text"] = in_text(results[0])
        shown["plan"] = said("plan", "study.toml")
        shown["planned"] = json.loads(said("plan", "study.toml", "--json"))
        shown["ledger"] = said("ledger", "show", "runs/ledgers/north.sqlite")
        shown["spent"] = json.loads(said("ledger", "show", "runs/ledgers/north.sqlite", "--json"))
        shown["evidence"] = said("verify", "runs/a")
        shown["folder"] = home / "runs/a"
        yield shown


def said(*arguments: str) -> str:
    """What a command prints."""
    out = StringIO()
    with redirect_stdout(out):
        code = main(arguments)
    assert code == 0, out.getvalue()
    return out.getvalue()


def plain(page: str) -> str:
    """The words of a page, without its style."""
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def after(words: str, text: str) -> set[str]:
    """The numbers that follow some words."""
    return set(re.findall(rf"{words}\D{{0,3}}(\d[\d.,e-]*\d|\d)", " ".join(text.split())))


@pytest.mark.slow
def test_the_epsilon_is_the_same_everywhere_and_never_rounded_down(forms: dict[str, Any]) -> None:
    exact = forms["json"]["epsilon"]
    told = at_most(exact)
    assert float(told) >= exact > float(at_most(0.99 * exact))
    assert after("epsilon", forms["terminal"].rpartition("steps in")[2]) >= {told}
    assert after("privacy cost ε .epsilon., at most", forms["page"]) == {told}
    assert after("epsilon is at most", forms["dossier"]) >= {told}
    assert after(r"privacy \(epsilon", forms["paper"]) == {told}
    for form in ("text", "notebook"):
        assert told in after("epsilon", forms[form])
    row = next(line for line in forms["plan"].splitlines() if "the study's guarantee" in line)
    assert at_most(forms["planned"]["epsilon"][3]["epsilon"]) in row.split()
    assert forms["planned"]["epsilon"][3]["epsilon"] == pytest.approx(exact, rel=1e-6)
    assert told in after("epsilon is at most", forms["evidence"])


@pytest.mark.slow
def test_what_was_spent_is_the_same_in_the_ledger_and_in_the_run(forms: dict[str, Any]) -> None:
    spending, spent = forms["json"]["spending"], forms["spent"]
    assert spending["epsilon"] == pytest.approx(spent["epsilon"], rel=1e-6)
    told, left = at_most(spent["epsilon"]), at_least(spent["left"])
    assert spending["left"] == pytest.approx(spent["left"], rel=1e-6)
    assert after("total spent: epsilon", forms["ledger"]) == {told}
    assert f"{left} left" in forms["ledger"]
    assert f"of which {left} is left" in forms["terminal"]
    for form in ("terminal", "text", "notebook"):
        assert after("otal spent: epsilon", forms[form]) == {told}
    assert after("total ε spent by these records", forms["page"]) == {told}
    assert told in after("at most", forms["dossier"])


@pytest.mark.slow
def test_scores_and_answers_are_the_same_in_every_form(forms: dict[str, Any]) -> None:
    scores = forms["json"]["validation"]["all"]["scores"]
    kept = json.loads((forms["folder"] / "validation.json").read_text())
    assert kept == forms["json"]["validation"]
    answers = json.loads((forms["folder"] / "statistics.json").read_text())["statistics"]
    assert answers == forms["json"]["statistics"]
    assert scores
    for score in scores.values():
        # A slope may be beyond 10, where noise makes it so.
        value, low, high = (
            f"{x:.3f}" if abs(x) < 10 else f"{x:,.4g}"
            for x in (score[key] for key in ("value", "low", "high"))
        )
        words = f"{value} ({low} to {high})"
        for form in ("terminal", "page", "notebook", "text"):
            assert words in " ".join(forms[form].split()), (form, words)
        printed = words.replace("-", "−")
        assert printed in forms["paper"] or printed.replace(" to ", "–") in forms["paper"]
    ages = [
        row
        for row in answers["baseline"]["rows"]
        if row["column"] == "age" and row["quantity"] == "mean"
    ]
    assert len(ages) == 3
    for row in ages:
        for form in ("terminal", "page", "notebook", "text"):
            numbers = [float(own) for own in re.findall(r"\d+\.?\d*", forms[form])]
            assert any(abs(own - row["value"]) <= 0.051 for own in numbers), form
        assert f"{row['value']:.1f} (" in forms["paper"]
