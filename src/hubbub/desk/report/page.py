"""The page: what stands on it and in which order.

First a picture of who sees what and the answer in four figures, then what was learned, what it
cost, whether joining is worth it, what each party saw, what the ledgers hold, what it took, how all
that can be checked, and what the words mean. Everything that differs between the federation and a
baseline is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.core.number_format import Row, amount, at_most, chance, finite
from hubbub.core.planning import adversary_words
from hubbub.desk.report import (
    answers_section,
    checks,
    comparison_section,
    comparison_table,
    learned,
    ledger_section,
    markup,
    plain_words,
    plan_numbers,
    privacy_cost,
    promise_words,
    score_words,
    several_runs,
    trust_models,
    validation_section,
    validation_words,
    who_sees_what,
)
from hubbub.learning import metric_words

Plan = Mapping[str, Any]
Metrics = Sequence[Row]
Statistics = Mapping[str, Mapping[str, Any]]
# Nothing may be fetched or run, even if something on the page asked for it.
_ALARMS = ('trust = "tee"', 'platform = "software"')
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(
    plan: Plan,
    metrics: Metrics,
    *,
    baseline: str | None,
    comparison: comparison_table.ArrangementTable | None = None,
    beside: Sequence[several_runs.ReportedRun] = (),
    parts: Sequence[Mapping[str, Any]] = (),
    checked: Sequence[checks.Finding] = (),
    audit: checks.Audit = None,
    attempts: int | None = None,
    seconds: float | None = None,
    statistics: Statistics | None = None,
    spending: Mapping[str, Any] | None = None,
    scores: score_words.Scores | None = None,
    validation: validation_words.Validation | None = None,
) -> str:
    """The report of a run as one self-contained HTML page, to be stored as UTF-8.

    Guarantees:
        1. The page loads nothing, runs nothing, and shows every given text as text.
        2. Bounds are rounded up; the same input gives the same page.

    Args:
        plan: the plan as plain values.
        metrics: one row per evaluation: "step", "epsilon" and, where evaluated, "loss",
            "accuracy", "auc". May be empty.
        baseline: the name of the baseline that was run; None for the federation.
        comparison: how well the arrangements of the study did, if they were tried.
        beside: runs to show side by side, this one among them; or none.
        parts, audit: signed parts of the silos and what an audit has found, as in the evidence.
        checked: claims and verdicts, as `hubbub verify` gives them.
        attempts: made in all; as many as the last row has steps if None.
        seconds: that the run took, if somebody measured.
        statistics: answers to the study's statistics, by name.
        spending: what the records have spent in all, as `Spending.to_dict` gives it.
        scores: on public test records beside a model that knows nothing, by metric.
        validation: what the study's private validation says.
    """
    trains = plan.get("trains", True)
    mode = trust_models.FEDERATED if baseline is None else trust_models.BASELINES[baseline]
    against = privacy_cost.against(plan, mode)
    last = int(metrics[-1]["step"]) if metrics else 0
    made = last if attempts is None else attempts
    so_far, by_coalition = privacy_cost.axis(plan, mode, metrics)
    compared = comparison or (several_runs.arrangements_of(beside) if beside else None)
    joining = comparison_section.joining(compared) if trains or compared else None
    sections = [
        _summary(plan, metrics, mode, against, checked, spending, parts, scores or {}, validation),
        *([joining] if joining and comparison else []),  # which was asked for
        *_warnings(plan["warnings"]),
        *([answers_section.answers(statistics)] if statistics else []),
        *([validation_section.validated(validation)] if validation else []),
        *(
            [
                learned.learning(
                    metrics, against, so_far, scores or {}, validated=validation is not None
                )
            ]
            if trains
            else []
        ),
        privacy_cost.cost(plan, mode, by_coalition),
        *([joining] if joining and not comparison else []),
        *([several_runs.side_by_side(beside)] if beside else []),
        _views(plan, mode),
        *([] if baseline else [ledger_section.ledgers(parts)]),
        *([] if baseline else [plan_numbers.traffic(plan, made, seconds)]),
        checks.checks(checked, audit),
        plan_numbers.numbers(plan, mode),
        plain_words.meanings(),
    ]
    return _document(plan["study"], sections)


def _document(name: str, parts: Sequence[markup.Html]) -> str:
    head = markup.tag(
        "head",
        markup.tag("meta", charset="utf-8"),
        markup.tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        markup.tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        markup.tag("meta", name="color-scheme", content="light dark"),
        markup.tag("title", f"{name} – hubbub report"),
        markup.style(),
    )
    body = markup.tag("body", markup.tag("main", markup.join(parts, "\n")))
    return f"<!DOCTYPE html>\n{markup.tag('html', head, body, lang='en').text}\n"


def _summary(
    plan: Plan,
    metrics: Metrics,
    mode: trust_models.Mode,
    against: str | None,
    checked: Sequence[checks.Finding],
    spending: Mapping[str, Any] | None,
    parts: Sequence[Mapping[str, Any]],
    scores: score_words.Scores,
    validation: validation_words.Validation | None,
) -> markup.Html:
    """The first screen: what happened in one sentence, a picture, and a few figures."""
    validated = _validated_tile(validation) if validation else []
    tiles = [*(validated or _learned_tile(metrics, scores)), *_privacy_tiles(plan, against)]
    if mode is trust_models.FEDERATED:
        tiles += _spent_tile(spending, parts)
    if mode is trust_models.FEDERATED:
        remark = "each silo sent only numbers that look random"
        tiles.append(_tile("records that left a silo", "none", remark))
    is_federated = mode is trust_models.FEDERATED
    alarms = promise_words.broken(plan, spending) if is_federated else []
    following = (
        [_next(metrics, scores, validation)] if is_federated and plan.get("trains", True) else []
    )
    answer = (
        markup.tag("dl", *tiles, class_="tiles"),
        *([markup.tag("p", privacy_cost.plainly(plan, against))] if against else []),
        *([markup.tag("p", checks.briefly(checked))] if checked else []),
        *(markup.tag("p", words) for words in following),
    )
    picture = who_sees_what.picture(plan, mode)
    return markup.tag(
        "header",
        markup.tag("p", "hubbub report", class_="kicker"),
        markup.tag("h1", markup.tag("bdi", plan["study"])),
        *(markup.tag("p", words, class_="alarm") for words in alarms),
        markup.tag("p", _lead(plan, mode), class_="lead"),
        markup.tag("div", picture, markup.tag("div", *answer), class_="first"),
    )


def _lead(plan: Plan, mode: trust_models.Mode) -> str:
    """What happened, in plain words."""
    if mode is not trust_models.FEDERATED:
        return (
            f"Baseline “{mode.label}”, for comparison with the federation. {mode.meaning} "
            f"{comparison_table.UNCHARGED_BASELINE}"
        )
    return (
        f"{amount(plan['silos'])} silos (places with records of their own, such as hospitals) "
        f"{'trained one model' if plan.get('trains', True) else 'answered questions'} together and "
        "showed nobody a record. Each adds noise (random "
        "numbers) to what it sends; only the noisy sum is ever seen."
    )


def _learned_tile(metrics: Metrics, scores: score_words.Scores) -> list[markup.Html]:
    shown = metric_words.metrics_of(metrics[-1:])
    if not shown:
        return []
    value, step = finite(metrics[-1], shown[0]), amount(metrics[-1]["step"])
    words = metric_words.words_of(shown[0])
    return [
        _tile(
            metric_words.label_of(shown[0]),
            words.shown(value),
            f"{_standing(shown[0], scores, metrics[-1])} {words.meaning} After {step} steps.",
        )
    ]


def _validated_tile(validation: validation_words.Validation) -> list[markup.Html]:
    """The telling score of the private validation; nothing where it has none."""
    if validation["refusal"]:
        return []
    name, one = next(iter(validation["all"]["scores"].items()))
    low, high = (validation_words.shown(one[end]) for end in ("low", "high"))
    remark = (
        f"{low} to {high} (95 %, chance and noise): {validation_words.verdict(name, one)}. "
        f"On {validation_words.whose(validation)}"
    )
    return [
        _tile(validation_words.validation_name(name), validation_words.shown(one["value"]), remark)
    ]


def _next(
    metrics: Metrics,
    scores: score_words.Scores,
    validation: validation_words.Validation | None,
) -> str:
    """What to do with the model, as a sentence of its own."""
    said = score_words.what_next(scores, metrics[-1] if metrics else {})
    if validation and not score_words.telling(scores):
        said = validation_words.next_step(validation)
    return f"What to do next: {said.removeprefix('next: ')}."


def _standing(name: str, scores: score_words.Scores, row: Row) -> str:
    """Whether a model is better than one that knows nothing, with an interval."""
    said = score_words.remarks(scores, [name])
    words = said[0] if said else score_words.in_a_sentence({}, row)
    return words if not words or words.endswith(".") else f"{words}."


def _privacy_tiles(plan: Plan, against: str | None) -> list[markup.Html]:
    if against is None:
        return [_tile("privacy cost ε", "no promise", "this baseline adds no noise")]
    epsilon = privacy_cost.stated(plan)["epsilon"]
    power = at_most(100 * plan["attack_power_at_1_percent"])
    remark = f"how much {adversary_words.spoken(against)} can learn about one record; 0 is nothing"
    return [
        _tile(
            "privacy cost ε (epsilon), at most",
            at_most(epsilon),
            remark,
            privacy_cost.scale(epsilon),
        ),
        _tile(
            "an attacker finds at most",
            f"{power} in 100",
            "people whose record was used, while wrongly accusing 1 in 100 others; blind guessing "
            "finds 1",
        ),
    ]


def _spent_tile(
    spending: Mapping[str, Any] | None, parts: Sequence[Mapping[str, Any]]
) -> list[markup.Html]:
    """What the records have spent in all, by what ledgers said or what silos have signed."""
    name = "ε spent in all by these records"
    if spending is not None:
        before = spending["before"]
        was = f"charge {spending['charge']}; {at_most(before)} before this run. " if before else ""
        was = was or "the first charge. "
        cap = spending["cap"]
        allowed = "No cap is set." if cap is None else f"The cap is {amount(cap)}."
        remark = f"At δ = {chance(spending['delta'])}, all studies together: {was}{allowed}"
        return [_tile(name, at_most(spending["epsilon"]), remark)]
    told = [part["data_set"] for part in parts if part["data_set"]]
    if not told:
        return []
    most = max(told, key=lambda one: one["epsilon"] or float("inf"))
    remark = f"At δ = {chance(most['delta'])}, all studies together, by what the silos have signed"
    return [_tile(name, at_most(most["epsilon"]), remark)]


def _tile(name: str, value: str, remark: str, *more: markup.Html) -> markup.Html:
    remark_shown = markup.tag("dd", remark, class_="remark")
    drawn = [markup.tag("dd", one) for one in more]
    return markup.tag(
        "div",
        markup.tag("dt", name),
        markup.tag("dd", value, class_="figure"),
        *drawn,
        remark_shown,
    )


def _warnings(warnings: Sequence[str]) -> list[markup.Html]:
    items = markup.tag("ul", *map(_warning, warnings))
    return [markup.section("Before you rely on it", items, class_="warnings")] if warnings else []


def _warning(words: str) -> markup.Html:
    """One of them; in red where the promise rests on a belief in machines."""
    if words.startswith(_ALARMS):
        return markup.tag("li", words, class_="alarm")
    return markup.tag("li", words)


def _views(plan: Plan, mode: trust_models.Mode) -> markup.Html:
    caption = "What each party sees in this arrangement, and what it does not see"
    note = (
        "Where all parties ran inside one process, as in a trial of the study, this is what each "
        "would see when run apart."
    )
    head = ("Party", "sees", "does not see")
    seen = who_sees_what.present(plan, mode)
    rows = [(view.party, view.sees, view.unseen) for view in seen]
    return markup.section(
        "What each party saw", markup.table(caption, head, rows), markup.tag("p", note)
    )
