"""The study as a whole: read from a file, checked across its tables, named by its hash.

Its canonical form (all defaults written out, keys sorted) has a SHA-256, the study id, to which
every key, signature and ledger row is bound. This file knows which tables there are; what is in
them is the business of the file of that name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hubbub.disk import read_text, toml_table
from hubbub.errors import StudyError
from hubbub.section import Section, shown
from hubbub.settings import canonical
from hubbub.study import file_limits, import_path
from hubbub.study.asked_statistics import AskedStatistics, statistics_from
from hubbub.study.attested_roles import Attestation, attestation_from
from hubbub.study.coefficients import Coefficients, coefficients_from
from hubbub.study.contradictions import refuse_contradictions
from hubbub.study.data import Data, columns_of, columns_with_target
from hubbub.study.data_table import data_from
from hubbub.study.model import Model, model_from
from hubbub.study.parties import Parties, parties_from
from hubbub.study.privacy import Privacy, privacy_from
from hubbub.study.study_head import head_from
from hubbub.study.toml_faults import file_remedy, read_fault, syntax_fault
from hubbub.study.toml_text import Settings, written
from hubbub.study.training import Training, training_from
from hubbub.study.validation import Validation, validation_from
from hubbub.synthesis import AskedSynthesis, synthesis_from
from hubbub.tabular import Column

FORMAT = 2  # of the canonical form; tests/study/study_ids.json pins what it makes of studies
_TABLES = ("parties", "data", "model", "training", "privacy")
_OPTIONAL = ("statistics", "synthetic", "validation", "coefficients", "attestation")
_OF_MODEL = ("validation", "coefficients")  # which are asked of a trained model
_OF_CELLS = ("statistics", "synthetic")  # beside which nothing need be trained
_LEARNING = ("model", "training")  # absent where only statistics are asked for


def _validation(top: Section, data: Data, *, trains: bool) -> Validation | None:
    """The table `[validation]`, if there is one, of a model."""
    if "validation" not in top:
        return None
    if not trains:
        raise top.refusal("validation", "absent where no model is trained", "remove it")
    stated = top.table("validation")
    return validation_from(stated, columns_of(data) if stated.get("by") else {})


def _coefficients(top: Section, *, trains: bool) -> Coefficients | None:
    """The table `[coefficients]`, if there is one, of a model."""
    if "coefficients" not in top:
        return None
    if not trains:
        raise top.refusal("coefficients", "absent where no model is trained", "remove it")
    return coefficients_from(top.table("coefficients"))


@dataclass(frozen=True, kw_only=True)
class Study:
    """A complete and consistent study: everything public that the parties agree on.

    Make it with `load`, `parse` or `from_table`, or from keywords, each a mapping of the keys of
    its table; all of them check it. Each field but the last is a table or a key of the file;
    docs/study.md lists all keys with their ranges.

    Args:
        name: 1 to 200 printable characters.
        transcript: what a run keeps of the masked vectors for those who verify it: "full", so that
            every sum can be made again, or "hashes".
        code: SHA-256 of the sources of code that is not part of hubbub, by its name.
        parties: who takes part, and how many of them may be dishonest or missing.
        data: where each silo finds its records, and what is public about them.
        model: which model is trained; absent, with `training`, where only statistics are asked for.
        training: with how many steps, which batches, which clipping norm and which optimizer.
        privacy: epsilon, delta and the relation between neighbouring data sets.
        statistics: tables, curves, tests and regressions that are asked for; None: none.
        synthetic: synthetic records that are asked for; None: none.
        validation: scores of the trained model that are asked for; None: none.
        coefficients: effects of the trained model that are asked for; None: none.
        attestation: what parties must show of the machines and the code that they run; None:
            nothing.
        toml: the text that the study was read from; empty if there is none.

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
    transcript: str = "hashes"
    code: tuple[tuple[str, str], ...] = ()
    parties: Parties
    data: Data
    model: Model | None = None
    training: Training | None = None
    privacy: Privacy
    statistics: AskedStatistics | None = None
    synthetic: AskedSynthesis | None = None
    validation: Validation | None = None
    coefficients: Coefficients | None = None
    attestation: Attestation | None = None
    toml: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the parts of what keywords gave as mappings."""
        given = {name: getattr(self, name) for name in (*_TABLES, *_OPTIONAL)}
        if not any(isinstance(part, Mapping) for part in given.values()):
            return
        for name in (*_LEARNING, *_OPTIONAL):
            if not isinstance(given[name], Mapping):
                del given[name]
        head = {"name": self.name, "transcript": self.transcript, "code": dict(self.code)}
        study = Study.from_table({"study": head, **given})
        for name in (*_TABLES, *_OPTIONAL, "code"):
            object.__setattr__(self, name, getattr(study, name))

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
        file_limits.check_size(table)
        top = Section("", table, ("study", *_TABLES, *_OPTIONAL))
        asks_cells = any(key in top for key in _OF_CELLS)
        trains = not asks_cells or any(key in top for key in _LEARNING)
        read = _TABLES if trains else [key for key in _TABLES if key not in _LEARNING]
        parts = {key: top.table(key) for key in ("study", *read)}
        attested = top.table("attestation") if "attestation" in top else {}
        data = data_from(parts["data"], targeted=trains)
        columns = columns_of(data) if asks_cells else {}
        asked, synthetic = None, None
        if "statistics" in top:
            asked = statistics_from(top.table("statistics"), columns, trains=trains)
        if "synthetic" in top:
            alone = not trains and asked is None
            synthetic = synthesis_from(top.table("synthetic"), columns, alone=alone)
        validated = _validation(top, data, trains=trains)
        study = cls(
            **head_from(parts["study"]),
            parties=parties_from(parts["parties"]),
            data=data,
            model=model_from(parts["model"]) if trains else None,
            training=training_from(parts["training"], records=parts["data"].get("records"))
            if trains
            else None,
            privacy=privacy_from(parts["privacy"]),
            statistics=asked,
            synthetic=synthetic,
            validation=validated,
            coefficients=_coefficients(top, trains=trains),
            attestation=attestation_from(
                attested, nodes=bool(parts["parties"].get("compute_nodes"))
            ),
            toml=toml,
        )
        refuse_contradictions(
            study.parties,
            study.data,
            study.model,
            study.training,
            study.privacy,
            [one for one in (study.statistics, study.synthetic) if one is not None],
            study.validation,
            study.coefficients,
        )
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

        Returns:
            A TOML text.

        Raises:
            StudyError: the study was put together by hand from values that no file can hold.
        """
        if self.toml and Study.parse(self.toml).id == self.id:
            return self.toml
        stated = {name: getattr(self, name) for name in _TABLES}
        tables: dict[str, Settings] = {k: v for k, v in stated.items() if v is not None}
        head = {"name": self.name, "transcript": self.transcript, "code": dict(self.code)}
        if self.transcript == Study.transcript:
            del head["transcript"]
        if not self.code:
            del head["code"]
        asked = {name: getattr(self, name) for name in (*_OF_CELLS, *_OF_MODEL)}
        text = written(head, tables, asked, self.attestation)
        if Study.parse(text).id != self.id:
            raise StudyError(
                "expected a study whose values have the types that a file gives them, got another "
                "one; make it with Study.from_table, or write 1.0 where a whole number stands for "
                "a real one"
            )
        return text

    @property
    def learning(self) -> tuple[Model, Training]:
        """The model and how it is trained.

        Raises:
            StudyError: it asks for statistics alone.
        """
        if self.model is None or self.training is None:
            raise StudyError(
                "expected a study with [model] and [training], got one of statistics alone; add "
                "them, or use what is there for statistics"
            )
        return self.model, self.training

    @property
    def reads_cells(self) -> bool:
        """Whether columns as they are asked of, and not only features of them."""
        asked = (self.statistics, self.synthetic, self.coefficients)
        return any(one is not None for one in asked)

    @property
    def cell_columns(self) -> Mapping[str, Column]:
        """The columns whose cells are asked of; StudyError if nothing says what they are."""
        return (columns_with_target if self.coefficients else columns_of)(self.data)

    @property
    def has_joint_batches(self) -> bool:
        """Whether all silos together draw batches of one public size."""
        return self.training is not None and self.training.sampling == "without-replacement"

    @property
    def own_code(self) -> tuple[str, ...]:
        """The names of code that is not part of hubbub and that a run of the study calls.

        Reading, planning and approving a study, and verifying a run of it, call none of it.
        """
        named = [self.data.source]
        if self.model is not None:
            frozen = self.model.frozen.module if self.model.frozen else ""
            named += [self.model.kind, frozen, self.model.loss]
        if self.training is not None:
            named += self.training.metrics
        return tuple(name for name in named if import_path.is_own(name))

    @property
    def is_unattested(self) -> bool:
        """Whether silos are believed to add their noise and asked for no evidence of it."""
        asked = self.attestation is not None and self.attestation.silo is not None
        return self.parties.trust == "tee" and not asked

    @property
    def canonical(self) -> bytes:
        """The canonical form: JSON with sorted keys, every default written out (`settings`)."""
        content = canonical(self)
        del content["toml"]
        if self.attestation is not None:
            content["attestation"] = self.attestation.to_dict()
        if self.statistics is not None:
            content["statistics"] = self.statistics.canonical()
        del content["synthetic"]  # it came after ids were pinned
        if self.synthetic is not None:
            content["synthetic"] = self.synthetic.canonical()
        for name in _OF_MODEL:  # which came after study ids were pinned
            del content[name]
            if (asked := getattr(self, name)) is not None:
                content[name] = asked.to_table()
        content["format"] = FORMAT
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def id(self) -> bytes:
        """SHA-256 of the canonical form, 32 bytes."""
        return hashlib.sha256(self.canonical).digest()
