"""The page of reasons for which a number is withheld, made from the code that prints them.

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
_MORE = "Less noise"  # the head of the page says what that takes
REASONS: dict[str, dict[str, tuple[str, str]]] = {
    "A whole answer": {
        "too few records for the noise": (
            "The noisy number of all records does not stand out from its noise.",
            f"{_MORE}.",
        ),
        "too few records at risk for the noise": (
            "The noise hides how many are at risk, even at the first time.",
            f"{_MORE}; fewer groups or strata.",
        ),
        "the information in the records does not exceed the noise": (
            "The effects of a regression would be noise.",
            f"{_MORE}; fewer covariates, or joined classes.",
        ),
        "the information in the records does not exceed the noise in …: …": (
            "The same, and only because of the named columns: they vary too little.",
            "Leave them out, or join rare classes with others.",
        ),
        "the information in the records does not exceed the noise, because … carry nearly the same "
        "information (aliased): leave one of them out": (
            "Two or more columns agree for nearly everybody, so their effects cannot be separated.",
            "Leave all but one of them out.",
        ),
        "the Newton steps did not reach the estimate: its sums were taken too far from it, most of "
        "all in …, as happens where it predicts nearly everybody's outcome (separation): leave it "
        "out, or join classes": (
            "A covariate almost decides the outcome, so its effect is infinite.",
            "Leave it out, or join its classes.",
        ),
        "its sums contradict each other by far more than their noise explains: ask again, or with "
        "more epsilon": (
            "The last sum alone has an answer, all sums together do not. This is very rare.",
            "Ask again as another study, or with more epsilon.",
        ),
        "the released model is too far from the maximum-likelihood estimate…; ask for "
        "coefficients.sums = 2 or more, or give the training more epsilon": (
            "One Newton step from the released model does not reach the coefficients.",
            "`coefficients.sums = 2` or more, or more epsilon for the training.",
        ),
        "its sums were charged, and lost in an interruption": (
            "A run stopped between the charge and the answer; asking again is a second release.",
            "A study of its own, for its own epsilon.",
        ),
        "its sum was charged, and lost in an interruption; with validation.sums = 2, another would "
        "be left": (
            "The same, for a validation.",
            "`validation.sums = 2` in the next study.",
        ),
        "too few records for this noise: give it more epsilon, or records": (
            "A validation's noisy counts do not stand out from their noise.",
            "More `validation.epsilon`, or more records.",
        ),
        "a sum holds what is no finite number": (
            "A sum that was handed in for reading has a number that is infinite, or none at all.",
            "Read the sums from the run's own files again.",
        ),
        "no records: …": (
            "Hardly any synthetic record obeys the study's rules, so none are drawn.",
            "Relax `follows` or `possible`; the shares of the columns are given all the same.",
        ),
    },
    "An effect, a group or a time": {
        "too few records of … for the noise": (
            "This group does not stand out from the noise; the others are given.",
            f"{_MORE}; joined groups.",
        ),
        "below the noise": (
            "Noise hides the information about this effect, or the upper end of its interval.",
            f"{_MORE}; a class joined with another.",
        ),
        "the estimate does not converge, as happens where all records of a class have the outcome, "
        "or none (separation)": (
            "The effect is infinite, and no interval of it has an end.",
            "Join the class with another, or leave the column out.",
        ),
        "its steps did not reach the estimate, as happens where a covariate predicts nearly "
        "everybody's outcome (separation)": (
            "Newton's steps did not reach this effect; the others are given.",
            "Leave the column out, or join classes.",
        ),
        "the … of … is withheld: by this noise it may be …": (
            "A mean could be anything within the bounds, a ratio anything, or a standard deviation "
            "0.",
            f"{_MORE}; narrower public bounds of the column, or joined classes.",
        ),
        "the rate of … is withheld: with this noise there may be almost no time at risk, so there "
        "is no upper limit": (
            "The time at risk may be zero, so the rate has no upper limit.",
            f"{_MORE}; joined groups.",
        ),
        "… ends where too few are at risk": (
            "The curve stops where the noise hides how many are still at risk.",
            f"{_MORE}; fewer groups or strata.",
        ),
    },
}
# What answers say besides, of which nothing is withheld.
REMARKS = frozenset(
    {
        "…: a class has hardly more events than noise alone would make: the ratio may be much "
        "larger, and its interval holds less often than it says",
        "Counts carry noise with a standard deviation of … records, which the tests account for",
        "P-values are of …, adjusted for noise; SMD is the standardised mean difference",
        "leave it out, or join rare classes with others",
        "of all records, held back or not, with an outcome and all features; one Newton step from "
        "the released model towards maximum likelihood, not the released coefficients",
        "of all records, held back or not; maximum-likelihood estimates, not the released "
        "coefficients",
        "more than a fifth of those at risk have the event in a bin, which draws ratios towards 1: "
        "use more bins",
        "…: at a bound, or beyond it",
        "records without one of the two columns are left out",
        "records without … or … are left out; differences in case mix are not taken into account",
        "records without a group are left out",
        "records without … or group are left out",
        "records without …, … or group are left out",
        "records without …… are left out",
        "…; records without …, group or stratum are left out",
        "… of … pairs were measured level by level: each column with the targets, and with the "
        "columns on which it depends most according to the first noisy sum",
        "columns are drawn in this order: …",
        "model-dependent: based on a pair that was not measured, or on three columns or more",
        "not for decisions about single people, nor for how three or more columns depend on each "
        "other: that was not measured, and such results depend on the model",
        "of … cells, in … the synthetic share is inside the interval of the sums",
        "shown are … of … pairs that were measured level by level, those with a target first, then "
        "those that depend most; pair_shares has all",
        "these records are synthetic, made from noisy sums: intervals from an ordinary analysis of "
        "one such table ignore the noise and are too narrow (a 95 % interval contained the truth "
        "in 40 to 84 of 100 cases); use the shares with intervals, or combine the same analysis of "
        "twenty tables",
        "One noisy sum compared the published model's predictions with the outcomes. Every "
        "interval covers the sampling of people, the added noise and, of amounts, what public "
        "bins round: by how much wider bins change a score. Values beyond the public bounds count "
        "in the outermost bin. Where one wide bin has most amounts, or many share a value, no "
        "error, gap or slope is told. A c-index compares only records in different bins of the "
        "outcome.",
        "…; all numbers carry noise",
        "… to …",
        "…, …: …",
    }
)
_HEAD = """# Why a number is missing

For an analyst. hubbub withholds a number that the noise would drown: an answer, an effect, a
group or a p-value. Below is each reason that it prints; "…" stands for a name or a number.
Relative to the answer, noise is less with more epsilon, a higher `weight`, or more records. A
withheld number costs as much as a given one, because the noisy sums decide after they are charged.
`hubbub plan` and `query.expected` show beforehand, at no cost, whether to expect an answer.
"""
_TAIL = """## A p-value

A p-value is missing where a number that it compares is missing: the reason stands beside that
number, and what helps the number helps the p-value.

- A test between groups needs two groups that are given in a table, all groups for `"quantiles"`,
  and three centres for `"centres"`. A test between curves needs the curve of all records.
- An interaction is tested if each of its effects is given. A trend, or an effect in a subgroup,
  that noise hides is left out without a reason.
- In Table 1, p and SMD stand in the first row of each column, once for all of its classes.
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
