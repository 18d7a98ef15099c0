"""The picture with which the page opens: the parties, what goes between them, what each can learn.

Sentences come from `trust_models`, bounds from the plan's plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.number_format import at_most, several
from hubbub.core.planning import plan_rows
from hubbub.desk.report import promise, trust_models
from hubbub.desk.report.markup import Html, figure, tag

Plan = Mapping[str, Any]

_DRUMS = 6  # at most so many silos are drawn
_NO_PROMISE = "no guarantee"
_CAPTION = (
    "Who sees what. ε (epsilon) says how much somebody in that place can learn about one {}: 0 is "
    "nothing, below 1 very little, above 8 a lot. “≤” means “at most”: proven, not measured."
)


def picture(plan: Plan, mode: trust_models.Mode) -> Html:
    """The figure, with its caption."""
    counts = {"silo": plan["silos"], "node": plan.get("compute_nodes")}
    cards = {}
    for view in present(plan, mode):
        count = counts.get(view.role)
        name = view.party if count is None else several(count, view.party.lower())
        kind = "card dashed" if view.role in ("relay", "node") else "card"
        drums = _drums(plan["silos"]) if view.role == "silo" else []
        cards[view.role] = _card(name, view.brief, _bound(view, plan), kind, *drums)
    given = "the model" if plan.get("trains", True) else "the answers"
    parts, arrow = [cards["silo"]], mode.sent  # what goes along the next arrow
    if between := [cards[role] for role in ("relay", "node") if role in cards]:
        parts += [_arrow(arrow), tag("div", *between, class_="beside")]
        arrow = ""
    if "aggregator" in cards:
        parts += [_arrow(arrow), cards["aggregator"]]
        arrow = given
    parts += [_arrow(arrow), cards["outsider"]]
    if mode is trust_models.FEDERATED:
        # The adversary to whom the study's epsilon is promised.
        row = promise.stated(plan)
        who = plan_rows.explained(row["adversary"])
        words = f"The worst case covered by the guarantee: {who}."
        name = row["adversary"].capitalize()
        parts.append(_card(name, words, _epsilon(row["epsilon"]), "card worst"))
    caption = _CAPTION.format(promise.unit_of(plan))
    return figure(tag("div", *parts, class_="picture"), caption, class_="who")


def present(plan: Plan, mode: trust_models.Mode) -> list[trust_models.View]:
    """Who takes part: compute nodes only in a study that has them."""
    return [view for view in mode.views if view.role != "node" or plan.get("compute_nodes")]


def _bound(view: trust_models.View, plan: Plan) -> str | None:
    """What is promised against a party; None if the plan has no row for it."""
    if view.against is None:
        return _NO_PROMISE
    name = view.against or plan["stated_adversary"]
    row = next((row for row in plan["epsilon"] if row["adversary"] == name), None)
    return None if row is None else _epsilon(row["epsilon"])


def _epsilon(bound: float | None) -> str:
    return _NO_PROMISE if bound is None else f"ε ≤ {at_most(bound)}"


def _card(name: str, words: str, bound: str | None, kind: str, *more: Html) -> Html:
    """A party's box: its name, its bound if one is shown, a few words."""
    style = "none" if bound == _NO_PROMISE else "bound"
    shown = [tag("span", bound, class_=style)] if bound else []
    head = tag("p", tag("span", name, class_="name"), " ", *shown, class_="head")
    return tag("div", head, tag("p", words), *more, class_=kind)


def _drums(count: int) -> list[Html]:
    """A drum of records for each of the first few silos."""
    drums = [tag("span", class_="drum") for _ in range(min(count, _DRUMS))]
    return [tag("p", *drums, *([" …"] if count > _DRUMS else []), class_="drums")]


def _arrow(words: str) -> Html:
    return tag("p", f"↓ {words}".strip(), class_="sent")
