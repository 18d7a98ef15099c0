"""The page: what stands on it and in which order.

Everything that differs between the federation and a baseline is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.core.number_format import NOT_KNOWN, Row, amount, at_most, chance, finite, several
from hubbub.core.planning import plan_rows
from hubbub.core.runs import renderers
from hubbub.desk.report import answers, arrangements, markup, promise, trust_models
from hubbub.desk.report.markup import Html, figure, section, table, tag
from hubbub.desk.report.scores import (
    Scores,
    following,
    in_a_sentence,
    interval_of,
    learning,
    verdict,
)
from hubbub.desk.report.sheet import SheetOfModel, full, html_of
from hubbub.learning import metric_words

# How the page can be checked: what was checked already, how anybody does it again, and the rest.
#
# It shows findings as they were found: a claim, and whether it was re-derived, is signed, or is on
# trust. It checks nothing itself.

Finding = tuple[str, str]
Audit = Mapping[str, Any] | None

_HOW = {
    "re-derived": "recomputed from public data and found equal",
    "signed": "signed by the party it concerns, with the signature verified",
    "not verifiable": "shown by nothing here; has to be trusted",
    "not checked": "would take long to check; hubbub verify --thorough does it",
}
_RARE = "not checked"  # mentioned only where there is one


def checks(findings: Sequence[Finding], audit: Audit = None) -> Html:
    """The section."""
    how = tag(
        "p",
        "This page proves nothing by itself. ",
        tag("code", "hubbub verify FOLDER"),
        " recomputes the plan, every sum and every step of the model from the signed messages of "
        "the run, where they were kept, and names the first round that does not match. ",
        tag("code", "hubbub verify evidence.json"),
        " checks on any other machine what can be checked without them.",
    )
    if not findings:
        return section("How to check it", how)
    rows = [(verdict, amount(count), _HOW[verdict]) for verdict, count in _counts(findings)]
    wrongs = [finding for finding in findings if finding[1] not in _HOW]
    parts: list[Html] = [how]
    if wrongs:
        heading = tag("h3", "What does not hold")
        items = (tag("li", f"{claim}: {verdict}") for claim, verdict in wrongs)
        parts.append(tag("div", heading, tag("ul", *items), class_="warnings"))
    caption = "Claims in evidence.json when this page was written"
    parts.append(table(caption, ("Verdict", "claims", "what it means"), rows, numeric=(1,)))
    if not wrongs:
        none = "The evidence of this run contains no audit of the study."
        parts.append(tag("p", none if audit is None else promise.audit_words(audit)))
    if trusted := [claim for claim, verdict in findings if verdict == "not verifiable"]:
        items = (tag("li", full(claim)) for claim in trusted)
        parts += [tag("p", "What has to be trusted:"), tag("ul", *items)]
    return section("How to check it", *parts)


def briefly(findings: Sequence[Finding]) -> str:
    """The findings in one sentence."""
    counts = "; ".join(f"{n} {verdict} ({_HOW[verdict]})" for verdict, n in _counts(findings))
    wrongs = sum(finding[1] not in _HOW for finding in findings)
    start = "no claim was found to be wrong"
    if wrongs:
        start = f"{several(wrongs, 'claim')} {'does' if wrongs == 1 else 'do'} not hold"
    return f"In evidence.json {start}: {counts}. How to check it yourself is described below."


def _counts(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    counts = Counter(verdict for _, verdict in findings)
    return [(verdict, counts[verdict]) for verdict in _HOW if counts[verdict] or verdict != _RARE]


# What the ledgers hold: what each silo says that it has spent, on this study and in all.
#
# It reads the parts that the silos have signed for the evidence; it opens no ledger.

Part = Mapping[str, Any]

_SHOWN = 25  # beyond so many silos nobody reads the table


def ledgers(parts: Sequence[Part]) -> Html:
    """The section; without parts it says where to look."""
    words = (
        "Every silo keeps a ledger of its own, outside this run. It writes the cost of an answer "
        "to disk before the answer leaves, and refuses once its cap is reached. After a crash a "
        "ledger may count too much, never too little."
    )
    if not parts:
        hint = tag("p", "What the ledgers hold, ", tag("code", "hubbub ledger show"), " says.")
        return section("What the ledgers say", tag("p", words), hint)
    rows: list[tuple[Html | str, ...]] = []
    for part in parts[:_SHOWN]:
        spent, ledger = NOT_KNOWN, part["ledger"]
        if total := part["data_set"]:
            spent = f"{at_most(total['epsilon'])} at δ = {amount(total['delta'])}"
        head_shown = tag("code", f"{ledger['head'][:16]}…")
        charged = amount(part["attempts"]), amount(ledger["rows"])
        rows.append((part["silo"], *charged, spent, head_shown))
    more = len(parts) - len(rows)
    note = [tag("p", f"The evidence lists {amount(more)} more silos.")] if more else []
    caption = (
        "What each silo has signed about its ledger after this study. An attempt is one "
        "try at a step; the head is a fingerprint of all rows"
    )
    head = ("Silo", "attempts charged", "total rows", "total ε spent", "head")
    body = table(caption, head, rows, numeric=(1, 2, 3))
    return section("What the ledgers say", tag("p", words), body, *note)


# What the words on the page mean, for somebody who reads such a page for the first time.

_WORDS = {
    "silo": "a place that keeps records of its own, such as a hospital; also called a site",
    "record": "one line of data about one person",
    "model": "a formula that makes a prediction from a record; training finds it",
    "step": "one small improvement of the model; a training run has many",
    "attempt": "one try at a step; a failed try costs privacy too",
    "gradient": "the direction in which a record would change the model",
    "noise": "random numbers that are added so that no single record stands out",
    "mask": (
        "random numbers that hide what one silo sends, and cancel when everything is added up"
    ),
    "aggregator": "the party that adds up what the silos send and improves the model",
    "compute node": "a party without records that helps to take the masks off the sum",
    "relay": "the server in the network through which messages go",
    "adversary": "somebody who tries to learn about a record from everything they can see",
    "collude": "to share with an adversary, in secret, everything one knows",
    "ε (epsilon)": (
        "epsilon: how much an adversary can learn about one record, or patient. 0 is nothing, "
        "below 1 very little, above 8 a lot"
    ),
    "δ (delta)": "delta: a very small probability with which the guarantee of ε may fail",
    "T": "how many silos may collude with the aggregator before the guarantee weakens",
    "baseline": "the same study in another arrangement, to compare with",
    "ledger": "a silo's own record of everything ever spent on its records",
    "signed": "confirmed by a party with its secret key, so that nobody else can have written it",
    "evidence": "the signed file of what a run claims, which anybody can check",
    "audit": "a test attack on the study with synthetic records",
}


def meanings() -> Html:
    """The section."""
    pairs = [tag("div", tag("dt", word), tag("dd", meaning)) for word, meaning in _WORDS.items()]
    return section("Words on this page", tag("dl", *pairs, class_="meanings"))


# The picture with which the page opens: the parties, what goes between them, what each can learn.
# Sentences come from `trust_models`, bounds from the plan's plain values.

Plan = Mapping[str, Any]

_DRUMS = 6  # at most so many silos are drawn
_NO_PROMISE = "no guarantee"
_CAPTION = (
    "Who sees what. ε (epsilon) says how much somebody in that place can learn about one {}: 0 is "
    "nothing, below 1 very little, above 8 a lot. “≤” means “at most”: proven, not measured."
)


def who_sees_what(plan: Plan, mode: trust_models.Mode) -> Html:
    """The figure, with its caption."""
    counts = {"silo": plan["silos"], "node": plan["compute_nodes"]}
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
    return [view for view in mode.views if view.role != "node" or plan["compute_nodes"]]


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


Metrics = Sequence[Row]
Statistics = Mapping[str, Mapping[str, Any]]
_INTERVALS = (
    "Every interval covers both the sampling of people and the added noise. Tests take "
    "the noise into account, too."
)
_ALARMS = ('trust = "tee"', 'platform = "software"')


def render(
    plan: Plan,
    metrics: Metrics,
    *,
    baseline: str | None,
    comparison: arrangements.ArrangementTable | None = None,
    beside: Sequence[arrangements.ReportedRun] = (),
    parts: Sequence[Mapping[str, Any]] = (),
    checked: Sequence[Finding] = (),
    audit: Audit = None,
    attempts: int | None = None,
    seconds: float | None = None,
    statistics: Statistics | None = None,
    spending: Mapping[str, Any] | None = None,
    scores: Scores | None = None,
    validation: Mapping[str, Any] | None = None,
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
    mode = trust_models.FEDERATED if baseline is None else trust_models.BASELINES[baseline]
    against = plan_rows.promised_against(plan["stated_adversary"], baseline)
    last = int(metrics[-1]["step"]) if metrics else 0
    made = last if attempts is None else attempts
    so_far, by_coalition = promise.axis(plan, mode, metrics)
    compared = comparison or (arrangements.arrangements_of(beside) if beside else None)
    joining = arrangements.joining(compared) if compared and compared.arrangements else None
    validated = renderers.render("validation", validation) if validation else None
    # In red where the promise rests on a belief in machines.
    items = [
        tag("li", words, class_="alarm") if words.startswith(_ALARMS) else tag("li", words)
        for words in plan["warnings"]
    ]
    title = "Before you rely on it"
    warnings = [section(title, tag("ul", *items), class_="warnings")] if items else []
    learned = []
    if plan.get("trains", True):
        elsewhere = validated is not None
        learned = [learning(metrics, against, so_far, scores or {}, validated=elsewhere)]
    sections = [
        _summary(plan, metrics, mode, against, checked, spending, parts, scores or {}, validated),
        *([joining] if joining and comparison else []),  # which was asked for
        *warnings,
        *([_asked(statistics)] if statistics else []),
        *([section(validated.sheet.title, *html_of(validated.sheet))] if validated else []),
        *learned,
        promise.cost(plan, mode, against, by_coalition),
        *([joining] if joining and not comparison else []),
        *([arrangements.side_by_side(beside)] if beside else []),
        _views(plan, mode),
        *([] if baseline else [ledgers(parts)]),
        *([] if baseline else [promise.traffic(plan, made, seconds)]),
        checks(checked, audit),
        promise.numbers(plan, mode),
        meanings(),
    ]
    return markup.document(f"{plan['study']} – hubbub report", sections)


def _summary(
    plan: Plan,
    metrics: Metrics,
    mode: trust_models.Mode,
    against: str | None,
    checked: Sequence[Finding],
    spending: Mapping[str, Any] | None,
    parts: Sequence[Mapping[str, Any]],
    scores: Scores,
    validated: SheetOfModel | None,
) -> Html:
    """The first screen: what happened in one sentence, a picture, and a few figures."""
    validation = [_tile(*validated.telling)] if validated and validated.telling else []
    tiles = [*(validation or _learned_tile(metrics, scores)), *_privacy_tiles(plan, against)]
    if is_federated := mode is trust_models.FEDERATED:
        remark = "each silo sent only numbers that look random"
        tiles += _spent_tile(spending, parts)
        tiles.append(_tile("records that left a silo", "none", remark))
    alarms = promise.broken(plan, spending) if is_federated else []
    words = following(scores, metrics[-1] if metrics else {}, validated).removeprefix("next: ")
    advice = [f"What to do next: {words}."] if is_federated and plan.get("trains", True) else []
    answer = (
        tag("dl", *tiles, class_="tiles"),
        *([tag("p", promise.plainly(plan, against))] if against else []),
        *([tag("p", briefly(checked))] if checked else []),
        *(tag("p", words) for words in advice),
    )
    picture = who_sees_what(plan, mode)
    return tag(
        "header",
        tag("p", "hubbub report", class_="kicker"),
        tag("h1", tag("bdi", plan["study"])),
        *(tag("p", words, class_="alarm") for words in alarms),
        tag("p", _lead(plan, mode), class_="lead"),
        tag("div", picture, tag("div", *answer), class_="first"),
    )


def _lead(plan: Plan, mode: trust_models.Mode) -> str:
    if mode is not trust_models.FEDERATED:
        return (
            f"Baseline “{mode.label}”, for comparison with the federation. {mode.meaning} "
            f"{arrangements.UNCHARGED_BASELINE}"
        )
    return (
        f"{amount(plan['silos'])} silos (places with records of their own, such as hospitals) "
        f"{'trained one model' if plan.get('trains', True) else 'answered questions'} together and "
        "showed nobody a record. Each adds noise (random "
        "numbers) to what it sends; only the noisy sum is ever seen."
    )


def _asked(statistics: Statistics) -> Html:
    parts = [tag("p", _INTERVALS)]
    for name, answer in statistics.items():
        said = answers.sheet_of(name, answer)
        parts += [tag("h3", f"{said.title} ({name})"), *html_of(said)]
    return section("What was asked", *parts)


def _learned_tile(metrics: Metrics, scores: Scores) -> list[Html]:
    names = metric_words.metrics_of(metrics[-1:])
    if not names:
        return []
    name, last = names[0], metrics[-1]
    words, step = metric_words.words_of(name), amount(last["step"])
    # Whether the model is better than one that knows nothing, with an interval.
    standing = in_a_sentence({}, last)
    if score := scores.get(name):
        ends = f"{interval_of(score)} (95 %, of {score['records']} records)"
        standing = f"{words.name}: {ends}, {verdict(name, score)}"
    standing = standing and full(standing)
    remark = f"{standing} {words.meaning} After {step} steps."
    return [_tile(metric_words.label_of(name), words.shown(finite(last, name)), remark)]


def _privacy_tiles(plan: Plan, against: str | None) -> list[Html]:
    if against is None:
        return [_tile("privacy cost ε", "no guarantee", "this baseline adds no noise")]
    epsilon = promise.stated(plan)["epsilon"]
    power = at_most(100 * plan["attack_power_at_1_percent"])
    remark = (
        f"{promise.strength(epsilon)} guarantee: how much {plan_rows.spoken(against)} can learn "
        f"about one {promise.unit_of(plan)}; 0 is nothing"
    )
    found = (
        "people whose record was used, while wrongly accusing 1 in 100 others; blind guessing "
        "finds 1"
    )
    return [
        _tile("privacy cost ε (epsilon), at most", at_most(epsilon), remark),
        _tile("an attacker finds at most", f"{power} in 100", found),
    ]


def _spent_tile(
    spending: Mapping[str, Any] | None, parts: Sequence[Mapping[str, Any]]
) -> list[Html]:
    """What the records have spent in all, by what ledgers said or what silos have signed."""
    name = "total ε spent by these records"
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


def _tile(name: str, value: str, remark: str) -> Html:
    told = tag("dd", value, class_="figure"), tag("dd", remark, class_="remark")
    return tag("div", tag("dt", name), *told)


def _views(plan: Plan, mode: trust_models.Mode) -> Html:
    caption = "What each party sees in this arrangement, and what it does not see"
    note = (
        "Where all parties ran inside one process, as in a trial of the study, this is what each "
        "would see when run apart."
    )
    head = ("Party", "sees", "does not see")
    seen = present(plan, mode)
    rows = [(view.party, view.sees, view.unseen) for view in seen]
    return section("What each party saw", table(caption, head, rows), tag("p", note))
