"""What it cost: epsilon for every adversary, and what that means in plain words.

It reads the plan's plain values and calculates nothing but e to the epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from hubbub.core.number_format import NO_PROMISE, Row, amount, at_most, chance, finite
from hubbub.core.planning.adversary_words import explained, spoken
from hubbub.desk.report import charts, markup, scales, trust_models

Plan = Mapping[str, Any]
Exposure = Mapping[str, Any]

# As in the words of `_meaning`; ends of what is called a strong, and not yet a weak, promise.
_STRONG, _WEAK = 1.0, 8.0


def stated(plan: Plan) -> Exposure:
    """The adversary to whom the study's epsilon is promised; its silos are the study's T."""
    return next(row for row in plan["epsilon"] if row["adversary"] == plan["stated_adversary"])


def against(plan: Plan, mode: trust_models.Mode) -> str | None:
    """The adversary against whom the stated epsilon holds in this mode; None: against nobody."""
    return mode.holds_against(plan["stated_adversary"])


def axis(
    plan: Plan, mode: trust_models.Mode, rows: Sequence[Row]
) -> tuple[scales.Scale, scales.Scale]:
    """The vertical axes of the epsilon so far, and by coalition: one and the same where it can be.

    Where coalitions differ by so much that theirs is logarithmic, the epsilon so far has its own.
    """
    end = charts.vertical(charts.HEIGHT)
    so_far = [epsilon for row in rows if (epsilon := finite(row, "epsilon")) is not None]
    worst = [epsilon for epsilon in _worst(plan["epsilon"]).values() if epsilon is not None]
    if mode is not trust_models.FEDERATED or not worst:
        return scales.bounds(so_far, *end), scales.bounds(worst, *end)
    by_coalition = scales.bounds(worst, *end)
    if by_coalition.log:
        return scales.bounds(so_far, *end), by_coalition
    shared = scales.linear([0.0, *so_far, *worst], *end)
    return shared, shared


def scale(epsilon: float | None) -> markup.Html:
    """Where an epsilon stands between a strong promise and none."""
    zones = [(_STRONG, "strong"), (_WEAK, "fair"), (50.0, "weak")]
    words = next((name for end, name in zones if epsilon is not None and epsilon <= end), "no")
    described = f"A scale from strong (ε below 1) over fair to weak (above 8): {words} promise."
    return charts.strip(epsilon, zones, described)


def plainly(plan: Plan, against: str) -> str:
    """What the promise means, for somebody who has not heard of epsilon."""
    epsilon = stated(plan)["epsilon"]
    if epsilon is None:
        return f"Against {spoken(against)} nothing is promised: who took part may be told."
    how = "hardly" if epsilon <= _STRONG else "only a little" if epsilon <= _WEAK else "perhaps"
    used = "record was" if _unit(plan) == "record" else "records were"
    return (
        f"In plain words: even {spoken(against)}, knowing everything else about a person, can "
        f"{how} tell whether that person's {used} used. "
        f"Whatever the odds were before, they change by at most a factor of "
        f"{at_most(exp(epsilon))}, but for a tiny probability, δ (delta) = {chance(plan['delta'])}."
    )


def cost(plan: Plan, mode: trust_models.Mode, up: scales.Scale) -> markup.Html:
    """The section; the table of adversaries is the federation's, baselines have other ones.

    `up` is the axis for epsilon by coalition.
    """
    who, heading = against(plan, mode), "What it cost"
    if who is None:
        return markup.section(heading, markup.tag("p", mode.beyond))
    if mode is not trust_models.FEDERATED:
        bound = f"ε ≤ {at_most(stated(plan)['epsilon'])} at δ = {amount(plan['delta'])}"
        words = f"In this baseline {bound} holds against {who}. {mode.beyond}"
        return markup.section(heading, markup.tag("p", words), *_meaning(plan, who))
    figure = markup.tag("div", _figure(plan, up), class_="figures")
    return markup.section(heading, *_meaning(plan, who), _table(plan), figure)


def _meaning(plan: Plan, who: str) -> list[markup.Html]:
    """Epsilon in words, for the adversary against whom it holds."""
    epsilon, unit = stated(plan)["epsilon"], _unit(plan)
    first = (
        f"ε (epsilon) bounds how much any single {unit} can change what an adversary sees, that "
        f"is, somebody who tries to learn about a {unit}: at 0 it changes nothing, below 1 is a "
        "strong promise, above 8 a weak one. "
    )
    if epsilon is not None:
        first += (
            f"With ε = {at_most(epsilon)}, the odds between two guesses about one {unit} (it was "
            f"used, or it was not) change by at most a factor of {at_most(exp(epsilon))}, whatever "
            f"was believed before, but for the tiny probability δ = {amount(plan['delta'])}."
        )
    power = at_most(100 * plan["attack_power_at_1_percent"])
    second = (
        "An attacker who may wrongly accuse 1 in 100 non-members is right about at most "
        f"{power} in 100 members, that is, people whose record was used; blind guessing is right "
        f"about 1. All this holds against {spoken(who)}, and whoever sees less. "
        f"{_several(plan.get('patient'))}"
    )
    return [markup.tag("p", first), markup.tag("p", second)]


def _unit(plan: Plan) -> str:
    """What is protected: a record, or a patient with all records in a silo."""
    return str(plan.get("unit", "record"))


def _several(found: Mapping[str, Any] | None) -> str:
    """What holds for a person with several records."""
    if found is None:
        return "A person with several records in the study is protected less."
    if not found["is_unit"]:
        return f"For {found['who']}, ε is {_at_most(found['epsilon'])}."
    return (
        f"One unit is {found['who']} in a silo. Who has records in two silos is two units: for "
        f"both together ε is {_at_most(found['in_two_silos'])}."
    )


def _at_most(epsilon: float | None) -> str:
    """Past 50, or where there is no account, it is only said that it is more."""
    return "larger" if epsilon is None else f"at most {at_most(epsilon)}"


def _table(plan: Plan) -> markup.Html:
    rows: Sequence[Exposure] = plan["epsilon"]
    body = [_row(row, plan) for row in rows] + _patient_row(plan)
    head = ("Adversary", "ε at most", "in plain words", "promise", "noise left, times C")
    caption = (
        f"ε for each adversary, at δ = {amount(plan['delta'])}. To collude is to tell an adversary "
        f"in secret all that one knows; the study is planned for up to T = "
        f"{stated(plan)['colluding_silos']} colluding silos. C is the most that one {_unit(plan)} "
        "can add to a sum"
    )
    return markup.table(caption, head, body, numeric=(1, 4), marked=(rows.index(stated(plan)),))


def _row(row: Exposure, plan: Plan) -> tuple[str, ...]:
    return (
        row["adversary"],
        at_most(row["epsilon"]),
        explained(row["adversary"]),
        _promise(row, plan),
        amount(row["noise_multiplier"]),
    )


def _patient_row(plan: Plan) -> list[tuple[str, ...]]:
    """The promised adversary once more, about a patient, where the study speaks of patients."""
    patient, row = plan.get("patient"), stated(plan)
    if patient is None:
        return []
    about, promise = f"{row['adversary']}, about {patient['who']}", "the study's promise"
    if not patient["is_unit"]:
        promise = "none" if patient["epsilon"] is None else "weaker: each record is a unit"
    epsilon, noise = at_most(patient["epsilon"]), amount(row["noise_multiplier"])
    return [(about, epsilon, explained(row["adversary"]), promise, noise)]


def _promise(row: Exposure, plan: Plan) -> str:
    if row["adversary"] == plan["stated_adversary"]:
        return "the study's promise"
    if row["colluding_silos"] <= stated(plan)["colluding_silos"]:
        return "kept"
    if row["epsilon"] is None:
        return "none"
    when = ", who did before the mask graph was drawn" if row.get("torn") else ""
    return f"weaker: more than T collude{when}"


def _figure(plan: Plan, up: scales.Scale) -> markup.Html:
    """Epsilon against the number of colluding silos: how gracefully the promise degrades."""
    worst = _worst(plan["epsilon"])
    known = {silos: epsilon for silos, epsilon in worst.items() if epsilon is not None}
    over = [silos for silos, epsilon in worst.items() if epsilon is None]
    across = scales.linear([0, *worst], charts.LEFT + 10, charts.RIGHT - 10, whole=True)
    limit = stated(plan)["colluding_silos"]
    labels = "silos that collude with the aggregator", "ε" + (" (log scale)" if up.log else "")
    axes = charts.Axes(across=across, up=up, labels=labels)
    extra = [charts.limit(limit, f"T = {limit}", axes)]
    if over:
        extra.append(charts.off_scale(over, NO_PROMISE, axes))
    words = ", ".join(f"{silos}: {at_most(epsilon)}" for silos, epsilon in worst.items())
    chart = charts.lines(
        [charts.Series(name="epsilon", points=tuple(known.items()))],
        axes,
        described=f"Line chart of epsilon by number of colluding silos. {words}. T is {limit}.",
        extra=extra,
    )
    words = (
        f"The worst adversary for each number of colluding silos. The study is planned for T = "
        f"{limit} (dashed line); beyond it the promise weakens step by step.{_graph_words(plan)}"
    )
    return markup.figure(chart, words)


def _graph_words(plan: Plan) -> str:
    """Whom a sparse mask graph bears; nothing where no silos can take it apart."""
    graph = plan.get("mask_graph")
    if graph is None:
        return ""
    certain, likely = graph["colluders_at_any_time"], graph["colluders_before_it_is_drawn"]
    later = (
        f", and {likely} who were corrupted before it was drawn, but for the probability that the "
        "plan counts in δ"
    )
    return (
        f" The graph along which silos share masks bears {certain} colluders, whenever they are "
        f"corrupted{later if likely > certain else ''}."
    )


def _worst(rows: Sequence[Exposure]) -> dict[int, float | None]:
    """The largest epsilon among the adversaries with equally many silos; None is the largest."""
    worst: dict[int, float | None] = {}
    for row in sorted(rows, key=lambda one: one["colluding_silos"]):
        silos, epsilon = row["colluding_silos"], row["epsilon"]
        before = worst.get(silos, 0.0)
        worst[silos] = None if epsilon is None or before is None else max(epsilon, before)
    return worst
