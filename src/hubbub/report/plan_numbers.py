"""The numbers of the plan, for those who check it.

It reads the plan's plain values and says of each what it is; it calculates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.report.markup import Html, section, table, tag
from hubbub.report.modes import FEDERATED, Mode
from hubbub.report.number_format import amount, at_most

Plan = Mapping[str, Any]


def numbers(plan: Plan, mode: Mode) -> Html:
    """The section; a baseline has the plan of the federation that it is compared with."""
    head = ("Quantity", "value", "what it is")
    rows = [
        *_noise_rows(plan),
        *_projection_rows(plan.get("projection")),
        *_batch_rows(plan.get("without_replacement")),
        *_size_rows(plan),
        *_certificate_rows(plan),
    ]
    identity = tag("p", "Study id: ", tag("code", plan["study_id"]))
    caption = "The plan, for those who check it"
    if mode is not FEDERATED:
        caption = "The plan of the federation with which this baseline is compared"
    return section("The numbers", identity, table(caption, head, rows, numeric=(1,)))


Cells = tuple[str, str, str]


def _noise_rows(plan: Plan) -> list[Cells]:
    grid = amount(plan["share_sigma_grid"])
    return [
        (
            "noise multiplier",
            amount(plan["noise_multiplier"]),
            "standard deviation of the noise against the stated adversary, over the clipping norm",
        ),
        (
            "total noise multiplier",
            amount(plan["total_noise_multiplier"]),
            "the same for the whole noise in the sum when every silo takes part",
        ),
        (
            "noise share",
            amount(plan["share_sigma"]),
            f"standard deviation of what one silo adds, in units of the sum; {grid} grid steps",
        ),
        ("grid step", amount(plan["grid_step"]), "width of the grid onto which sums are rounded"),
        ("word", f"{plan['word_bits']} bits", "one number on the wire"),
        ("capacity", amount(plan["capacity"]), "records, all pulling alike, that fit into a word"),
        (
            "quorum",
            amount(plan["quorum"]),
            "least silos in a round; with fewer nothing is revealed",
        ),
    ]


def _projection_rows(found: Plan | None) -> list[Cells]:
    """How the random projection is charged, if there is one."""
    if not found:
        return []
    rows = [("projection", amount(found["dimension"]), "numbers that are sent for the parameters")]
    if found["exact"] and found["kind"] != "layers":
        return [*rows, ("its account", "exact", "over the law of the public matrix; costs no δ")]
    rows.append(("its account", found["kind"], found["account"]))
    if not found["slack"]:
        return rows
    return [
        *rows,
        ("its longest", amount(found["factor"]), "clipping norms that a projected record may have"),
        ("slack for longer ones", amount(found["slack"]), "of δ, paid in every step"),
    ]


def _batch_rows(found: Plan | None) -> list[Cells]:
    """What joint batches cost beside Poisson sampling, if they are joint."""
    if not found:
        return []
    return [
        (
            "records of the promised adversary",
            amount(found["known_records"]),
            "whose part in each joint batch it knows",
        ),
        (
            "ε if it knew none of them",
            at_most(found["epsilon_nobody"]),
            "sampling without replacement with nobody malicious",
        ),
        (
            "ε by a quantile of the honest part",
            at_most(found["epsilon_slack"]),
            f"the same with {amount(found['slack'])} of δ paid in every step; not used here",
        ),
        (
            "ε under Poisson sampling",
            at_most(found["epsilon_poisson"]),
            "at the same noise and rate, where owning records tells nothing",
        ),
        (
            "noise multiplier under Poisson sampling",
            amount(found["noise_poisson"]),
            "that would keep the promised ε",
        ),
    ]


def _size_rows(plan: Plan) -> list[Cells]:
    return [
        ("parameters", amount(plan["dimension"]), "numbers that the model learns"),
        (
            "mask partners",
            amount(plan["degree"]),
            "silos with which each silo shares masks (in studies without compute nodes)",
        ),
    ]


def _certificate_rows(plan: Plan) -> list[Cells]:
    added = plan["certificate"]
    return [
        ("δ", amount(plan["delta"]), "slack of the guarantee"),
        (
            "certificate: added to ε",
            amount(added["epsilon"]),
            "what rounding and finite precision may add; already in every ε of this page",
        ),
        (
            "certificate: added to δ",
            amount(added["delta"]),
            "the same for δ, with the chance that the mask graph falls apart",
        ),
        (
            "certificate: factor on δ",
            f"1 + {added['delta_factor'] - 1:.2g}",
            "by which δ of the ideal mechanism is multiplied",
        ),
    ]
