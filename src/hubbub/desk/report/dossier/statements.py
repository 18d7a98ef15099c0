"""Sentences about a run: what was asked of whom, what is promised, spent and shown.

Each is made of the members that it reads, says what was found, in words that need no mathematics,
and says nothing of the law. `chapters.txt` names it, in braces, after what it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

from hubbub.core.number_format import amount, at_most, chance, several
from hubbub.core.planning.plan_rows import spoken
from hubbub.desk.report.dossier.facts import NotShownError, Run
from hubbub.desk.report.promise import audit_words

_ONE_PROCESS = "that whoever ran the study could be trusted by all: every party ran in one process"
_MANY = 12  # names that are read at once
_ROWS = 4  # adversaries past the threshold that are named


def study(run: Run) -> str:
    """Which study this is."""
    return f"The study “{run.study.name}” has the id {run.study.id}."


def what_is_done(run: Run) -> str:
    """A model is trained, or questions are answered."""
    model = run.asked.model
    if model is None:
        return "No model is trained: all results are computed from noisy sums over all silos."
    return (
        f"The study trains one model of the kind “{model.kind}” with "
        f"{amount(run.plan.dimension)} parameters in {amount(run.plan.steps)} steps."
    )


def questions(run: Run) -> str:
    """Which statistics are asked, of which columns."""
    asked = run.asked.statistics
    if asked is None:
        return "The study asks for no statistics."

    def of_columns(statistic: Mapping[str, Any]) -> str:
        # A table lists its columns; a cross table has one down and one across.
        names = statistic.get("columns", ())
        names = (statistic["rows"], names) if isinstance(names, str) else names
        return f" of {', '.join(names)}" if names else ""

    named = "; ".join(
        f"“{statistic['name']}” ({statistic['kind']}{of_columns(statistic)})"
        for statistic in asked["statistics"]
    )
    return f"The study asks for {several(len(asked['statistics']), 'statistic')}: {named}."


def parties(run: Run) -> str:
    """Who takes part."""
    names = [party["name"] for party in run.roster if party["role"] == "silo"]
    more = f" and {len(names) - _MANY} others" if len(names) > _MANY else ""
    nodes = run.plan.compute_nodes
    others = f"; {several(nodes, 'compute node')} without records too" if nodes else ""
    return (
        f"{len(names)} silos hold records: {', '.join(names[:_MANY])}{more}. An "
        f"aggregator adds up what the silos send{others}."
    )


def records(run: Run) -> str:
    """How many records, as far as it is public."""
    stated, capacity = run.asked.data.records, run.asked.data.capacity
    things = f"{run.plan.unit}s"
    total = f"no number of {things}"
    if stated:
        total = f"{amount(stated)} {things} of all silos together"
    most = f", at most {', '.join(map(amount, capacity[:_MANY]))} by silo" if capacity else ""
    return f"The study states {total}{most}; this number is public and was not counted here."


def columns(run: Run) -> str:
    """Which columns are read."""
    data = run.asked.data
    named = [column["name"] for column in data.columns]
    target = data.target
    learned = f"its target is “{target}”" if target else "it names no target"
    if named:
        return f"The study reads the columns {', '.join(named)}; {learned}."
    return (
        "The study declares no columns of its own: they are those of its source, "
        f"“{data.source or data.files}”; {learned}."
    )


def what_leaves(run: Run) -> str:
    """What a silo sends."""
    how = "clipped" if run.asked.training is not None else "of bounded length"
    return (
        f"In each of {several(run.plan.steps, 'step')} a silo sends one vector of "
        f"{amount(run.plan.dimension)} numbers of {run.plan.word_bits} bits. By the plan, "
        f"each {run.plan.unit}'s contribution is {how}, and the sum gets noise and masks before it "
        "leaves the silo."
    )


def code(run: Run) -> str:
    """Whether the study runs code of its own."""
    source, model = str(run.asked.data.source), run.asked.model
    kind = "" if model is None else str(model.kind)
    own = [name for name in (source, kind) if name.startswith("python:")]
    if own:
        return f"The study runs its own code at each silo: {', '.join(own)}."
    return "The study runs no code of its own: the model and the data source are part of hubbub."


def _row(run: Run, adversary: str) -> Mapping[str, Any]:
    """What the plan says of an adversary; NotShownError if it says nothing."""
    for row in run.plan.epsilon:
        if row["adversary"] == adversary:
            return dict(row)
    raise NotShownError("the plan has no row for it")


def against_stated(run: Run) -> str:
    """The promise."""
    stated = run.plan.stated_adversary
    return (
        f"Against {spoken(stated)}, epsilon is at most "
        f"{at_most(_row(run, stated)['epsilon'])} at delta {amount(run.plan.delta)} "
        f"(relation: {run.plan.relation}), if the study runs as planned."
    )


def odds(run: Run) -> str:
    """Epsilon as a factor of odds."""
    epsilon = _row(run, run.plan.stated_adversary)["epsilon"]
    if epsilon is None:
        raise NotShownError("no epsilon can be guaranteed")
    unit, used = run.plan.unit, "it was used, or it was not"
    used = used if unit == "record" else "whose records were used, or were not"
    return (
        f"The odds between two guesses about one {unit} ({used}) change by a factor of at most "
        f"{at_most(exp(epsilon))} through everything this adversary sees, except with a "
        f"probability of {chance(run.plan.delta)}."
    )


def delta(run: Run) -> str:
    """How likely the promise fails, beside how many could be hit."""
    stated, expected = run.asked.data.records, ""
    if stated:
        expected = (
            f"; times the {amount(stated)} {run.plan.unit}s that the study states, this is "
            f"{at_most(stated * run.plan.delta)}"
        )
    return f"Delta is {amount(run.plan.delta)}{expected}."


def membership(run: Run) -> str:
    """What the best test of membership reaches."""
    power = at_most(100 * run.plan.attack_power_at_1_percent)
    return (
        f"Of 100 {run.plan.unit}s that took part, the best possible test of membership identifies "
        f"at most {power}, if it wrongly accuses 1 of 100 others; blind guessing identifies 1."
    )


def outsiders(run: Run) -> str:
    """What holds against whoever gets the results only."""
    rows = (row for row in run.plan.epsilon if row["adversary"].startswith("outsider"))
    if (row := next(rows, None)) is None:
        raise NotShownError("the plan has no row for it")
    return (
        "Against anybody who sees only published results, epsilon is at most "
        f"{at_most(row['epsilon'])} at delta {amount(run.plan.delta)}."
    )


def beyond(run: Run) -> str:
    """What happens past the threshold."""
    most = _row(run, run.plan.stated_adversary)["colluding_silos"]
    rows = [row for row in run.plan.epsilon if row["colluding_silos"] > most]
    if not rows:
        return f"More than {several(most, 'colluding silo')} cannot be in this study."
    bounds = ", ".join(
        f"{at_most(row['epsilon'])} against {spoken(row['adversary'])}" for row in rows[:_ROWS]
    )
    return (
        f"The study is planned for at most {several(most, 'colluding silo')}. If more collude, "
        f"epsilon is at most {bounds}."
    )


def unit(run: Run) -> str:
    """What one unit of protection is."""
    patient = run.plan.patient
    if run.plan.unit == "patient" and patient is not None:
        return (
            "The guarantee covers a patient with all records at one silo; a patient with "
            "records at two silos counts twice, and epsilon for both together is at most "
            f"{at_most(patient['in_two_silos'])}."
        )
    if patient is not None:
        return (
            f"The guarantee covers one record. For {patient['who']} epsilon is at most "
            f"{at_most(patient['epsilon'])}."
        )
    return (
        "The guarantee covers one record. The study does not say whether a person may "
        "have several; a person with several is protected less."
    )


def attempts(run: Run) -> str:
    """What was really spent."""
    count, adversary = run.epsilon.attempts, run.epsilon.stated_adversary
    bounds = {row["adversary"]: row["epsilon"] for row in run.epsilon.after_attempts}
    return (
        f"Charged: {several(count, 'attempt')}. After that, epsilon is at most "
        f"{at_most(bounds[adversary])} against {spoken(adversary)}."
    )


def in_all(run: Run) -> str:
    """What the records have spent over all studies."""
    parts = run.silos
    totals = [(part["silo"], part["data_set"]) for part in parts if part["data_set"] is not None]
    if not totals:
        raise NotShownError("no silo states what its records have spent in total")
    spent = "; ".join(
        f"{silo}: at most {at_most(total['epsilon'])} at delta {amount(total['delta'])}"
        for silo, total in totals[:_MANY]
    )
    silent = len(parts) - len(totals)
    rest = f"; {silent} silos do not state it" if silent else ""
    return (
        "According to the silos' signatures, their records have spent in all studies so "
        f"far {spent}{rest}."
    )


def ledgers(run: Run) -> str:
    """Each silo's own word."""
    parts = run.silos
    most = max((part["attempts"] for part in parts), default=0)
    return (
        f"{len(parts)} of {run.plan.silos} silos have signed a final statement about "
        f"this study: none has charged more than {several(most, 'attempt')} to its ledger."
    )


def audit(run: Run) -> str:
    """What an attack on the training found."""
    return audit_words(run.audit)


def replayed(run: Run) -> str:
    """Whether model or answers follow from the messages."""
    if run.asked.model is not None:
        return (
            "Every sum and every step was recomputed from the signed messages; they "
            f"yield the model with the SHA-256 {run.replay.model}."
        )
    files = run.replay.answers
    if not files:
        raise NotShownError("nothing was published")
    return (
        "Every sum was made again from the signed messages, and what is given out follows from "
        f"them: {', '.join(f'{name} (SHA-256 {digest})' for name, digest in files.items())}."
    )


def noise(run: Run) -> str:
    """How much noise is planned, and who adds it."""
    total, left = run.plan.total_noise_multiplier, run.plan.noise_multiplier
    return (
        f"By the plan, each of {run.plan.silos} silos adds its own share of Gaussian "
        f"noise. The sum's noise has a standard deviation of {amount(total)} times the "
        f"most that one {run.plan.unit} can add; {amount(left)} of it remains when "
        f"{spoken(run.plan.stated_adversary)} subtracts what it knows. Nothing shows that "
        "each silo's software did so."
    )


def grid(run: Run) -> str:
    """How rounding and finite arithmetic are counted."""
    certificate = run.plan.certificate
    return (
        f"By the plan, noise is rounded to a grid of {amount(run.plan.grid_step)} and summed as "
        f"integers of {run.plan.word_bits} bits. Rounding and floating point can add at most "
        f"{at_most(certificate['epsilon'])} to epsilon, and epsilon includes this."
    )


def clip(run: Run) -> str:
    """How much one unit can add."""
    training = run.asked.training
    if training is None:
        return (
            "No gradient is clipped: each statistic encodes a record as a bounded vector, and the "
            f"noise is {amount(run.plan.noise_multiplier)} times that bound."
        )
    return (
        f"By the plan, the gradient of one {run.plan.unit} is shortened to the length "
        f"{amount(training.clip_norm)} before it is added. Nothing shows that each silo's "
        "software did so."
    )


def sampling(run: Run) -> str:
    """How batches are drawn, and that this is what is counted."""
    training = run.asked.training
    if training is None:
        return f"All records are in every sum (sampling rate {amount(run.plan.sample_rate)})."
    return (
        f"By the plan, batches are drawn by “{training.sampling}” sampling at the rate "
        f"{amount(run.plan.sample_rate)}, and epsilon is computed for that sampling."
    )


def beside(run: Run) -> str:
    """What is asked besides the main query, in the same epsilon."""
    queries = run.plan.auxiliary_queries
    if not queries:
        return "The study asks nothing else of the records."
    named = ", ".join(sorted({str(query.get("purpose", "a further query")) for query in queries}))
    return f"The same epsilon also covers: {named}."


def cap(run: Run) -> str:
    """A silo's limit over all studies, if the study asks for one."""
    stated = run.asked.privacy.get("cap")
    if stated is None:
        return (
            "The study proposes no cap on what records may spend over all studies; the "
            "evidence does not say whether a silo has set its own."
        )
    return f"The study asks each silo for a cap of {stated:g} over all studies."


def authenticity(run: Run) -> str:
    """Who signed."""
    return (
        f"{amount(run.replay.frames)} messages of {len(run.roster)} parties were checked "
        "again: each is in order and signed with its sender's key in the roster."
    )


def apart(run: Run) -> str:
    """Whether it was a trial in one process."""
    if any(words.startswith(_ONE_PROCESS) for words in run.trust):
        return (
            "According to its aggregator, all parties ran in one process, on a machine that saw "
            "all records: this run is a trial, and whoever ran it has to be trusted."
        )
    return "The aggregator does not say that the parties ran in one process."


def software(run: Run) -> str:
    """Which versions ran."""
    named = ", ".join(f"{name} {number}" for name, number in run.versions.items() if number)
    return f"According to its aggregator, it was made with {named}."


def model_digest(run: Run) -> str:
    """By which digest the model is known."""
    digest = run.model
    return f"The model's file has the SHA-256 {digest}." if digest else "There is no model's file."


def enclaves(run: Run) -> str:
    """Whether epsilon rests on protected hardware."""
    if run.asked.parties.trust == "tee":
        return "The stated epsilon relies on protected hardware at the silos."
    nodes = run.plan.compute_nodes
    one_of = " Of each silo's compute nodes, one must not collude." if nodes else ""
    return (
        f"The stated epsilon is against {spoken(run.plan.stated_adversary)} and relies on "
        f"no protected hardware.{one_of}"
    )


def never(_: Run) -> str:
    """What no member of the evidence is about."""
    raise NotShownError("no part of the evidence is about it")
