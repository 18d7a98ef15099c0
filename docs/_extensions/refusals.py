"""The page of reasons for which a number is not told, made from the code that prints them.

`python docs/_extensions/refusals.py` writes `docs/reference/refusals.md` anew. What a reason means,
and what helps, stands here; a reason of the code that is not here is an error, and so is one that
the code has no more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "refusals.md"
_ROOMS = ("estimation", "learning", "desk/report")
_SAID_IN = ("refusal", "notes")  # what an answer says of itself
_SENTENCE = 3  # words that a reason has at least

# By what is withheld the reasons as the code has them, "…" for a name: what each means, what helps.
_MORE = "More of epsilon, alone or by its `weight` among several, or more records"
REASONS: dict[str, dict[str, tuple[str, str]]] = {
    "A whole answer": {
        "too few records for the noise": (
            "The noisy number of records is not clear of its noise, in all groups together.",
            f"{_MORE}.",
        ),
        "too few records at risk for the noise": (
            "At the first time already the noise hides how many are at risk.",
            f"{_MORE}; fewer groups or strata.",
        ),
        "the information of the records does not exceed the noise": (
            "Effects of a regression would be noise: the matrix that they are solved with is.",
            f"{_MORE}; fewer covariates, or joined classes.",
        ),
        "the information of the records does not exceed the noise in …: …": (
            "The same, and the named columns alone are why: they vary too little.",
            "Leave them out, or join rare classes with others.",
        ),
        "the information of the records does not exceed the noise, as … say nearly the same "
        "(aliased): leave one of them out": (
            "Two or more columns say the same of nearly everybody, so that no effect is one's own.",
            "Leave all but one of them out.",
        ),
        "its sums were taken too far from what the records say for their steps to have led there, "
        "most of all in …, as where it tells nearly everybody's outcome (separation): leave it "
        "out, or join classes": (
            "A covariate nearly decides the outcome; its effect has no end, and Newton's steps did "
            "not reach one.",
            "Leave it out, or join its classes.",
        ),
        "its sums contradict each other by more than their noise nearly ever does: ask again, or "
        "with more of epsilon": (
            "The last sum alone would have had an answer, all together have none. Chance does so "
            "very rarely.",
            "Ask again as another study, or with more of epsilon.",
        ),
        "the released model is too far from what the records say…; ask for coefficients.sums = 2 "
        "or more, or give the training more of epsilon": (
            "Coefficients are one Newton step from the released model, which is too long a step.",
            "`coefficients.sums = 2` or more, or more of epsilon for the training.",
        ),
        "its sums were charged, and lost in an interruption": (
            "A run stopped between a sum's charge and its answer; asking again would be a second "
            "release.",
            "A study of its own, for its own epsilon.",
        ),
        "its sum was charged, and lost in an interruption; with validation.sums = 2 another would "
        "be left": (
            "The same, of a validation.",
            "`validation.sums = 2` in the next study.",
        ),
        "too few records for the noise: give it more of epsilon, or records": (
            "A validation's noisy counts are not clear of their noise.",
            "More of `validation.epsilon`, or more records.",
        ),
        "no records: …": (
            "Hardly a synthetic record keeps the study's rules, so none are drawn.",
            "Relax `follows` or `possible`; the shares of the columns are told all the same.",
        ),
    },
    "An effect, a group or a time": {
        "too few records of … for the noise": (
            "This group is not clear of the noise; the others are told.",
            f"{_MORE}; joined groups.",
        ),
        "below the noise": (
            "The information about this effect does not exceed its noise.",
            f"{_MORE}; a class joined with another.",
        ),
        "no end of it is to be seen, as where all of a class have the outcome or none "
        "(separation)": (
            "The effect runs to infinity: no interval of it has an end.",
            "Join the class with another, or leave the column out.",
        ),
        "its steps have not led to it, as where it tells nearly everybody's outcome (separation)": (
            "Newton's steps did not reach this effect; the others are told.",
            "Leave the column out, or join classes.",
        ),
        "the … of …… is not told: too few records for it": (
            "By its noise a mean or a standard deviation could be anything that the bounds allow.",
            f"{_MORE}; narrower public bounds of the column.",
        ),
        "the rate of … is not told: by its noise there may be next to no time at risk, and no "
        "upper limit": (
            "The noise reaches down to no time at risk, so a rate has no upper end.",
            f"{_MORE}; joined groups.",
        ),
        "… ends where too few are at risk": (
            "A curve stops where the noise hides how many are still at risk.",
            f"{_MORE}; fewer groups or strata.",
        ),
    },
}
# What answers say besides, of which nothing is withheld.
REMARKS = frozenset(
    {
        "Counts carry noise with a standard deviation of … records, which the tests take into "
        "account",
        "P-values are of …, noise taken into account; SMD is the standardised mean difference",
        "leave it out, or join rare classes with others",
        "of all records, held back or not, that lack neither the outcome nor a feature; one Newton "
        "step from the released model: what is likeliest, not what was released",
        "of all records, held back or not; what is likeliest, not what was released",
        "records that lack one of the two columns are left out",
        "records that lack … or … are left out; the mix of cases is not accounted for",
        "records without a group are left out",
        "records without … or group are left out",
        "records without …, … or group are left out",
        "records without …… are left out",
        "…; records without …, group or stratum are left out",
        "… of … pairs were measured level by level: each column with the targets, and with those "
        "on which the first noisy sum says it depends most",
        "columns are drawn in this order: …",
        "model-dependent is what rests on another pair, or on three columns or more",
        "not for decisions about single people, nor for how three or more columns depend on each "
        "other, which was not measured: such results depend on the model",
        "of … cells the synthetic share is inside the interval of the sums in …",
        "these are … of … pairs that were measured level by level, those with a target first, then "
        "those that depend most; pair_shares has all",
        "these records are made up from noisy sums: intervals that an analysis of one such table "
        "prints leave the noise out and are too narrow (a 95 % interval held the truth in 40 to 84 "
        "of 100 cases); use the shares with intervals, or combine the same analysis of twenty "
        "tables",
        "… to …",
        "…, …: …",
    }
)
_HEAD = """# Why a number is not told

Made by `docs/_extensions/refusals.py` from the code that prints the reasons: every sentence by
which an answer, an effect or a group is withheld, with what it means and what helps. "…" stands
for what is put in. A withheld number costs what a told one does: the noisy sums decide whether it
is told, after they are charged. `hubbub plan` and `query.expected` say beforehand, at no cost,
whether an answer will come, and a study that asks what cannot stand out from the noise is refused
before anything is spent.
"""
_TAIL = """## A p-value

A p-value has no sentence of its own: it is there where all that it compares is told.

- Groups of a table are compared where two of them are told, those of `"quantiles"` where all are,
  centres where three are, curves where that of all records is.
- An interaction is tested where each of its effects is told. A trend, or an effect in a subgroup,
  that is below the noise is left out without a word.
- In a table 1 p and SMD stand in the first row of each column, once for all of its classes.

The cure is that of the group or the effect that is missing.
"""


def page() -> str:
    """The page.

    Raises:
        ValueError: the code says something that is not described here, or says it no more.
    """
    described = {reason for group in REASONS.values() for reason in group}
    said = reasons_in(one for room in _ROOMS for one in (ROOT / "src/hubbub" / room).rglob("*.py"))
    odd = said ^ described ^ REMARKS
    if odd:
        raise ValueError(f"expected REASONS and REMARKS to hold what the code says, not: {odd}")
    return "\n".join([_HEAD, *(_section(*one) for one in REASONS.items()), _TAIL])


def _section(title: str, reasons: Mapping[str, tuple[str, str]]) -> str:
    rows = (f"| {why} | {means} | {cure} |" for why, (means, cure) in reasons.items())
    return "\n".join(
        [f"## {title}\n", "| it says | it means | what helps |", "|---|---|---|", *rows, ""]
    )


def reasons_in(files: Iterable[Path]) -> set[str]:
    """All sentences that files give as an answer's refusal or notes, "…" for what is put in."""
    modules = [ast.parse(one.read_text(encoding="utf-8")) for one in sorted(files)]
    texts: dict[str, ast.expr] = {}
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in (node for module in modules for node in ast.walk(module)):
        if (
            isinstance(node, ast.FunctionDef)
            and node.returns
            and "str" in ast.unparse(node.returns)
        ):
            functions.setdefault(node.name, []).append(node)
    for module in modules:
        texts |= _constants(module)
    return {
        sentence
        for module in modules
        for node in ast.walk(module)
        for told in _told(node)
        for sentence in _sentences(told, texts | _constants(module), functions, frozenset())
    }


def _constants(module: ast.Module) -> dict[str, ast.expr]:
    """Texts that a module gives a name."""
    return {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        and (isinstance(node.value, ast.JoinedStr) or _is_text(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _told(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that become an answer's refusal or notes."""
    if isinstance(node, ast.Call):
        if getattr(node.func, "attr", "") == "make_answer":
            yield from node.args[:1]
        yield from (one.value for one in node.keywords if one.arg in _SAID_IN)
    if isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        yield from [node.value] if {*names} & {*_SAID_IN} else []


def _sentences(
    node: ast.AST,
    texts: Mapping[str, ast.expr],
    functions: Mapping[str, list[ast.FunctionDef]],
    seen: frozenset[str],
) -> Iterator[str]:
    """The sentences in an expression, in texts that it names and functions that it calls."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        text = _written(node, texts)
        yield from [text] if len(text.split()) >= _SENTENCE else []
        return
    inner: list[ast.AST] = [*ast.iter_child_nodes(node)]
    if isinstance(node, ast.Name) and node.id in texts:
        inner.append(texts[node.id])
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        called = [] if name in seen else functions.get(name, [])
        inner += [one for function in called for one in function.body if not _is_docstring(one)]
        seen |= {name}
    for one in inner:
        yield from _sentences(one, texts, functions, seen)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and _is_text(node.value)


def _written(node: ast.expr, texts: Mapping[str, ast.expr]) -> str:
    """A text as it is printed, but for what is put in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_written(part, texts) for part in node.values)
    named = node.value if isinstance(node, ast.FormattedValue) else node
    known = isinstance(named, ast.Name) and named.id in texts
    return _written(texts[named.id], texts) if isinstance(named, ast.Name) and known else "…"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
