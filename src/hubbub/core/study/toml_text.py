"""A study written anew as a file, from its settings alone.

Only what differs from a default is written: some keys are refused beside others even with the value
that they have anyway. This file knows in which form the settings are read back, not what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomli_w

from hubbub.core.settings import stated
from hubbub.core.study.attested_roles import AttestedRole
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Parties, numbered
from hubbub.core.study.source import table_source
from hubbub.core.study.study_head import HASHES
from hubbub.core.study.target import target_table

if TYPE_CHECKING:
    from hubbub.core.study.study import Study


def text_of(study: Study) -> str:
    """The text of a study's file."""
    head: dict[str, Any] = {"name": study.name}
    if study.transcript != HASHES:
        head["transcript"] = study.transcript
    if study.code:
        head["code"] = dict(study.code)
    tables = {"study": head, "parties": _parties(study.parties), "data": _data(study.data)}
    for ask in study.asks:
        tables |= ask.written(study)
    tables["privacy"] = stated(study.privacy)
    if study.attestation is not None:
        roles = study.attestation.asked().items()
        tables["attestation"] = {role: _attested(asked) for role, asked in roles}
    return tomli_w.dumps(tables)


def _parties(parties: Parties) -> dict[str, Any]:
    table = stated(parties)
    if parties.names == numbered(parties.silos):
        del table["names"]
        return {"silos": parties.silos, **table}
    return table


def _data(data: Data) -> dict[str, Any]:
    """The table `[data]`, whose target, columns and source have forms of their own."""
    table = stated(data)
    for key in ("target", "request"):
        table.pop(key, None)
    if data.target:  # files have no default for it
        table["target"] = data.target
    if data.outcome is not None:
        del table["outcome"]
        table["target"] = target_table(data.target, data.outcome)
    if (source := table_source(data.source)) is not None:
        table |= source.written(data.request)
    if data.columns:
        columns = map(stated, data.columns)
        table["columns"] = {column.pop("name"): column for column in columns}
    return table


def _attested(asked: AttestedRole) -> dict[str, Any]:
    """What a role must show, as the table that it is read from."""
    differs = stated(asked)
    return {name: value for name, value in asked.to_dict().items() if name in differs}
