"""All tables of a study with their keys: what docs/study.md shows, and the JSON schema of a file.

The keys themselves stand where they are read; this file only knows in which tables they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.settings import NAME, Keys, keys_of, listed, page, schema
from hubbub.core.study.ask import asks
from hubbub.core.study.attested_roles import Attestation, AttestedRole
from hubbub.core.study.data import Data, Standardise
from hubbub.core.study.parties import Parties
from hubbub.core.study.privacy import Privacy
from hubbub.core.study.source import table_sources
from hubbub.core.study.study_head import HEAD
from hubbub.core.study.target import TARGET
from hubbub.core.tabular.column import Column


def tables() -> dict[str, Keys]:
    """The keys of each table, by its dotted name, in the order of a page."""
    asked = {name: keys for ask in asks() for name, keys in ask.keys().items()}
    own = {name: key for source in table_sources() for name, key in source.own_keys().items()}
    inner = {
        f"data.{name}": keys
        for source in table_sources()
        for name, keys in source.inner_keys().items()
    }
    return {
        "study": listed(HEAD),
        "parties": keys_of(Parties),
        "data": keys_of(Data) | own,
        "data.target": listed(TARGET),
        f"data.columns.{NAME}": keys_of(Column),
        "data.standardise": keys_of(Standardise),
        **inner,
        **asked,
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
        **{name: part for ask in asks() for name, part in ask.schemas().items()},
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
        # only the kind must be there
        "anyOf": [{"type": "string"}, schema(known["data.target"]) | {"required": ["kind"]}],
    }
    each = schema(known[f"data.columns.{NAME}"])
    data_schema = schema(
        known["data"],
        target=target,
        columns={"additionalProperties": each},
        standardise=schema(known["data.standardise"]),
        **{k: v for source in table_sources() for k, v in source.inner_schemas().items()},
    )
    return data_schema | {"required": []}  # a built-in source has a target of its own
