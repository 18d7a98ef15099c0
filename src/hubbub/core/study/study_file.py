"""The table `[study]`: the name, what is kept of a run, and which code all parties agree on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from hubbub.core.errors import StudyError
from hubbub.core.settings import (
    NAME,
    Keys,
    Section,
    key_of,
    keys_of,
    listed,
    one_of,
    page,
    schema,
    shortened,
    shown,
    stated,
    table,
    text,
)
from hubbub.core.study import source as import_path
from hubbub.core.study.ask import asks
from hubbub.core.study.attested_roles import Attestation, AttestedRole
from hubbub.core.study.data import Data, Standardise
from hubbub.core.study.parties import Parties, Privacy, numbered
from hubbub.core.study.source import table_source, table_sources
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.target import TARGET, target_table

if TYPE_CHECKING:
    from hubbub.core.study.study import Study


HASHES = "hashes"  # what a run keeps of masked vectors unless the study says otherwise
_SHA256 = re.compile(r"[0-9a-f]{64}")
HEAD = {
    "name": text("Part of the study id.", "text, 1 to 200 characters"),
    "transcript": one_of(
        "hashes",
        "full",
        says='With `"full"` a run keeps masked vectors, and `hubbub verify` can [make every sum '
        "again](evidence.md).",
        default='`"hashes"`',
    ),
    "code": table(
        "SHA-256 of the [source of each module](data.md#your-own-function) that the study names. "
        "Demanded for `model.loss` and `training.metrics` among machines.",
        'table from `"python:module:name"` to 64 digits 0–9, a–f',
        default="none",
    ),
}


def head_from(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The table `[study]`: the name, what is kept of a run, and which code all parties agree on."""
    section = Section("study", stated, tuple(HEAD))
    name = HEAD["name"].read(section, "name", None)
    if not 1 <= len(name) <= 200:
        raise section.refusal("name", "1 to 200 printable characters", "choose another name")
    transcript = HEAD["transcript"].read(section, "transcript", HASHES)
    return {"name": name, "transcript": transcript, "code": _code(section)}


def _code(section: Section) -> tuple[tuple[str, str], ...]:
    """The hashes of code by its name."""
    stated = section.table("code") if "code" in section else {}
    hashes = (isinstance(one, str) and _SHA256.fullmatch(one) for one in stated.values())
    if not all(map(import_path.is_own, stated)) or not all(hashes):
        wanted = 'a table from "python:module:name" to 64 small hexadecimal digits'
        raise section.refusal("code", wanted, "write what sha256sum prints of the module's file")
    return tuple(sorted(stated.items()))


# All tables of a study with their keys: what docs/study.md shows, and the JSON schema of a file.
#
# The keys themselves stand where they are read; this file only knows in which tables they are.


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


# A study written anew as a file, from its settings alone.
#
# Only what differs from a default is written: some keys are refused beside others even with the
# value
# that they have anyway. This file knows in which form the settings are read back, not what they
# mean.


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


# Why a study file could not be read, in words.


def syntax_fault(error: ValueError, text: str) -> str:
    """Why a text could not be read as TOML."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"a syntax error: {shortened(str(error), 200)}"
    if "digits" not in str(error):
        return str(error)
    # Python refuses to read whole numbers of thousands of digits.
    digits = [max(map(len, re.findall(r"\d+", line)), default=0) for line in text.split("\n")]
    return f"too long a number in line {1 + digits.index(max(digits))}"


def read_fault(error: Exception) -> str:
    """Why a file could not be read."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return "it is not a path"


def file_remedy(path: Path) -> str:
    """What to do about a file that could not be read: which one beside it may be meant."""
    names: list[str] = []
    with suppress(OSError, ValueError):
        names = [one.name for one in path.parent.iterdir() if one.suffix == ".toml"]
    close = [name for name in get_close_matches(path.name, names, n=1) if name != path.name]
    return f"did you mean {path.with_name(close[0])}?" if close else "check the path"


# What no honest study needs: endless texts and numbers, unprintable characters, deep nesting.
#
# They are refused before anything else is looked at, so that every later sentence is short and can
# be
# shown on a terminal, and so that no later program meets a number that it cannot hold. What would
# take long to parse is refused before that, by `hubbub.core.disk`. This file knows no key of a
# study.

_MOST_LEVELS, _MOST_KEY, _MOST_TEXT, _MOST_WHOLE = 8, 100, 1000, 2**63 - 1


def check_size(table: Mapping[str, Any], long_texts: Mapping[str, int]) -> None:
    """Refuse keys, texts, whole numbers and depths that could spoil a later sentence or program.

    Args:
        table: a study's file.
        long_texts: by dotted name the keys whose texts may have several lines, and how many letters
            they may have.
    """
    left: list[tuple[str, Any, int]] = [("", table, 1)]
    while left:  # not a recursion, which a deep table would exhaust
        path, value, level = left.pop()
        _check_value(path, value, long_texts)
        if isinstance(value, Mapping | list) and level > _MOST_LEVELS:
            raise StudyError(
                f"expected at most {_MOST_LEVELS} levels of tables and lists, "
                f"got more in {path}; remove it"
            )
        left += [(inner, entry, level + 1) for inner, entry in _entries(path, value)]


def _check_value(path: str, value: object, long_texts: Mapping[str, int]) -> None:
    """Refuse a number or a text that is too long."""
    if isinstance(value, int) and abs(value) > _MOST_WHOLE:
        raise StudyError(
            f"expected {path} to fit into 64 bits, got a number of {value.bit_length()} bits; "
            "choose a smaller one"
        )
    if not isinstance(value, str):
        return
    most = long_texts.get(path, _MOST_TEXT)
    line = value.replace("\n", " ") if path in long_texts else value
    if not _is_printable(line, most):
        raise StudyError(
            f"expected {path} to be at most {most} printable characters, "
            f"got {shown(value)}; shorten or correct it"
        )


def _entries(path: str, value: object) -> list[tuple[str, Any]]:
    """What a table or a list holds, each with its dotted name."""
    if isinstance(value, Mapping):
        return [(_path(path, key), inner) for key, inner in value.items()]
    return [(path, inner) for inner in value] if isinstance(value, list) else []


def _path(path: str, key: object) -> str:
    """The dotted name of a key, which must be short and printable."""
    if not isinstance(key, str) or not _is_printable(key, _MOST_KEY):
        raise StudyError(
            f"expected keys of at most {_MOST_KEY} printable characters in "
            f"{f'[{path}]' if path else 'the study'}, got {shown(key)}; rename or remove it"
        )
    return f"{path}.{key_of(key)}" if path else key_of(key)


def _is_printable(text: str, longest: int) -> bool:
    """One line without control characters, not too long."""
    return len(text) <= longest and text.isprintable()
