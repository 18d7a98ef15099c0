"""The picture with which the page opens: the parties, what goes between them, what each can learn.

One party below the other, from the silos down to the outsider, so that it reads on a phone; each
with a few plain words and the epsilon that holds against it. Sentences come from `modes`, bounds
from the plan's plain values; nothing is calculated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from hubbub.core import number_format
from hubbub.core.planning import plan_rows
from hubbub.desk.report import markup, promise, trust_models

Plan = Mapping[str, Any]

_WIDTH, _GAP = 400, 12
_LINE, _LETTER = 18.0, 8.4  # height of a line, and width of a letter of the widest usual fonts
_DRUMS = 6  # at most so many silos are drawn
_NO_PROMISE = "no guarantee"


@dataclass(frozen=True, kw_only=True)
class _Card:
    """One party in the picture: name, a few words, its bound if one is shown, its frame."""

    name: str
    words: str
    bound: str | None
    frame: str = "card"


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """Some of the picture, and where it ends below."""

    parts: Sequence[markup.Html]
    end: float


def picture(plan: Plan, mode: trust_models.Mode) -> markup.Html:
    """The figure, with its caption."""
    views = {view.role: view for view in present(plan, mode)}
    cards = {}
    for role, view in views.items():
        # A party's name, with how many there are, and what is promised against it.
        count, name = (
            {"silo": plan["silos"], "node": plan.get("compute_nodes")}.get(role),
            view.party,
        )
        if count is not None:
            name = f"{number_format.amount(count)} {name.lower()}{'' if count == 1 else 's'}"
        frame = "card dashed" if role in ("relay", "node") else "card"
        cards[role] = _Card(name=name, words=view.brief, bound=_bound(view, plan), frame=frame)
    drawn = [_silos(cards["silo"], plan["silos"], 1)]
    between = [cards[role] for role in ("relay", "node") if role in cards]
    if between:
        drawn.append(_arrow(drawn[-1].end, mode.sent))
        drawn.append(_beside(between, drawn[-1].end))
    if "aggregator" in cards:
        drawn.append(_arrow(drawn[-1].end, "" if between else mode.sent, len(between)))
        drawn.append(_box(cards["aggregator"], drawn[-1].end))
    given = "the model" if plan.get("trains", True) else "the answers"
    drawn.append(_arrow(drawn[-1].end, given if "aggregator" in cards else mode.sent))
    drawn.append(_box(cards["outsider"], drawn[-1].end))
    shown = [*cards.values()]
    if mode is trust_models.FEDERATED:
        # The adversary to whom the study's epsilon is promised.
        row = promise.stated(plan)
        who = plan_rows.explained(row["adversary"])
        shown.append(
            _Card(
                name=row["adversary"].capitalize(),
                words=f"The worst case covered by the guarantee: {who}.",
                bound=_epsilon(row["epsilon"]),
                frame="card worst",
            )
        )
        drawn.append(_box(shown[-1], drawn[-1].end + _GAP))
    said = "; ".join(f"{one.name}: {one.words} {one.bound or ''}".strip() for one in shown)
    parts = [part for one in drawn for part in one.parts]
    box = f"0 0 {_WIDTH} {drawn[-1].end + 1:g}"
    words = f"Picture of who sees what. {said}"
    svg = markup.tag("svg", *parts, viewBox=box, role="img", aria_label=words, class_="picture")
    caption = (
        "Who sees what. ε (epsilon) says how much somebody in that place can learn about "
        "one record: 0 is nothing, below 1 very little, above 8 a lot. “≤” means “at "
        "most”: proven, not measured."
    )
    return markup.figure(svg, caption, class_="who")


def present(plan: Plan, mode: trust_models.Mode) -> list[trust_models.View]:
    """Who takes part: compute nodes only in a study that has them."""
    views = mode.views if plan.get("trains", True) else map(trust_models.of_answers, mode.views)
    return [view for view in views if view.role != "node" or plan.get("compute_nodes")]


def _bound(view: trust_models.View, plan: Plan) -> str | None:
    """What is promised against a party; None if the plan has no row for it."""
    if view.against is None:
        return _NO_PROMISE
    name = view.against or plan["stated_adversary"]
    row = next((row for row in plan["epsilon"] if row["adversary"] == name), None)
    return None if row is None else _epsilon(row["epsilon"])


def _epsilon(bound: float | None) -> str:
    return _NO_PROMISE if bound is None else f"ε ≤ {number_format.at_most(bound)}"


def _silos(card: _Card, count: int, top: float) -> _Drawn:
    """The silos' box, with a drum of records for each of the first few."""
    box = _box(card, top, room=54)
    many = min(count, _DRUMS)
    pitch = 48
    start = _WIDTH / 2 - pitch * (many - 1) / 2
    drums, head = [], box.end - 46
    for x in (start + pitch * k for k in range(many)):
        side = f"M{x - 13:g} {head + 5:g}v22a13 5 0 0 0 26 0v-22"
        lid = markup.tag("ellipse", cx=x, cy=head + 5, rx=13, ry=5)
        drums.append(markup.tag("g", markup.tag("path", d=side), lid, class_="drum"))
    if count > many:
        dots = markup.tag("text", "…", x=start + pitch * many - 12, y=box.end - 18)
        drums.append(dots)
    return _Drawn(parts=[*box.parts, *drums], end=box.end)


def _beside(cards: Sequence[_Card], top: float) -> _Drawn:
    """Boxes side by side, equally high."""
    width = (_WIDTH - _GAP * (len(cards) - 1)) / len(cards)
    lefts = [(width + _GAP) * k for k in range(len(cards))]
    narrow = len(cards) > 1
    ends = [_box(card, top, width=width, below=narrow).end for card in cards]
    high = max(ends)
    boxes = [
        _box(card, top, left=left, width=width, room=high - end, below=narrow)
        for card, left, end in zip(cards, lefts, ends, strict=True)
    ]
    return _Drawn(parts=[part for box in boxes for part in box.parts], end=high)


def _box(
    card: _Card,
    top: float,
    *,
    left: float = 0.0,
    width: float = _WIDTH,
    room: float = 0.0,
    below: bool = False,
) -> _Drawn:
    """A party's box: its name, its bound to the right or `below`, its words, and `room` left."""
    inner = left + 12
    lines = wrap(card.words, int((width - 24) / _LETTER)) or [""]
    rows = [card.bound] if below and card.bound else []
    high = 35 + _LINE * (len(lines) + len(rows)) + room
    parts = [
        markup.tag(
            "rect", x=left + 1, y=top, width=width - 2, height=high, rx=8, class_=card.frame
        ),
        markup.tag("text", card.name, x=inner, y=top + 21, class_="name"),
    ]
    place = top + 22 + _LINE
    for line in lines:
        parts.append(markup.tag("text", line, x=inner, y=place))
        place += _LINE
    if card.bound:
        kind = "none" if card.bound == _NO_PROMISE else "bound"
        x, y, side = (inner, place, "start") if below else (left + width - 12, top + 21, "end")
        parts.append(markup.tag("text", card.bound, x=x, y=y, text_anchor=side, class_=kind))
    return _Drawn(parts=parts, end=top + high)


def _arrow(top: float, words: str, count: int = 1) -> _Drawn:
    """An arrow downwards, or one from each of some boxes, and what goes along it."""
    high = 32 if words else 20
    lefts = [24 + (_WIDTH + _GAP) / 2 * k for k in range(max(count, 1))]
    paths = [f"M{x:g} {top + 3:g}V{top + high - 4:g}m-5 -6l5 6l5 -6" for x in lefts]
    parts = [markup.tag("path", d=path, class_="arrow") for path in paths]
    if words:
        parts.append(markup.tag("text", words, x=lefts[0] + 14, y=top + 21, class_="sent"))
    return _Drawn(parts=parts, end=top + high)
