"""How the page can be checked: what was checked already, how anybody does it again, and the rest.

It shows findings as they were found: a claim, and whether it was re-derived, is signed, or is on
trust. It checks nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.core.number_format import amount, at_least, at_most
from hubbub.desk.report.markup import Html, section, table, tag

Finding = tuple[str, str]
Audit = Mapping[str, Any] | None

_HOW = {
    "re-derived": ("computed again from what is public", "and found equal"),
    "signed": ("signed by the party that it is about", "and the signature verified"),
    "not verifiable": ("shown by nothing here", "and left to trust"),
    "not checked": ("would take long", "and is done by hubbub verify --thorough"),
}
_BRIEF = {
    "re-derived": "computed again and found equal",
    "signed": "by the party that it is about",
    "not verifiable": "left to trust",
    "not checked": "it would take long",
}
_RARE = "not checked"  # mentioned only where there is one


def checks(findings: Sequence[Finding], audit: Audit = None) -> Html:
    """The section."""
    how = tag(
        "p",
        "This page proves nothing by itself. ",
        tag("code", "hubbub verify FOLDER"),
        " makes the plan, every sum and every step of the model again from the signed messages of "
        "the run, where they were kept, and names the first round that does not fit. ",
        tag("code", "hubbub verify evidence.json"),
        " does, on any other machine, what can be done without them.",
    )
    if not findings:
        return section("How to check it", how)
    rows = [
        (verdict, amount(count), " ".join(_HOW[verdict])) for verdict, count in _counts(findings)
    ]
    wrongs = [finding for finding in findings if finding[1] not in _HOW]
    parts: list[Html] = [how]
    if wrongs:
        heading = tag("h3", "What does not hold")
        items = (tag("li", f"{claim}: {verdict}") for claim, verdict in wrongs)
        parts.append(tag("div", heading, tag("ul", *items), class_="warnings"))
    caption = "The claims of evidence.json when this page was written"
    parts.append(table(caption, ("Verdict", "claims", "what it means"), rows, numeric=(1,)))
    if not wrongs:
        parts += _audited(audit)
    return section("How to check it", *parts, *_trusted(findings))


def briefly(findings: Sequence[Finding]) -> str:
    """The findings in one sentence."""
    counts = ", ".join(
        f"{count} {verdict} ({_BRIEF[verdict]})" for verdict, count in _counts(findings)
    )
    wrongs = sum(finding[1] not in _HOW for finding in findings)
    start = f"{amount(wrongs)} claims do not hold" if wrongs else "No claim was found to be wrong"
    return f"{start}: {counts}. How to check it yourself is said below."


def _counts(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    """How many claims stand how."""
    counts = Counter(verdict for _, verdict in findings)
    return [(verdict, counts[verdict]) for verdict in _HOW if counts[verdict] or verdict != _RARE]


def _trusted(findings: Sequence[Finding]) -> list[Html]:
    trusted = [claim for claim, verdict in findings if verdict == "not verifiable"]
    if not trusted:
        return []
    items = (tag("li", f"{claim[:1].upper()}{claim[1:]}.") for claim in trusted)
    return [tag("p", "What has to be trusted:"), tag("ul", *items)]


def _audited(audit: Audit) -> list[Html]:
    """What an audit has found, if there was one."""
    if audit is None:
        return [tag("p", "The evidence of this run holds no audit of the study.")]
    words = (
        f"An audit by hubbub {audit['version']} played {amount(audit['runs'])} trainings of this "
        f"study with {amount(audit['canaries'])} canaries each in the place of records. It saw ε "
        f"of at least {at_least(audit['epsilon_lower'])} in sums that may tell "
        f"{at_most(audit['epsilon_audited'])}. A small number proves nothing; a larger one than "
        "that would have shown a defect."
    )
    return [tag("p", words)]
