"""The study as a whole: read from a file, checked across its tables, named by its hash.

Its canonical form has a SHA-256, the study id, to which every key, signature and ledger row is
bound. This file knows which tables there are, not what is in them. Keys that contradict each other
are refused, never settled in favour of one: no setting may silently change a guarantee.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os.path import normpath
from pathlib import Path, PurePath
from typing import Any

from hubbub.core.disk import read_text, toml_table
from hubbub.core.errors import StudyError, UserError
from hubbub.core.registered import remembered
from hubbub.core.settings import Section, canonical, shown
from hubbub.core.study.ask import ENTRY_POINTS, Ask, Surroundings, asks
from hubbub.core.study.attested_roles import Attestation, attestation_from
from hubbub.core.study.data import Data, columns_of, data_from
from hubbub.core.study.parties import Parties, Privacy, parties_from, privacy_from
from hubbub.core.study.source import is_own, table_sources
from hubbub.core.study.study_file import (
    HASHES,
    check_size,
    file_remedy,
    head_from,
    read_fault,
    syntax_fault,
    text_of,
)
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels

FORMAT = 2  # of the canonical form; tests/core/study/study_ids.json pins what it makes of studies
_TABLES = ("parties", "data", "privacy")
_ATTESTATION = "attestation"
_MOST_SHARE = 0.9  # of epsilon, for all that is asked beside the main query


@dataclass(frozen=True, init=False)
class Study:
    """A complete and consistent study: everything public that the parties agree on.

    Make it with `load`, `parse` or `from_table`, or from keywords, each a mapping of the keys of
    its table; all of them check it. docs/study.md lists all tables and keys with their ranges.

    Args:
        name: 1 to 200 printable characters.
        transcript: what a run keeps of the masked vectors for those who verify it: "full", so that
            every sum can be made again, or "hashes".
        code: SHA-256 of the sources of code that is not part of hubbub, by its name.
        parties: who takes part, and how many of them may be dishonest or missing.
        data: where each silo finds its records, and what is public about them.
        privacy: epsilon, delta and the relation between neighbouring data sets.
        attestation: what parties must show of the machines and the code that they run; None:
            nothing.
        toml: the text that the study was read from; empty if there is none.
        asked: what the study asks of its silos, by table: a model and how it is trained, and
            whatever else an `Ask` reads. Each table is an attribute of the study, too, None where
            it is absent, and may be given as a keyword of its own.

    Raises:
        StudyError: it is no complete and consistent study.

    >>> made = Study(
    ...     name="example",
    ...     parties={"silos": 4, "colluders": 1},
    ...     data={"source": "hubbub.datasets:heart", "records": 740},
    ...     model={"kind": "logistic", "inputs": [26]},
    ...     training={"steps": 10, "sampling": "full-batch"},
    ...     privacy={"epsilon": 1.0, "delta": 1e-5},
    ... )
    >>> study = Study.parse('''
    ... study.name = "example"
    ... parties = {silos = 4, colluders = 1}
    ... data = {source = "hubbub.datasets:heart", records = 740}
    ... model = {kind = "logistic", inputs = [26]}
    ... training = {steps = 10, sampling = "full-batch"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> study.parties.names, study.training.clip_norm, study == made
    (('silo-1', 'silo-2', 'silo-3', 'silo-4'), 1.0, True)
    """

    name: str
    transcript: str
    code: tuple[tuple[str, str], ...]
    parties: Parties
    data: Data
    privacy: Privacy
    attestation: Attestation | None
    asked: tuple[tuple[str, Any], ...]
    toml: str = field(repr=False, compare=False)

    def __init__(
        self,
        *,
        name: str,
        parties: Parties | Mapping[str, Any],
        data: Data | Mapping[str, Any],
        privacy: Privacy | Mapping[str, Any],
        transcript: str = HASHES,
        code: tuple[tuple[str, str], ...] | Mapping[str, str] = (),
        attestation: Attestation | Mapping[str, Any] | None = None,
        toml: str = "",
        asked: tuple[tuple[str, Any], ...] = (),
        **tables: Any,
    ) -> None:
        if strange := tables.keys() - _asked_tables():
            raise TypeError(f"expected a table of a study, got {min(strange)!r}")
        chosen = {**dict(asked), **tables}
        by_rank = [key for key in _asked_tables() if chosen.get(key) is not None]
        fixed = {"parties": parties, "data": data, "privacy": privacy, "attestation": attestation}
        stated = {k: v for k, v in {**fixed, **chosen}.items() if isinstance(v, Mapping)}
        values = {
            **fixed,
            "name": name,
            "transcript": transcript,
            "code": tuple(dict(code).items()),
            "asked": tuple((key, chosen[key]) for key in by_rank),
            "toml": toml,
        }
        if stated:  # from keywords, which are read like a file
            head = {"name": name, "transcript": transcript, "code": dict(code)}
            values = dict(vars(Study.from_table({"study": head, **stated})))
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def __getattr__(self, name: str) -> Any:
        """What the study asks by a table; None where it has no such table."""
        if name not in _asked_tables():
            raise AttributeError(f"a study has no {name!r}")
        return dict(self.__dict__["asked"]).get(name)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """The study in a file.

        Args:
            path: of a TOML file in UTF-8.

        Returns:
            The study; its `toml` is the text of the file.

        Raises:
            StudyError: the file cannot be read, or holds no complete and consistent study.
        """
        path = Path(path)
        try:
            text = read_text(path)
        except (OSError, ValueError) as error:
            raise StudyError(
                f"expected a readable study file, got {shown(str(path))}: {read_fault(error)}; "
                f"{file_remedy(path)}"
            ) from None
        return cls.parse(text)

    @staticmethod
    def expect(value: object) -> None:
        """Refuse what is no study, such as the path of one.

        Args:
            value: what was given where a study is needed.

        Raises:
            StudyError: it is no `Study`.
        """
        if not isinstance(value, Study):
            raise StudyError(
                f"expected a Study, got {type(value).__name__}; load it with hubbub.Study.load"
            )

    @classmethod
    def parse(cls, text: str) -> Study:
        """The study in a TOML text.

        Args:
            text: what a study file holds.

        Returns:
            The study; its `toml` is the text.

        Raises:
            StudyError: the text is no TOML, or no complete and consistent study.
        """
        text = text.removeprefix("\ufeff")  # which some editors put first
        try:
            table = toml_table(text)
        except ValueError as error:
            raise StudyError(
                f"expected a TOML file, got {syntax_fault(error, text)}; fix it"
            ) from None
        return cls.from_table(table, toml=text)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, toml: str = "") -> Study:
        """The study in a table as `tomllib` gives it.

        Args:
            table: one table for each of study, parties, data, model, training and privacy, and
                perhaps one each for statistics and synthetic, beside which model and training may
                be left out, one each for validation and coefficients, and one for attestation.
            toml: the text that the table was read from, if there is one.

        Returns:
            The study.

        Raises:
            StudyError: a key is unknown or missing, a value is out of range, or two of them
                contradict each other.
        """
        if not asks():
            wanted = f"a package that registers {ENTRY_POINTS}"
            raise StudyError(f"expected {wanted}, found none; install hubbub whole")
        texts = (source.long_texts.items() for source in table_sources())
        check_size(table, {f"data.{key}": most for keys in texts for key, most in keys})
        top = Section("", table, ("study", *_TABLES, *_asked_tables(), _ATTESTATION))
        present = [ask for ask in asks() if any(key in top for key in ask.tables)]
        if not any(ask.precedence for ask in present):
            present.append(max(asks(), key=lambda ask: ask.precedence))  # whose tables are missed
        needed = (key for ask in present for key in ask.tables)
        parts = {key: top.table(key) for key in ("study", *_TABLES, *needed)}
        # P16: every query but its own has an epsilon for itself, and it has what they leave.
        main = max(present, key=lambda ask: ask.precedence)
        trains = any(ask.trains for ask in present)
        data = data_from(parts["data"], targeted=trains)
        asked: dict[str, Any] = {}
        for ask in sorted(present, key=lambda ask: ask.rank):
            around = Surroundings(data=data, is_main=ask is main, trains=trains)
            asked |= ask.read(top, around)
        study = cls(
            **head_from(parts["study"]),
            parties=parties_from(parts["parties"]),
            data=data,
            privacy=privacy_from(parts["privacy"]),
            attestation=attestation_from(
                top.table(_ATTESTATION) if _ATTESTATION in top else {},
                nodes=bool(parts["parties"].get("compute_nodes")),
            ),
            asked=tuple(asked.items()),
            toml=toml,
        )
        refuse_contradictions(study)
        if strange := [name for name, _ in study.code if name not in study.own_code]:
            raise StudyError(
                f"expected study.code to hold code that the study names, got {shown(strange[0])}; "
                "remove it"
            )
        return study

    def as_toml(self) -> str:
        """A study file that says the same: the text it was read from, or one written anew.

        Guarantees:
            1. `Study.parse(study.as_toml()).id == study.id`.
            2. A study that was read keeps its text, comments included; one that was changed since
               with `dataclasses.replace` does not.

        Raises:
            StudyError: the study was put together by hand from values that no file can hold.
        """
        if self.toml and Study.parse(self.toml).id == self.id:
            return self.toml
        text = text_of(self)
        if Study.parse(text).id != self.id:
            raise StudyError(
                "expected a study whose values have the types that a file gives them, got another "
                "one; make it with Study.from_table, or write 1.0 where a whole number stands for "
                "a real one"
            )
        return text

    def changed(self, **changes: Any) -> Study:
        """The study with other fields or tables; it keeps no text.

        Args:
            changes: by the name of a field, or of a table that an ask reads.

        Returns:
            A study that nothing has checked.
        """
        return replace(self, toml="", **changes)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The kinds of what it asks, by rank."""
        return tuple(ask for ask in asks() if ask.tables[0] in dict(self.asked))

    @property
    def main_ask(self) -> Ask:
        """The one that has what the others leave of epsilon."""
        return max(self.asks, key=lambda ask: ask.precedence)

    @property
    def reads_cells(self) -> bool:
        """Whether columns as they are asked of, and not only features of them."""
        return any(ask.cells(self) is not None for ask in self.asks)

    @property
    def trains(self) -> bool:
        """Whether it trains a model, so that records have features and a target."""
        return any(ask.trains for ask in self.asks)

    @property
    def subgroups(self) -> tuple[Levels, ...]:
        """Classes of columns that silos note of each record beside its features."""
        return tuple(levels for ask in self.asks for levels in ask.subgroups(self))

    @property
    def cell_columns(self) -> Mapping[str, Column]:
        """The columns whose cells may be asked of; StudyError if nothing says what they are."""
        asked = (ask.cells(self) or {} for ask in self.asks)
        return dict(columns_of(self.data)) | {k: v for columns in asked for k, v in columns.items()}

    @property
    def own_code(self) -> tuple[str, ...]:
        """The names of code that is not part of hubbub and that a run of the study calls.

        Reading, planning and approving a study, and verifying a run of it, call none of it.
        """
        named = [self.data.source, *(name for ask in self.asks for name in ask.own_code(self))]
        return tuple(name for name in named if is_own(name))

    @property
    def shows_counts(self) -> bool:
        """Whether batches are drawn by all silos together, so that their sizes are public."""
        return any(ask.shows_counts(self) for ask in self.asks)

    @property
    def is_unattested(self) -> bool:
        """Whether silos are believed to add their noise and asked for no evidence of it."""
        asked = self.attestation is not None and self.attestation.silo is not None
        return self.parties.trust == "tee" and not asked

    @property
    def canonical(self) -> bytes:
        """The canonical form: JSON with sorted keys, every default written out (`settings`)."""
        content: dict[str, Any] = {
            "name": self.name,
            "transcript": self.transcript,
            "attestation": None if self.attestation is None else self.attestation.to_dict(),
            "format": FORMAT,
        }
        content |= {key: canonical(getattr(self, key)) for key in ("code", *_TABLES)}
        content["data"] |= content["data"].pop("request") or {}
        for ask in asks():  # those whose tables came after ids were pinned are left out if absent
            content |= dict.fromkeys(ask.tables) if ask.is_pinned else {}
            content |= ask.canonical(self) if ask in self.asks else {}
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def id(self) -> bytes:
        """SHA-256 of the canonical form, 32 bytes."""
        # Keys, signatures and rows are bound to it (P15): what is not in it, nobody has agreed on.
        return hashlib.sha256(self.canonical).digest()


@remembered
def _asked_tables() -> tuple[str, ...]:
    """The tables of all kinds of asks, by rank; UserError if two kinds claim one."""
    owners = dict.fromkeys(("study", *_TABLES, _ATTESTATION), "hubbub")
    for ask in asks():
        for key in ask.tables:
            if (other := owners.setdefault(key, type(ask).__module__)) != type(ask).__module__:
                raise UserError(
                    f"expected one package to read [{key}] of a study, found {other} and "
                    f"{type(ask).__module__}; uninstall one of them"
                )
    return tuple(key for ask in asks() for key in ask.tables)


def refuse_contradictions(study: Study) -> None:
    """Refuse, by their keys, tables that contradict each other, whatever each says by itself."""
    data, silos = study.data, study.parties.silos
    if data.records and data.records < silos:
        raise StudyError(
            f"expected data.records >= {silos}, the number of silos, got {data.records}; fix it"
        )
    # Models are scored on the test file without noise, so it must be nobody's records.
    files, test = PurePath(normpath(data.files)), PurePath(normpath(data.test))
    own = (PurePath(str(files).replace("{name}", name)) for name in study.parties.names)
    if data.test and data.files and not {test, *test.parents}.isdisjoint(own):
        raise StudyError(
            f"expected data.test to be a public file, got {shown(data.test)}, a silo's own; name "
            "another, or leave it out"
        )
    for ask in study.asks:  # what goes against its own tables, an ask says itself
        ask.check(study)
    if data.counts and not study.shows_counts:
        raise StudyError(
            'expected no data.counts without training.sampling = "without-replacement", which '
            "alone makes them public, got some; remove them"
        )
    if data.counts and (len(data.counts) != silos or sum(data.counts) != data.records):
        raise StudyError(
            f"expected data.counts to be {silos} numbers that add up to data.records = "
            f"{data.records}, got {len(data.counts)} that add up to {sum(data.counts)}; fix them"
        )
    # One capacity for all silos, or one for each; no silo counts on more than it may hold.
    many = len(data.capacity)
    if many > 1 and many != silos:
        raise StudyError(
            f"expected data.capacity to be one number or {silos}, one for each silo, got "
            f"{many}; fix the list"
        )
    capacities = data.capacity if many > 1 else data.capacity * silos
    if any(most < count for most, count in zip(capacities, data.counts, strict=False)):
        raise StudyError(
            "expected data.capacity to be at least data.counts for every silo, got less; fix one"
        )
    # What is asked beside the main query leaves some epsilon to it.
    parts = {key: part for ask in study.asks for key, part in ask.parts(study).items()}
    epsilon, spent = study.privacy.epsilon, sum(parts.values())
    if spent > _MOST_SHARE * epsilon:
        raise StudyError(
            f"expected {' + '.join(parts)} <= {_MOST_SHARE:g} * privacy.epsilon = "
            f"{_MOST_SHARE * epsilon:g}, got {spent:g}; lower the part, or raise privacy.epsilon"
        )
