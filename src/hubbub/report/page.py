"""The page: what stands on it and in which order.

First the answer in four figures, then what was learned, what it cost, whether joining is worth it,
what each party saw, and the numbers for those who check. Everything that differs between the
federation and a baseline is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from hubbub.report import cost, learned
from hubbub.report.figures import amount, at_most, finite, score, size
from hubbub.report.markup import Html, join, section, table, tag
from hubbub.report.modes import BASELINES, FEDERATED, Mode

Plan = Mapping[str, Any]
Metrics = Sequence[Mapping[str, float]]
# Nothing may be fetched or run, even if something on the page asked for it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(
    plan: Plan,
    metrics: Metrics,
    *,
    baseline: str | None,
    comparison: Mapping[str, Mapping[str, float]],
) -> str:
    """The report of a run as one self-contained HTML page.

    Guarantees:
        1. The page loads nothing, runs nothing, and shows every given text as text.
        2. Bounds are rounded up; the same input gives the same page.

    Args:
        plan: the plan as plain values.
        metrics: one row per evaluation: "step", "epsilon" and, where evaluated, "loss",
            "accuracy", "auc". May be empty.
        baseline: None for the federation, or the name of the baseline that was run.
        comparison: by mode, the mean "auc" or "accuracy" over runs and its "spread". May be empty.

    Returns:
        HTML, to be stored as UTF-8.
    """
    mode = FEDERATED if baseline is None else BASELINES[baseline]
    against = cost.against(plan, mode)
    parts = [
        _summary(plan, metrics, mode, against),
        *_warnings(plan["warnings"]),
        learned.learning(metrics, against),
        cost.cost(plan, mode),
        learned.joining(comparison),
        _views(mode),
        _numbers(plan, metrics, mode),
    ]
    return _document(plan["study"], parts)


def _document(name: str, parts: Sequence[Html]) -> str:
    style = Html(files("hubbub.report").joinpath("style.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{name} – hubbub report"),
        tag("style", style),
    )
    body = tag("body", tag("main", join(parts, "\n")))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en').text}\n"


def _summary(plan: Plan, metrics: Metrics, mode: Mode, against: str | None) -> Html:
    """The first screen: what happened, in one sentence and a few figures."""
    # The last adversary of a plan is all silos but one.
    silos = 1 + max(row["colluding_silos"] for row in plan["epsilon"])
    lead = (
        f"{amount(silos)} silos trained one model and showed nobody their records. {mode.meaning}"
    )
    if mode is not FEDERATED:
        lead = f"Baseline “{mode.label}”, for comparison with the federation. {mode.meaning}"
    tiles = [*_learned_tile(metrics), *_privacy_tiles(plan, against)]
    return tag(
        "header",
        tag("p", "hubbub report", class_="kicker"),
        tag("h1", tag("bdi", plan["study"])),
        tag("p", lead, class_="lead"),
        tag("dl", *tiles, class_="tiles"),
    )


def _learned_tile(metrics: Metrics) -> list[Html]:
    found = learned.metrics_of(metrics[-1:])
    if not found:
        return []
    value, step = finite(metrics[-1], found[0]), amount(metrics[-1]["step"])
    name = f"test {learned.name_of(found[0])}"
    return [_tile(name, score(value), f"after {step} steps; 1 is perfect")]


def _privacy_tiles(plan: Plan, against: str | None) -> list[Html]:
    if against is None:
        return [_tile("privacy cost ε", "no promise", "this baseline adds no noise")]
    bound = at_most(cost.stated(plan)["epsilon"])
    power = at_most(100 * plan["attack_power_at_1_percent"])
    remark = f"against {against}, at δ = {amount(plan['delta'])}"
    return [
        _tile("privacy cost ε, at most", bound, remark),
        _tile(
            "an attacker finds at most",
            f"{power} in 100",
            "members, while accusing 1 in 100 non-members; guessing finds 1",
        ),
    ]


def _tile(name: str, value: str, remark: str) -> Html:
    remark_shown = tag("dd", remark, class_="remark")
    return tag("div", tag("dt", name), tag("dd", value, class_="figure"), remark_shown)


def _warnings(warnings: Sequence[str]) -> list[Html]:
    if not warnings:
        return []
    return [
        section(
            "Before you rely on it",
            tag("ul", *(tag("li", one) for one in warnings)),
            class_="warnings",
        )
    ]


def _views(mode: Mode) -> Html:
    caption = "What each party sees in this arrangement, and what it does not see"
    note = (
        "Where all parties ran inside one process, as in a trial of the study, this is what each "
        "would see when run apart."
    )
    head = ("Party", "sees", "does not see")
    return section("What each party saw", table(caption, head, mode.views), tag("p", note))


def _numbers(plan: Plan, metrics: Metrics, mode: Mode) -> Html:
    head = ("Quantity", "value", "what it is")
    rows = [
        *_noise_rows(plan),
        *_projection_rows(plan.get("projection")),
        *_batch_rows(plan.get("without_replacement")),
        *_traffic_rows(plan, metrics),
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
    if found["exact"]:
        return [*rows, ("its account", "exact", "over the law of the public matrix; costs no δ")]
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


def _traffic_rows(plan: Plan, metrics: Metrics) -> list[Cells]:
    each = plan["upload_bytes_per_step"]
    rows = [
        ("parameters", amount(plan["dimension"]), "numbers that the model learns"),
        ("upload per step", size(each), "sent by each silo"),
    ]
    if each is not None and metrics:
        total = size(each * metrics[-1]["step"])
        rows.append(("upload in all", total, "sent by each silo in the whole run"))
    rows.append(
        (
            "mask partners",
            amount(plan["degree"]),
            "silos with which each silo shares masks (in studies without compute nodes)",
        )
    )
    return rows


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
