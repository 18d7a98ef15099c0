"""Sentences about what is promised, spent and shown, each from the members that it asks for.

A sentence says what was found, in words that need no mathematics; it says nothing of the law.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

from hubbub.core.number_format import amount, at_least, at_most, chance, several
from hubbub.core.planning.plan_rows import spoken
from hubbub.desk.report.dossier.facts import NotShownError, Reader

_ONE_PROCESS = "that whoever ran the study could be trusted by all: every party ran in one process"
_MANY = 12  # names that are read at once


def against_stated(one: Reader) -> str:
    """The promise."""
    epsilon = row_of(one, one("plan.stated_adversary"))["epsilon"]
    delta, relation = one("plan.delta"), one("plan.relation")
    return (
        f"Against {spoken(one('plan.stated_adversary'))}, epsilon is at most {at_most(epsilon)} at "
        f"delta {amount(delta)} (relation: {relation}), if the study is carried out as planned."
    )


def odds(one: Reader) -> str:
    """Epsilon as a factor of odds."""
    epsilon = row_of(one, one("plan.stated_adversary"))["epsilon"]
    if epsilon is None:
        raise NotShownError("epsilon is past what can be promised")
    return (
        f"The odds between two guesses about one {one('plan.unit')} change by at most a factor of "
        f"{at_most(exp(epsilon))} through everything that this adversary sees, but for a "
        f"probability of {chance(one('plan.delta'))}."
    )


def delta(one: Reader) -> str:
    """How likely the promise fails, beside how many could be hit."""
    stated = one("asked.data.records")
    expected = (
        f"; times the {amount(stated)} records that the study states, that is "
        f"{at_most(stated * one('plan.delta'))}"
        if stated
        else ""
    )
    return f"Delta is {amount(one('plan.delta'))}{expected}."


def membership(one: Reader) -> str:
    """What the best test of membership reaches."""
    power = at_most(100 * one("plan.attack_power_at_1_percent"))
    return (
        f"Of 100 {one('plan.unit')}s that were used, the best possible test of membership finds at "
        f"most {power}, where it wrongly accuses 1 of 100 others; blind guessing finds 1."
    )


def outsiders(one: Reader) -> str:
    """What holds against whoever gets the results only."""
    row = next(
        (row for row in one("plan.epsilon") if row["adversary"].startswith("outsider")), None
    )
    if row is None:
        raise NotShownError("the plan has no row for it")
    return (
        f"Against whoever sees only what is published, epsilon is at most {at_most(row['epsilon'])}"
        f" at delta {amount(one('plan.delta'))}."
    )


def beyond(one: Reader) -> str:
    """What happens past the threshold."""
    stated = row_of(one, one("plan.stated_adversary"))["colluding_silos"]
    rows = [row for row in one("plan.epsilon") if row["colluding_silos"] > stated]
    if not rows:
        return f"No adversary with more than {stated} colluding silos is possible in this study."
    said = ", ".join(
        f"{at_most(row['epsilon'])} against the {row['adversary']}" for row in rows[:4]
    )
    return (
        f"The study is planned for at most {stated} of the silos to collude. Where more do, "
        f"epsilon is at most {said}."
    )


def unit(one: Reader) -> str:
    """What one unit of protection is."""
    patient = one("plan.patient")
    if one("plan.unit") == "patient":
        return (
            "One unit is a patient with all records at one silo; a patient of two silos is two "
            f"units, for whom epsilon is at most {at_most(patient['in_two_silos'])} together."
        )
    if patient is not None:
        return (
            f"One unit is one record. For {patient['who']} epsilon is at most "
            f"{at_most(patient['epsilon'])}."
        )
    return (
        "One unit is one record. The study does not say that a person may have several; a person "
        "with several records is protected less."
    )


def attempts(one: Reader) -> str:
    """What was really spent."""
    counted = one("epsilon.attempts")
    adversary = one("epsilon.stated_adversary")
    row = {row["adversary"]: row for row in one("epsilon.after_attempts")}[adversary]
    charged = f"{several(counted, 'sum')} {'was' if counted == 1 else 'were'} charged"
    return (
        f"{charged}; after that epsilon is at most "
        f"{at_most(row['epsilon'])} against the {adversary}."
    )


def in_all(one: Reader) -> str:
    """What the records have spent over all studies."""
    parts = one("silos")
    told = [part for part in parts if part["data_set"] is not None]
    if not told:
        raise NotShownError("no silo tells what its records have spent in all")
    said = "; ".join(
        f"{part['silo']}: at most {at_most(part['data_set']['epsilon'])} at delta "
        f"{amount(part['data_set']['delta'])}"
        for part in told[:_MANY]
    )
    silent = len(parts) - len(told)
    rest = f"; {silent} silos do not tell" if silent else ""
    return (
        f"By what silos have signed, their records have spent in all studies so far {said}{rest}."
    )


def ledgers(one: Reader) -> str:
    """Each silo's own word."""
    said = one("silos")
    final = [part["silo"] for part in said if part.get("closed") is True]
    most = max((part["attempts"] for part in said), default=0)
    return (
        f"{len(final)} of {one('plan.silos')} silos have signed a last word about this study, by "
        f"which none has charged more than {several(most, 'sum')} to its ledger."
    )


def audit(one: Reader) -> str:
    """What an attack on the training found."""
    result = one("audit")
    return (
        f"An audit played {amount(result['runs'])} trainings with {amount(result['canaries'])} "
        f"made-up records each and tried to tell which were used: it showed an epsilon of at least "
        f"{at_least(result['epsilon_lower'])}, where the sums may tell "
        f"{at_most(result['epsilon_audited'])}. A small number proves nothing; a larger one than "
        "that would have shown a defect."
    )


def replayed(one: Reader) -> str:
    """Whether model or answers follow from the messages."""
    if one("asked.model") is None:
        files = ", ".join(f"{name} (SHA-256 {digest})" for name, digest in _answers(one))
        return (
            "Every sum was made again from the signed messages, and what is given out follows "
            f"from them: {files}."
        )
    return (
        "Every sum and every step was made again from the signed messages, and the model with the "
        f"SHA-256 {one('replay.model')} is what they give."
    )


def _answers(one: Reader) -> list[tuple[str, str]]:
    files = list(one("replay.answers").items())
    if not files:
        raise NotShownError("nothing was given out")
    return files


def noise(one: Reader) -> str:
    """How much noise is planned, and who adds it."""
    total, left = one("plan.total_noise_multiplier"), one("plan.noise_multiplier")
    return (
        f"By the plan each of {one('plan.silos')} silos adds its own share of Gaussian noise; the "
        f"sum of all has a standard deviation of {amount(total)} times the most that one "
        f"{one('plan.unit')} can add, of which {amount(left)} is left where "
        f"{spoken(one('plan.stated_adversary'))} takes off what it knows. That each silo's "
        "software did so, nothing shows."
    )


def grid(one: Reader) -> str:
    """How rounding and finite arithmetic are counted."""
    certificate = one("plan.certificate")
    return (
        f"By the plan noise is rounded to a grid of {amount(one('plan.grid_step'))} and summed as "
        f"integers of {one('plan.word_bits')} bits; what rounding and floating point can add to "
        f"epsilon is bounded by {at_most(certificate['epsilon'])} and is part of it."
    )


def clip(one: Reader) -> str:
    """How much one unit can add."""
    training = one("asked.training")
    if training is None:
        return (
            "No gradient is clipped: each statistic encodes a record as a bounded vector, and its "
            f"noise is {amount(one('plan.noise_multiplier'))} times that bound."
        )
    return (
        f"By the plan the gradient of one {one('plan.unit')} is shortened to the length "
        f"{amount(one('asked.training.clip_norm'))} before it is added. That each silo's software "
        "did so, nothing shows."
    )


def sampling(one: Reader) -> str:
    """How batches are drawn, and that this is what is counted."""
    if one("asked.training") is None:
        return f"All records are in every sum (sampling rate {amount(one('plan.sample_rate'))})."
    return (
        f"By the plan batches are drawn by “{one('asked.training.sampling')}” sampling at the rate "
        f"{amount(one('plan.sample_rate'))}, and epsilon is computed for that way of sampling."
    )


def beside(one: Reader) -> str:
    """What is asked besides the main query, in the same epsilon."""
    asked = one("plan.auxiliary_queries")
    if not asked:
        return "Nothing else is asked of the records in this study."
    named = ", ".join(sorted({str(query.get("purpose", "a further query")) for query in asked}))
    return f"The same epsilon covers what is asked besides: {named}."


def cap(one: Reader) -> str:
    """A silo's limit over all studies, if the study asks for one."""
    stated = one("asked.privacy").get("cap")
    if stated is None:
        return (
            "The study asks for no cap on what records may spend over all studies; whether a silo "
            "has set one by itself, it does not say."
        )
    return f"The study asks each silo for a cap of {stated} over all studies."


def authenticity(one: Reader) -> str:
    """Who signed."""
    return (
        f"{amount(one('replay.frames'))} messages of {len(one('roster'))} parties were read again: "
        "each is signed with its sender's key of the roster, and in order."
    )


def apart(one: Reader) -> str:
    """Whether it was a trial in one process."""
    if any(words.startswith(_ONE_PROCESS) for words in one("trust")):
        return (
            "By its aggregator's word all parties ran in one process, on a machine that saw all "
            "records: this run is a trial, and whoever ran it has to be trusted."
        )
    return "Its aggregator does not say that parties ran in one process."


def software(one: Reader) -> str:
    """Which versions ran."""
    versions = one("versions")
    said = ", ".join(f"{name} {number}" for name, number in versions.items() if number)
    return f"By its aggregator's word it was made with {said}."


def model_digest(one: Reader) -> str:
    """By which digest the model is known."""
    digest = one("model")
    return f"The model's file has the SHA-256 {digest}." if digest else "There is no model's file."


def enclaves(one: Reader) -> str:
    """Whether epsilon rests on protected hardware."""
    if one("asked.parties.trust") == "tee":
        return "The stated epsilon believes in protected hardware at the silos."
    nodes = one("plan.compute_nodes")
    one_of = " It needs one compute node of each silo that does not collude." if nodes else ""
    return (
        f"The stated epsilon is against {spoken(one('plan.stated_adversary'))} and believes in no "
        f"protected hardware.{one_of}"
    )


def row_of(one: Reader, adversary: str) -> dict[str, Any]:
    """The plan's row of an adversary; NotShownError if there is none."""
    chosen: dict[str, Any] | None = next(
        (row for row in one("plan.epsilon") if row["adversary"] == adversary), None
    )
    if chosen is None:
        raise NotShownError("the plan has no row for it")
    return chosen


def never(_: Reader) -> str:
    """What no member of the evidence is about."""
    raise NotShownError("no member of the evidence is about it")


# Sentences about the study: what it asks, of whose records, and what leaves a silo for it.
#
# As in `statements.py`, each is made from the members that it asks for.


def study(one: Reader) -> str:
    """Which study this is."""
    return f"The study “{one('study.name')}” has the id {one('study.id')}."


def what_is_done(one: Reader) -> str:
    """A model is trained, or questions are answered."""
    if one("asked.model") is None:
        return "No model is trained: what is given out follows from noisy sums over all silos."
    return (
        f"One model of the kind “{one('asked.model.kind')}” with {amount(one('plan.dimension'))} "
        f"parameters is trained in {amount(one('plan.steps'))} steps."
    )


def questions(one: Reader) -> str:
    """Which statistics are asked, of which columns."""
    asked = one("asked.statistics")
    if asked is None:
        return "The study asks for no statistics."
    named = "; ".join(
        f"“{statistic['name']}” ({statistic['kind']}{_of_columns(statistic)})"
        for statistic in asked["statistics"]
    )
    return f"The study asks for {several(len(asked['statistics']), 'statistic')}: {named}."


def _of_columns(statistic: Mapping[str, Any]) -> str:
    """A table lists its columns; a cross table has one down and one across."""
    names = statistic.get("columns", ())
    names = (statistic["rows"], names) if isinstance(names, str) else names
    return f" of {', '.join(names)}" if names else ""


def parties(one: Reader) -> str:
    """Who takes part."""
    names = [party["name"] for party in one("roster") if party["role"] == "silo"]
    more = f" and {len(names) - _MANY} others" if len(names) > _MANY else ""
    nodes = one("plan.compute_nodes")
    others = f"; {several(nodes, 'compute node')} without records too" if nodes else ""
    return (
        f"{len(names)} silos hold records: {', '.join(names[:_MANY])}{more}. An aggregator takes "
        f"part besides, which adds up what silos send{others}."
    )


def records(one: Reader) -> str:
    """How many records, as far as it is public."""
    stated, capacity = one("asked.data.records"), one("asked.data.capacity")
    total = f"{amount(stated)} records of all silos together" if stated else "no number of records"
    most = f", at most {', '.join(map(str, capacity[:_MANY]))} by silo" if capacity else ""
    return f"The study states {total}{most}; it is public and was not counted here."


def columns(one: Reader) -> str:
    """Which columns are read."""
    named = [column["name"] for column in one("asked.data.columns")]
    target = one("asked.data.target")
    learned = f"its target is “{target}”" if target else "it states no target"
    if not named:
        return (
            f"The study declares no columns of its own: they are those of its source, "
            f"“{one('asked.data.source') or one('asked.data.files')}”; {learned}."
        )
    return f"The study reads the columns {', '.join(named)}; {learned}."


def what_leaves(one: Reader) -> str:
    """What a silo sends."""
    how = "clipped" if one("asked.training") is not None else "of bounded length"
    return (
        f"In each of {several(one('plan.steps'), 'step')} a silo sends one vector of "
        f"{amount(one('plan.dimension'))} numbers of {one('plan.word_bits')} bits; by the plan "
        f"what each record adds is {how}, and the sum is noised and masked before it leaves."
    )


def code(one: Reader) -> str:
    """Whether the study runs code of its own."""
    source, model = str(one("asked.data.source")), one("asked.model")
    kind = "" if model is None else str(model["kind"])
    own = [name for name in (source, kind) if name.startswith("python:")]
    if own:
        return f"The study runs code of its own at each silo: {', '.join(own)}."
    return "The study runs no code of its own: model and data source are hubbub's."
