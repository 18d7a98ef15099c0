"""Sentences about the study: what it asks, of whose records, and what leaves a silo for it.

As in `statements.py`, each is made from the members that it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.number_format import amount, several
from hubbub.desk.report.dossier.facts import Reader

_MANY = 12  # names that are read at once


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
