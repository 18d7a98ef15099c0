"""What it took: seconds, and bytes on the wire, per step and in all.

It knows the sizes of messages from the plan's plain values and from the frame that all have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.protocol import OVERHEAD
from hubbub.report.markup import Html, section, table, tag
from hubbub.report.number_format import NOT_KNOWN, amount, duration, size

Plan = Mapping[str, Any]


def traffic(plan: Plan, attempts: int, seconds: float | None) -> Html:
    """The section; attempts count whether finished or not, and seconds if somebody measured."""
    each = duration(seconds / attempts) if seconds is not None and attempts else NOT_KNOWN
    rows = [("time", each, duration(seconds))] if seconds is not None else []
    rows += [
        (name, size(count), NOT_KNOWN if count is None else size(count * attempts))
        for name, count in _bytes(plan)
    ]
    words = (
        f"{amount(attempts)} attempts were made; the study allows for {amount(plan['steps'])}. How "
        "much a silo sends does not depend on how many records it has, nor on how many it used."
    )
    caption = "What travelled in the training, without the set-up"
    head = ("Quantity", "per step", "in all")
    return section("What it took", tag("p", words), table(caption, head, rows, numeric=(1, 2)))


def download(plan: Plan) -> int | None:
    """Bytes of the message with the model, which every silo receives in a step."""
    if plan["dimension"] is None:
        return None
    return -(-int(plan["silos"]) // 8) + 4 * int(plan["dimension"]) + OVERHEAD


def _bytes(plan: Plan) -> list[tuple[str, int | None]]:
    each, silos = plan["upload_bytes_per_step"], plan["silos"]
    return [
        ("each silo sends", each),
        ("each silo receives (the model)", download(plan)),
        ("all silos together send", None if each is None else each * silos),
    ]
