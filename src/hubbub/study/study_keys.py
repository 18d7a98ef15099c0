"""All tables of a study with their keys: what docs/study.md shows, and the JSON schema of a file.

The keys themselves stand where they are read; this file only knows in which tables they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub import estimation
from hubbub.settings import Key, Keys, keys_of, listed, one_of, page, schema
from hubbub.study.asked_statistics import AskedStatistics
from hubbub.study.attested_roles import Attestation, AttestedRole
from hubbub.study.coefficients import Coefficients
from hubbub.study.data import Data, Standardise
from hubbub.study.model import Frozen, Model
from hubbub.study.omop.omop_keys import Happening, Omop, OmopColumn
from hubbub.study.parties import Parties
from hubbub.study.privacy import Privacy
from hubbub.study.study_head import HEAD
from hubbub.study.target import TARGET
from hubbub.study.training import OPTIMIZER, Evaluate, Training
from hubbub.study.validation import Validation
from hubbub.synthesis import AskedSynthesis
from hubbub.tabular import Column

NAME = "NAME"  # in place of any name that a user chooses


def tables() -> dict[str, Keys]:
    """The keys of each table, by its dotted name, in the order of a page."""
    return {
        "study": listed(HEAD),
        "parties": keys_of(Parties),
        "data": keys_of(Data),
        "data.target": listed(TARGET),
        f"data.columns.{NAME}": keys_of(Column),
        "data.standardise": keys_of(Standardise),
        "data.omop": keys_of(Omop),
        "data.omop.index": keys_of(Happening),
        "data.omop.outcome": keys_of(Happening),
        f"data.omop.columns.{NAME}": keys_of(OmopColumn),
        "model": keys_of(Model),
        "model.frozen": keys_of(Frozen),
        "training": keys_of(Training),
        "training.optimizer": listed(OPTIMIZER),
        "training.evaluate": keys_of(Evaluate),
        "statistics": keys_of(AskedStatistics),
        f"statistics.{NAME}": listed(_statistic_keys()),
        "synthetic": keys_of(AskedSynthesis),
        "validation": keys_of(Validation),
        "coefficients": keys_of(Coefficients),
        "privacy": keys_of(Privacy),
        "attestation": keys_of(Attestation),
        "attestation.silo": keys_of(AttestedRole),
    }


def pages() -> dict[str, str]:
    """The table of keys of each table, in Markdown."""
    return {name: page(keys) for name, keys in tables().items()}


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a study's file, for editors and other programs.

    Whatever it refuses is no study. What it lets pass may still be none: keys that go against each
    other, and what is asked of which columns, `Study.load` refuses.
    """
    known = tables()
    role = schema(known["attestation.silo"])
    parts = {
        "study": schema(known["study"]),
        "parties": schema(known["parties"]),
        "data": _data_schema(known),
        "model": schema(known["model"], frozen=schema(known["model.frozen"])),
        "training": schema(
            known["training"],
            optimizer=schema(known["training.optimizer"]),
            evaluate=schema(known["training.evaluate"]),
        ),
        "statistics": _statistics_schema(known),
        "synthetic": schema(known["synthetic"]) | {"required": []},
        "validation": schema(known["validation"]),
        "coefficients": schema(known["coefficients"]),
        "privacy": schema(known["privacy"]),
        "attestation": schema(known["attestation"], aggregator=role, node=role, silo=role),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A study of hubbub",
        "type": "object",
        "properties": parts,
        "required": ["study", "parties", "data", "privacy"],
        "additionalProperties": False,
    }


def _data_schema(known: Mapping[str, Keys]) -> dict[str, Any]:
    """Of `[data]`: the target may be a name or a table, columns have any names."""
    target = {
        "type": ["string", "object"],
        "anyOf": [{"type": "string"}, _open(known["data.target"])],
    }
    each = schema(known[f"data.columns.{NAME}"])
    data_schema = schema(
        known["data"],
        target=target,
        columns={"additionalProperties": each},
        standardise=schema(known["data.standardise"]),
        omop=schema(
            known["data.omop"],
            index=schema(known["data.omop.index"]),
            outcome=schema(known["data.omop.outcome"]),
            columns={"additionalProperties": schema(known[f"data.omop.columns.{NAME}"])},
        ),
    )
    return data_schema | {"required": []}  # a built-in source has a target of its own


def _statistics_schema(known: Mapping[str, Keys]) -> dict[str, Any]:
    """Of `[statistics]`: what is no key is a statistic; one with keys that nobody notes has any."""
    noted = [kind for kind, one in estimation.KINDS.items() if _notes().keys() >= {*one.keys}]
    kinds = {kind: listed(_statistic_keys(kind)) for kind in noted}
    each = [schema(keys, kind={"const": kind}) for kind, keys in kinds.items()]
    own = {"properties": {"kind": {"not": {"enum": list(kinds)}}}, "required": ["kind"]}
    statistics_schema = schema(known["statistics"])
    return statistics_schema | {"additionalProperties": {"type": "object", "anyOf": [*each, own]}}


def _statistic_keys(kind: str = "") -> dict[str, Key]:
    """The keys of one kind of statistic, or of all."""
    notes = _notes()
    own = estimation.KINDS[kind].keys if kind else notes
    kinds = one_of(*estimation.KINDS, says="What is asked.")
    return {"kind": kinds, **estimation.COMMON, **{key: notes[key] for key in own}}


def _notes() -> dict[str, Key]:
    """What is noted of keys: of those that several kinds have, and of each kind's own."""
    own = (note for kind in estimation.KINDS.values() for note in kind.notes.items())
    return {**dict(own), **estimation.KEYS}


def _open(keys: Keys) -> dict[str, Any]:
    """A table's schema in which only the kind must be there."""
    return schema(keys) | {"required": ["kind"]}
