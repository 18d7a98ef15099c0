"""A study written anew as a file, from its settings alone.

Only what differs from a default is written: some keys are refused beside others even with the value
that they have anyway. This file knows in which form the settings are read back, not what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import tomli_w

from hubbub import tabular
from hubbub.study import (
    attested_roles,
    data,
    model,
    parties,
    privacy,
    target,
    training,
)
from hubbub.study.omop.omop_keys import omop_table
from hubbub.study.study_part import StudyPart

Settings = parties.Parties | data.Data | model.Model | training.Training | privacy.Privacy


def written(
    head: Mapping[str, Any],
    tables: Mapping[str, Settings],
    asked: Mapping[str, StudyPart | None],
    attestation: attested_roles.Attestation | None = None,
) -> str:
    """The text of a study file with this table `[study]` and these others."""
    stated = {title: _table(settings) for title, settings in tables.items()}
    stated |= {title: one.to_table() for title, one in asked.items() if one is not None}
    if attestation is not None:
        stated["attestation"] = {
            role: _attested(asked) for role, asked in attestation.asked().items()
        }
    return tomli_w.dumps({"study": dict(head), **stated})


def _table(settings: Settings) -> dict[str, Any]:
    """The settings as the table that they are read from."""
    table = _stated(settings)
    if isinstance(settings, parties.Parties) and settings.names == parties.numbered(settings.silos):
        del table["names"]
        return {"silos": settings.silos, **table}
    if isinstance(settings, data.Data):
        table.pop("target", None)
        if settings.target:  # files have no default for it
            table["target"] = settings.target
        if settings.outcome is not None:
            table["target"] = target.target_table(settings.target, table.pop("outcome"))
        if settings.omop is not None:
            table["omop"] = omop_table(settings.omop)
        if settings.columns:
            table["columns"] = {column.name: _column(column) for column in settings.columns}
    pairs = {key: dict(table[key]) for key in ("options", "tables", "optimizer") if key in table}
    inner = ("evaluate", "standardise", "frozen")
    extras = {key: _stated(table[key]) for key in inner if key in table}
    return table | pairs | extras


def _attested(asked: attested_roles.AttestedRole) -> dict[str, Any]:
    """What a role must show, as the table that it is read from."""
    differs = [field.name for field in fields(asked) if getattr(asked, field.name) != field.default]
    return {name: value for name, value in asked.to_dict().items() if name in differs}


def _column(column: tabular.Column) -> dict[str, Any]:
    """A column as the table that is its entry in data.columns."""
    table = _stated(column)
    del table["name"]
    return table


def _stated(
    settings: Settings | tabular.Column | training.Evaluate | data.Standardise,
) -> dict[str, Any]:
    """What differs from the defaults, by name."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    defaults = {field.name: field.default for field in fields(settings)}
    return {name: value for name, value in values.items() if value != defaults[name]}
