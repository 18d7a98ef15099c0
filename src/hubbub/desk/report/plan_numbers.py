"""The numbers of the plan, for those who check it, and what the run took: seconds and bytes.

It reads the plan's plain values and says of each what it is. It knows the sizes of messages from
these and from the frame that all have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.core.number_format import NOT_KNOWN, amount, at_most, duration, size
from hubbub.core.planning.plan_options import option_rows
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.protocol.primitives.message_sizes import OVERHEAD
from hubbub.desk.report import markup, trust_models

Plan = Mapping[str, Any]
Cells = tuple[str, str, str]

# Name, key in the plan, and what it is; σ stands for a standard deviation.
_NOISE = (
    ("noise multiplier", "noise_multiplier", "σ against the stated adversary, over the norm C"),
    ("total noise multiplier", "total_noise_multiplier", "the same if every silo takes part"),
    ("noise share", "share_sigma", "σ of what one silo adds if all take part, in the sum's units"),
    ("the same on the grid", "share_sigma_grid", "σ of what one silo adds, in grid steps"),
    ("grid step", "grid_step", "width of the grid onto which sums are rounded"),
    ("word", "word_bits", "bits of one number on the wire"),
    ("sum limit", "sum_limit", "records, all pulling alike, that fit into a word"),
    ("quorum", "quorum", "least silos in a round; with fewer nothing is revealed"),
)
_SIZE = (
    ("parameters", "dimension", "numbers that the model learns"),
    ("mask partners", "degree", "silos with which each shares masks (without compute nodes)"),
    ("δ", "delta", "the tiny probability with which ε need not hold"),
)
_CERTIFICATE = (
    ("certificate: added to ε", "epsilon", "for rounding and finite precision, in every ε here"),
    (
        "certificate: added to δ",
        "delta",
        "the same, and the chance that masks uncover a smaller sum",
    ),
)


def numbers(plan: Plan, mode: trust_models.Mode) -> markup.Html:
    """The section; a baseline has the plan of the federation that it is compared with."""
    head = ("Quantity", "value", "what it is")
    rows = [
        *_amounts(plan, _NOISE),
        *map(_option_cells, option_rows(plan)),
        *_amounts(plan, _SIZE),
        *_certificate_rows(plan["certificate"]),
    ]
    identity = markup.tag("p", "Study id: ", markup.tag("code", plan["study_id"]))
    caption = "The plan, for those who check it"
    if mode is not trust_models.FEDERATED:
        caption = "The plan of the federation with which this baseline is compared"
    return markup.section("The numbers", identity, markup.table(caption, head, rows, numeric=(1,)))


def _amounts(found: Plan, rows: Sequence[Cells]) -> list[Cells]:
    """Rows of plain numbers; of each row, the name, the key and what it is are given."""
    return [(name, amount(found[key]), words) for name, key, words in rows]


def _option_cells(row: PlanRow) -> Cells:
    """What an option of the study says of itself."""
    value = row.value
    if isinstance(value, str):
        return row.name, value, row.words
    return row.name, at_most(value) if row.upper else amount(value), row.words


def _certificate_rows(added: Plan) -> list[Cells]:
    factor, words = f"1 + {added['delta_factor'] - 1:.2g}", "by which the ideal δ is multiplied"
    return [*_amounts(added, _CERTIFICATE), ("certificate: factor on δ", factor, words)]


def traffic(plan: Plan, attempts: int, seconds: float | None) -> markup.Html:
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
    return markup.section(
        "What it took", markup.tag("p", words), markup.table(caption, head, rows, numeric=(1, 2))
    )


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
