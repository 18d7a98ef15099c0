"""Promises that no longer hold, in words: they come first, wherever a study or a run is shown.

It reads the plan's plain values, and what the ledgers said after a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Any

from hubbub.core.number_format import (
    NO_PROMISE,
    NOT_KNOWN,
    Row,
    amount,
    at_least,
    at_most,
    chance,
    duration,
    finite,
    several,
    size,
)
from hubbub.core.planning.plan import option_rows
from hubbub.core.planning.plan_rows import explained, spoken
from hubbub.core.protocol.primitives.message_sizes import OVERHEAD
from hubbub.desk.report import charts, markup, trust_models

_STRONG, _WEAK = 1.0, 8.0  # up to which a promise is called strong, and not yet weak
_ROOM = 1e-3  # what epsilons of one study may differ by, relative


def broken(plan: Mapping[str, Any], spending: Mapping[str, Any] | None = None) -> list[str]:
    """What does not hold though a reader of the study's epsilon would believe it."""
    rows = {row["adversary"]: row["epsilon"] for row in plan["epsilon"]}
    stated = rows[plan["stated_adversary"]]
    sentences = []
    if stated is None:
        who = spoken(plan["stated_adversary"])
        sentences.append(f"no guarantee to anybody: against {who} epsilon is past 50")
    sentences += _to_patients(plan["patient"], stated)
    if spending is None or stated is None:
        return sentences
    # What all studies of the records come to, where it is more than this one's epsilon.
    epsilon, charges = spending["epsilon"], several(spending["charge"], "charge")
    if epsilon is None:
        sentences.append(
            f"no guarantee any more: after {charges} the records of {spending['silo']} have "
            "spent more than any epsilon that can be certified; run no further query on them"
        )
    elif epsilon > stated * (1 + _ROOM):
        sentences.append(
            f"epsilon {at_most(stated)} is for this study alone: after {charges} these "
            f"records have spent {at_most(epsilon)} in total, which is what protects them now"
        )
    return sentences


def spent_words(spending: Mapping[str, Any]) -> str:
    """What the records have spent in all, and which charge this was, in one sentence."""
    before = spending["before"]
    was = f", {at_most(before)} before it" if before != 0 else ""
    cap, left = spending["cap"], spending["left"]
    allowed = "no cap is set: set one with hubbub budget set LEDGER"
    if cap is not None:
        allowed = f"the cap is {cap:g}, of which {at_least(left)} is left"
    return (
        f"total spent: epsilon {at_most(spending['epsilon'])} at delta {spending['delta']:g}, by "
        f"the records of {spending['silo']}{was}; this was charge {spending['charge']}; {allowed}"
    )


def _to_patients(found: Mapping[str, Any] | None, stated: float | None) -> Iterator[str]:
    """What holds for who has several records, where each record is a unit."""
    if found is None or found["is_unit"]:
        return
    if (epsilon := found["epsilon"]) is None:
        yield (
            "no guarantee for patients: the guarantee is for one record, and for "
            f"{found['who']} epsilon is above 50 or has no bound; name the patients' "
            "column in data.patient to protect patients"
        )
    elif epsilon > max(_WEAK, stated or 0.0):
        yield (
            f"weak guarantee for patients: for {found['who']} epsilon is {at_most(epsilon)}, not "
            f"{at_most(stated)}; name the patients' column in data.patient to protect patients"
        )


# What it cost: epsilon for every adversary, and what that means in plain words.

Plan = Mapping[str, Any]
Exposure = Mapping[str, Any]


def stated(plan: Plan) -> Exposure:
    """The adversary to whom the study's epsilon is promised; its silos are the study's T."""
    return next(row for row in plan["epsilon"] if row["adversary"] == plan["stated_adversary"])


def axis(
    plan: Plan, mode: trust_models.Mode, rows: Sequence[Row]
) -> tuple[charts.Scale, charts.Scale]:
    """The vertical axes of the epsilon so far, and by coalition: one and the same where it can be.

    Where coalitions differ by so much that theirs is logarithmic, the epsilon so far has its own.
    """
    end = charts.vertical(charts.HEIGHT)
    so_far = [epsilon for row in rows if (epsilon := finite(row, "epsilon")) is not None]
    worst = [epsilon for epsilon in _worst(plan["epsilon"]).values() if epsilon is not None]
    if mode is not trust_models.FEDERATED or not worst:
        return charts.bounds(so_far, *end), charts.bounds(worst, *end)
    by_coalition = charts.bounds(worst, *end)
    if by_coalition.log:
        return charts.bounds(so_far, *end), by_coalition
    shared = charts.linear([0.0, *so_far, *worst], *end)
    return shared, shared


def strength(epsilon: float | None) -> str:
    """How an epsilon is called, between a strong guarantee and none."""
    zones = ((_STRONG, "strong"), (_WEAK, "fair"), (50.0, "weak"))
    return next((name for end, name in zones if epsilon is not None and epsilon <= end), "no")


def plainly(plan: Plan, against: str) -> str:
    """What the promise means, for somebody who has not heard of epsilon."""
    epsilon = stated(plan)["epsilon"]
    if epsilon is None:
        return f"Against {spoken(against)} nothing is guaranteed: they may learn who took part."
    how = "hardly" if epsilon <= _STRONG else "sometimes" if epsilon <= _WEAK else "perhaps"
    used = "record was" if unit_of(plan) == "record" else "records were"
    return (
        f"In plain words: even {spoken(against)}, knowing everything else about a person, "
        f"can {how} tell whether that person's {used} used. Whatever the odds were "
        f"before, they change by a factor of at most {at_most(exp(epsilon))}, except with "
        f"a tiny probability δ (delta) = {chance(plan['delta'])}."
    )


def cost(plan: Plan, mode: trust_models.Mode, who: str | None, up: charts.Scale) -> markup.Html:
    """The section; the table of adversaries is the federation's, baselines have other ones.

    `who` is the adversary against whom epsilon holds, None where it is nobody; `up` is the axis for
    epsilon by coalition.
    """
    heading = "What it cost"
    if who is None:
        return markup.section(heading, markup.tag("p", mode.beyond))
    if mode is not trust_models.FEDERATED:
        bound = f"ε ≤ {at_most(stated(plan)['epsilon'])} at δ = {amount(plan['delta'])}"
        words = f"In this baseline {bound} holds against {who}. {mode.beyond}"
        return markup.section(heading, markup.tag("p", words), *_meaning(plan, who))
    figure = markup.tag("div", _figure(plan, up), class_="figures")
    return markup.section(heading, *_meaning(plan, who), _table(plan), figure)


def audit_words(audit: Mapping[str, Any]) -> str:
    """What an attack on the study with made-up records has found."""
    return (
        f"An audit by hubbub {audit['version']} simulated {amount(audit['runs'])} trainings of "
        f"this study with {amount(audit['canaries'])} canaries each in place of records. The sums "
        f"showed ε of at least {at_least(audit['epsilon_lower'])}; they may reveal up to "
        f"{at_most(audit['epsilon_audited'])}. A small number proves nothing; one above that limit "
        "would have revealed a defect."
    )


def _meaning(plan: Plan, who: str) -> list[markup.Html]:
    """What epsilon is a bound on, and what an attacker finds at most."""
    unit = unit_of(plan)
    first = (
        f"ε (epsilon) bounds how much any single {unit} can change what an adversary "
        f"sees. An adversary is somebody who tries to learn about a {unit}. At ε = 0 "
        "nothing changes; below 1 is a strong guarantee, above 8 a weak one."
    )
    patient = plan["patient"]  # what holds for a person with several records
    others = "A person with several records in the study is protected less."
    if patient is not None and patient["is_unit"]:
        others = (
            f"One unit is {patient['who']} in one silo. A patient with records in two silos is two "
            f"units: for both together ε is {_at_most(patient['in_two_silos'])}."
        )
    elif patient is not None:
        others = f"For {patient['who']}, ε is {_at_most(patient['epsilon'])}."
    power = at_most(100 * plan["attack_power_at_1_percent"])
    second = (
        "An attacker who may wrongly accuse 1 in 100 people whose record was not used "
        f"identifies at most {power} in 100 people whose record was used; blind guessing "
        f"identifies 1. This holds against {spoken(who)}, and against anybody who sees "
        f"less. {others}"
    )
    return [markup.tag("p", first), markup.tag("p", second)]


def unit_of(plan: Plan) -> str:
    """What is protected: a record, or a patient with all records in a silo."""
    return str(plan["unit"])


def _at_most(epsilon: float | None) -> str:
    """Past 50, or where there is no account, it is only said that it is more."""
    return "larger" if epsilon is None else f"at most {at_most(epsilon)}"


def _table(plan: Plan) -> markup.Html:
    head = ("Adversary", "ε at most", "in plain words", "guarantee", "unknown noise / C")
    caption = (
        f"ε for each adversary, at δ = {amount(plan['delta'])}. To collude is to share, "
        "in secret, everything one knows; the study is planned for up to T = "
        f"{stated(plan)['colluding_silos']} colluding silos. C, the clip, is the most that one "
        f"{unit_of(plan)} can add to a sum; unknown noise is what an adversary cannot subtract"
    )
    marked = (plan["epsilon"].index(stated(plan)),)
    return markup.table(caption, head, exposure_rows(plan), numeric=(1, 4), marked=marked)


def exposure_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Of each adversary its name, ε at most, who it is, the promise, and the noise that hides."""
    rows: list[tuple[str, ...]] = []
    for row in plan["epsilon"]:
        who, noise = row["adversary"], amount(row["noise_multiplier"])
        rows.append((who, at_most(row["epsilon"]), explained(who), _promise(row, plan), noise))
    # The promised adversary once more, about a patient, where the unit is a record.
    patient, row = plan["patient"], stated(plan)
    if patient is None or patient["is_unit"]:
        return rows
    about = f"{row['adversary']}, about {patient['who']}"
    promise = "weaker: the guarantee is for one record, and some people have several"
    promise = "none" if patient["epsilon"] is None else promise
    epsilon, noise = at_most(patient["epsilon"]), amount(row["noise_multiplier"])
    return [*rows, (about, epsilon, explained(row["adversary"]), promise, noise)]


def _promise(row: Exposure, plan: Plan) -> str:
    if row["adversary"] == plan["stated_adversary"]:
        return "the study's guarantee"
    if row["colluding_silos"] <= stated(plan)["colluding_silos"]:
        return "kept"
    if row["epsilon"] is None:
        return "none"
    if row["epsilon"] <= (stated(plan)["epsilon"] or 0.0):
        return "no weaker, though more collude than promised"
    when = ", corrupted before the mask graph was drawn" if row["torn"] else ""
    return f"weaker: more collude than promised{when}"


def _figure(plan: Plan, up: charts.Scale) -> markup.Html:
    """Epsilon against the number of colluding silos: how gracefully the promise degrades."""
    worst = _worst(plan["epsilon"])
    known = {silos: epsilon for silos, epsilon in worst.items() if epsilon is not None}
    over = [silos for silos, epsilon in worst.items() if epsilon is None]
    across = charts.linear([0, *worst], charts.LEFT + 10, charts.RIGHT - 10, whole=True)
    limit = stated(plan)["colluding_silos"]
    labels = "silos that collude with the aggregator", "ε" + (" (log scale)" if up.log else "")
    axes = charts.Axes(across=across, up=up, labels=labels)
    extra = [charts.limit(limit, f"T = {limit}", axes)]
    if over:
        extra.append(charts.off_scale(over, NO_PROMISE, axes))
    points = ", ".join(f"{silos}: {at_most(epsilon)}" for silos, epsilon in worst.items())
    words = f"Line chart of epsilon by number of colluding silos. {points}. T is {limit}."
    series = [charts.Series(name="epsilon", points=tuple(known.items()))]
    chart = charts.lines(series, axes, described=words, extra=extra)
    words = (
        "The worst adversary for each number of colluding silos. The study is planned for T = "
        f"{limit} (dashed line); beyond it the guarantee weakens step by step."
    )
    if graph := plan.get("mask_graph"):  # which withstands some silos, where masks are sparse
        certain, likely = graph["colluders_at_any_time"], graph["colluders_before_it_is_drawn"]
        words += (
            f" The graph of silos that share masks withstands any {certain} colluders, whenever "
            "they are corrupted"
        )
        if likely > certain:
            words += (
                f", and {likely} that were corrupted before it was drawn, except with a "
                "probability that the plan counts in δ"
            )
        words += "."
    return markup.figure(chart, words)


def _worst(rows: Sequence[Exposure]) -> dict[int, float | None]:
    """The largest epsilon among the adversaries with equally many silos; None is the largest."""
    worst: dict[int, float | None] = {}
    for row in sorted(rows, key=lambda one: one["colluding_silos"]):
        silos, epsilon = row["colluding_silos"], row["epsilon"]
        before = worst.get(silos, 0.0)
        worst[silos] = None if epsilon is None or before is None else max(epsilon, before)
    return worst


# The numbers of the plan, for those who check it, and what the run took: seconds and bytes.

Cells = tuple[str, str, str]

_LEFT = "σ that the stated adversary cannot subtract, over the clip C"
# Name, key in the plan, and what it is; σ stands for a standard deviation.
_NOISE = (
    ("noise multiplier", "noise_multiplier", _LEFT),
    ("total noise multiplier", "total_noise_multiplier", "the same if every silo takes part"),
    ("noise share", "share_sigma", "σ of what one silo adds if all take part, in the sum's units"),
    ("noise share on the grid", "share_sigma_grid", "the same in grid steps"),
    ("grid step", "grid_step", "width of the grid onto which sums are rounded"),
    ("word", "word_bits", "bits of one number in a message"),
    ("sum limit", "sum_limit", "records whose sum fits into a word, whatever they are"),
    ("quorum", "quorum", "fewest silos in a round; with fewer, nothing is revealed"),
)
_SIZE = (
    ("mask partners", "degree", "silos with which each shares masks (without compute nodes)"),
    ("δ", "delta", "the tiny probability that ε does not hold"),
)
_FEWER = "the same, and the probability that masks reveal the sum of fewer silos"
_CERTIFICATE = (
    ("certificate: added to ε", "epsilon", "for rounding and finite precision, in every ε here"),
    ("certificate: added to δ", "delta", _FEWER),
)


def numbers(plan: Plan, mode: trust_models.Mode) -> markup.Html:
    """The section; a baseline has the plan of the federation that it is compared with."""
    head, rows = ("Quantity", "value", "what it is"), number_rows(plan)
    identity = markup.tag("p", "Study id: ", markup.tag("code", plan["study_id"]))
    caption = "The plan, for those who check it"
    if mode is not trust_models.FEDERATED:
        caption = "The plan of the federation that this baseline is compared with"
    return markup.section("The numbers", identity, markup.table(caption, head, rows, numeric=(1,)))


def number_rows(plan: Plan) -> list[Cells]:
    """The numbers of a plan: what each is called, its value, and what it is."""
    rows = _amounts(plan, _NOISE)
    for row in option_rows(plan):  # what options of the study say of themselves
        value = row.value
        if not isinstance(value, str):
            value = at_most(value) if row.upper else amount(value)
        rows.append((row.name, value, row.words))
    size_of = ("parameters", "dimension", "numbers that the model learns")
    if not plan.get("trains", True):
        size_of = ("numbers", "dimension", "what a sum consists of")
    factor = f"1 + {plan['certificate']['delta_factor'] - 1:.2g}"
    power = f"{at_most(100 * plan['attack_power_at_1_percent'])} in 100"
    found = "people identified at most, if 1 in 100 others is wrongly accused"
    return [
        *rows,
        *_amounts(plan, (size_of, *_SIZE)),
        ("upload", size(plan["upload_bytes_per_step"]), "what a silo sends for each sum"),
        ("attack", power, found),
        *_amounts(plan["certificate"], _CERTIFICATE),
        ("certificate: factor on δ", factor, "by which the ideal δ is multiplied"),
    ]


def _amounts(found: Plan, rows: Sequence[Cells]) -> list[Cells]:
    return [(name, amount(found[key]), words) for name, key, words in rows]


def traffic(plan: Plan, attempts: int, seconds: float | None) -> markup.Html:
    """The section; attempts count whether finished or not, and seconds if somebody measured."""
    each = duration(seconds / attempts) if seconds is not None and attempts else NOT_KNOWN
    rows = [("time", each, duration(seconds))] if seconds is not None else []
    each_sends = plan["upload_bytes_per_step"]
    all_send = None if each_sends is None else each_sends * plan["silos"]
    rows += [
        (name, size(count), NOT_KNOWN if count is None else size(count * attempts))
        for name, count in (
            ("each silo sends", each_sends),
            ("each silo receives", download(plan)),
            ("all silos together send", all_send),
        )
    ]
    words = (
        f"Attempts made: {amount(attempts)}; the study allows {amount(plan['steps'])}. How much a "
        "silo sends does not depend on how many records it has or used."
    )
    caption = "Data sent for these attempts, without the set-up"
    head = ("Quantity", "per attempt", "total")
    shown = markup.table(caption, head, rows, numeric=(1, 2))
    return markup.section("What it took", markup.tag("p", words), shown)


def download(plan: Plan) -> int | None:
    """Bytes of the message with the model, which every silo receives in a step."""
    if plan["dimension"] is None:
        return None
    return -(-int(plan["silos"]) // 8) + 4 * int(plan["dimension"]) + OVERHEAD
