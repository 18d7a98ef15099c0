"""The file of a study: its head, all its keys, how it is written anew, what is wrong with it.

What no honest study needs (endless texts and numbers, unprintable characters, deep nesting) is
refused before anything else is looked at, so that every later sentence is short and can be shown on
a terminal, and no later program meets a number that it cannot hold. What would take long to parse
is refused before that, by `hubbub.core.disk`.
"""

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
from hubbub.core.study.ask import asks
from hubbub.core.study.attested_roles import Attestation, AttestedRole
from hubbub.core.study.data import Data, Standardise, source_keys
from hubbub.core.study.parties import Parties, Privacy, numbered
from hubbub.core.study.source import is_own, table_source, table_sources
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.target import TARGET, target_table

if TYPE_CHECKING:
    from hubbub.core.study.study import Study


_MOST_LEVELS, _MOST_KEY, _MOST_TEXT, _MOST_WHOLE = 8, 100, 1000, 2**63 - 1
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


def head_from(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table `[study]`: the name, what is kept of a run, and which code all parties agree on."""
    section = Section("study", table, tuple(HEAD))
    name = HEAD["name"].read(section, "name", None)
    if not 1 <= len(name) <= 200:
        raise section.refusal("name", "1 to 200 printable characters", "choose another name")
    transcript = HEAD["transcript"].read(section, "transcript", HASHES)
    code = section.table("code") if "code" in section else {}
    hashed = all(isinstance(at, str) and _SHA256.fullmatch(at) for at in code.values())
    if not hashed or not all(map(is_own, code)):
        wanted = 'a table from "python:module:name" to 64 small hexadecimal digits'
        raise section.refusal("code", wanted, "write what sha256sum prints of the module's file")
    return {"name": name, "transcript": transcript, "code": tuple(sorted(code.items()))}


def tables() -> dict[str, Keys]:
    """The keys of each table, by its dotted name, in the order of a page."""
    sources = table_sources()
    inner = {f"data.{k}": keys for source in sources for k, keys in source.inner_keys().items()}
    return {
        "study": listed(HEAD),
        "parties": keys_of(Parties),
        "data": keys_of(Data) | source_keys(),
        "data.target": listed(TARGET),
        f"data.columns.{NAME}": keys_of(Column),
        "data.standardise": keys_of(Standardise),
        **inner,
        **{name: keys for ask in asks() for name, keys in ask.keys().items()},
        "privacy": keys_of(Privacy),
        "attestation": keys_of(Attestation),
        "attestation.silo": keys_of(AttestedRole),
    }


def pages() -> dict[str, str]:
    """The table of keys of each table, in Markdown."""
    return {name: page(keys) for name, keys in tables().items()}


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a study's file, for editors and other programs.

    Whatever it refuses is no study. What it lets pass `Study.load` may still refuse.
    """
    keys = tables()
    role = schema(keys["attestation.silo"])
    data = schema(
        keys["data"],
        target={
            "type": ["string", "object"],
            # of the table only the kind must be there
            "anyOf": [{"type": "string"}, schema(keys["data.target"]) | {"required": ["kind"]}],
        },
        columns={"additionalProperties": schema(keys[f"data.columns.{NAME}"])},
        standardise=schema(keys["data.standardise"]),
        **{k: v for source in table_sources() for k, v in source.inner_schemas().items()},
    )
    parts = {
        "study": schema(keys["study"]),
        "parties": schema(keys["parties"]),
        "data": data | {"required": []},  # a built-in source has a target of its own
        **{name: part for ask in asks() for name, part in ask.schemas().items()},
        "privacy": schema(keys["privacy"]),
        "attestation": schema(keys["attestation"], aggregator=role, node=role, silo=role),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A study of hubbub",
        "type": "object",
        "properties": parts,
        "required": ["study", "parties", "data", "privacy"],
        "additionalProperties": False,
    }


def text_of(study: Study) -> str:
    """The text of a study's file, from its settings alone.

    What is at its default is left out: some keys are refused beside others whatever they say.
    """
    head: dict[str, Any] = {"name": study.name}
    if study.transcript != HASHES:
        head["transcript"] = study.transcript
    if study.code:
        head["code"] = dict(study.code)
    parties = stated(study.parties)
    if study.parties.names == numbered(study.parties.silos):
        del parties["names"]
        parties = {"silos": study.parties.silos, **parties}
    tables = {"study": head, "parties": parties, "data": _data_table(study.data)}
    for ask in study.asks:
        tables |= ask.written(study)
    tables["privacy"] = stated(study.privacy)
    if study.attestation is not None:
        tables["attestation"] = {
            name: {key: value for key, value in role.to_dict().items() if key in stated(role)}
            for name, role in study.attestation.asked().items()
        }
    return tomli_w.dumps(tables)


def _data_table(data: Data) -> dict[str, Any]:
    """The table `[data]`, whose target, columns and source have forms of their own."""
    table = stated(data)
    for key in ("target", "request", "outcome"):
        table.pop(key, None)
    if data.target:  # files have no default for it
        table["target"] = data.target
    if data.outcome is not None:
        table["target"] = target_table(data.target, data.outcome)
    if (source := table_source(data.source)) is not None:
        table |= source.written(data.request)
    if data.columns:
        columns = map(stated, data.columns)
        table["columns"] = {column.pop("name"): column for column in columns}
    return table


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
    with suppress(OSError, ValueError):
        names = {file.name for file in path.parent.iterdir() if file.suffix == ".toml"}
        for close in get_close_matches(path.name, sorted(names - {path.name}), n=1):
            return f"did you mean {path.with_name(close)}?"
    return "check the path"


def check_size(table: Mapping[str, Any], long_texts: Mapping[str, int]) -> None:
    """Refuse keys, texts, whole numbers and depths that could spoil a later sentence or program.

    `long_texts` are, by dotted name, keys whose texts may have several lines, and how many letters.
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
        if isinstance(value, Mapping):
            left += [(_path(path, key), inner, level + 1) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(path, inner, level + 1) for inner in value]


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
