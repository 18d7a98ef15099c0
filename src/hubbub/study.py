"""The study: everything public that the parties agree on, read from `study.toml` and checked.

A `Study` says what was asked for; what follows from it is the plan's business. Its canonical form
(all defaults written out, keys sorted) has a SHA-256, the study id, to which every key, signature
and ledger row is bound. A study that parses is complete and free of contradictions: unknown keys,
missing keys and values out of range are refused with one sentence that names the key, the value,
what was expected and what to do. This file knows no records, no keys and no noise.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hubbub.errors import StudyError
from hubbub.tabular import Column, columns_from

FORMAT = 1
_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


@dataclass(frozen=True, kw_only=True)
class Parties:
    """Who takes part, and what is assumed of them."""

    names: tuple[str, ...]
    compute_nodes: int = 0
    nodes_per_silo: int = 0
    colluders: int
    dropouts: int = 0
    trust: str = "none"
    shares: str = "compressed"

    @property
    def silos(self) -> int:
        """N, the number of silos."""
        return len(self.names)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where each silo finds its records, and what is public about them."""

    source: str = ""
    files: str = ""
    test: str = ""
    target: str = "target"
    positive: tuple[str, ...] = ()
    classes: tuple[str, ...] = ("0", "1")
    columns: tuple[Column, ...] = ()
    options: tuple[tuple[str, int | float | str | bool], ...] = ()
    records: int = 0


@dataclass(frozen=True, kw_only=True)
class Model:
    """Which model is trained."""

    kind: str
    hidden: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: int = 1
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class Training:
    """How it is trained."""

    steps: int
    sampling: str = "poisson"
    sample_rate: float
    clip: float = 1.0
    optimizer: tuple[tuple[str, str | float | bool], ...] = (("lr", 0.1), ("name", "adam"))
    projection: int = 0


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What is promised to every record."""

    epsilon: float
    delta: float
    relation: str = "add-remove"


@dataclass(frozen=True, kw_only=True)
class Study:
    """A complete and consistent study.

    Raises:
        StudyError: from `load` and `from_table`, when the file is not one.
    """

    name: str
    parties: Parties
    data: Data
    model: Model
    training: Training
    privacy: Privacy
    toml: str = field(default="", repr=False, compare=False)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """The study in a file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StudyError(
                f"expected a readable study file, got {path}: {_reason(error)}; check the path"
            ) from None
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Study:
        """The study in a TOML text."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise StudyError(
                f"expected a TOML file, got a syntax error: {error}; mend it"
            ) from None
        return cls.from_table(table, toml=text)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, toml: str = "") -> Study:
        """The study in a table as `tomllib` gives it."""
        top = _Section("", table, ("study", "parties", "data", "model", "training", "privacy"))
        parts = {key: top.table(key) for key in top.known}
        study = cls(
            name=_study(parts["study"]),
            parties=_parties(parts["parties"]),
            data=_data(parts["data"]),
            model=_model(parts["model"]),
            training=_training(parts["training"], parts["data"]),
            privacy=_privacy(parts["privacy"]),
            toml=toml,
        )
        _check_together(study)
        return study

    @property
    def canonical(self) -> bytes:
        """The canonical form: JSON with sorted keys, every default written out."""
        content = asdict(self)
        del content["toml"]
        content["format"] = FORMAT
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @property
    def id(self) -> bytes:
        """SHA-256 of the canonical form, 32 bytes."""
        return hashlib.sha256(self.canonical).digest()


class _Section:
    """One table of the file; every read checks a key, and unknown keys are refused at once."""

    def __init__(self, name: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        self.name, self.content, self.known = name, table, known
        for key in table:
            if key not in known:
                close = get_close_matches(key, known, n=1)
                remedy = f"did you mean {close[0]}?" if close else "remove it"
                raise StudyError(
                    f"expected one of the keys {', '.join(known)} in {self.title}, "
                    f"got {key} = {_shown(table[key])}; {remedy}"
                )

    @property
    def title(self) -> str:
        return f"[{self.name}]" if self.name else "the study"

    def path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def table(self, key: str) -> dict[str, Any]:
        value = self.content.get(key)
        if not isinstance(value, dict):
            found = "nothing" if value is None else _shown(value)
            raise StudyError(f"expected a table [{self.path(key)}], got {found}; add one")
        return value

    def number(
        self, key: str, default: float | None, *, least: float, most: float, open_low: bool = False
    ) -> float:
        value = self._value(key, default, "a number")
        good = not isinstance(value, bool) and isinstance(value, int | float)
        if not good or not (least <= value <= most) or (open_low and value == least):
            low = f"above {least:g}" if open_low else f"from {least:g}"
            raise self.refusal(key, f"a number {low} to {most:g}", "choose one in that range")
        return float(value)

    def whole(self, key: str, default: int | None, *, least: int, most: int) -> int:
        value = self._value(key, default, "a whole number")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            wanted = f"a whole number from {least} to {most}"
            raise self.refusal(key, wanted, "choose one in that range")
        return value

    def text(self, key: str, default: str | None, *, options: tuple[str, ...] = ()) -> str:
        value = self._value(key, default, "a text")
        if not isinstance(value, str) or (options and value not in options):
            wanted = "one of " + ", ".join(f'"{o}"' for o in options) if options else "a text"
            raise self.refusal(key, wanted, "choose one of them" if options else "put it in quotes")
        return value

    def truth(self, key: str, default: bool) -> bool:
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            raise self.refusal(key, "true or false", "write one of them")
        return value

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.content.get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refusal(key, "a list of texts", 'write it like ["a", "b"]')
        return tuple(value)

    def wholes(self, key: str) -> tuple[int, ...]:
        value = self.content.get(key, [])
        good = isinstance(value, list) and all(
            isinstance(item, int) and not isinstance(item, bool) and 0 < item <= 10**7
            for item in value
        )
        if not good:
            raise self.refusal(key, "a list of positive whole numbers", "write it like [64, 64]")
        return tuple(value)

    def refusal(self, key: str, expected: str, remedy: str) -> StudyError:
        found = _shown(self.content[key]) if key in self.content else "nothing"
        return StudyError(f"expected {self.path(key)} to be {expected}, got {found}; {remedy}")

    def _value(self, key: str, default: Any, what: str) -> Any:
        if key not in self.content and default is None:
            raise StudyError(
                f"expected the key {self.path(key)}, {what}, got nothing; add it to {self.title}"
            )
        return self.content.get(key, default)


def _study(table: dict[str, Any]) -> str:
    section = _Section("study", table, ("name",))
    name = section.text("name", None)
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise section.refusal("name", "1 to 200 printable characters", "choose another name")
    return name


def _parties(table: dict[str, Any]) -> Parties:
    keys = ("silos", "names", "compute_nodes", "nodes_per_silo", "colluders", "dropouts")
    section = _Section("parties", table, (*keys, "trust", "shares"))
    return Parties(
        names=_names(section),
        compute_nodes=section.whole("compute_nodes", 0, least=0, most=1000),
        nodes_per_silo=section.whole("nodes_per_silo", 0, least=0, most=1000),
        colluders=section.whole("colluders", None, least=0, most=10**6),
        dropouts=section.whole("dropouts", 0, least=0, most=10**6),
        trust=section.text("trust", "none", options=("none", "tee")),
        shares=section.text("shares", "compressed", options=("compressed", "full")),
    )


def _names(section: _Section) -> tuple[str, ...]:
    """The silos' names: listed, or silo-1 ... silo-N."""
    if "names" not in section.content:
        count = section.whole("silos", None, least=2, most=100_000)
        return tuple(f"silo-{number}" for number in range(1, count + 1))
    names = section.texts("names", ())
    valid = all(0 < len(name) <= 64 and set(name) <= _NAME_CHARACTERS for name in names)
    if len(names) < 2 or len(set(names)) < len(names) or not valid:
        raise section.refusal(
            "names",
            "at least two different names of letters a-z, digits, '-', '_' and '.'",
            "rename the silos",
        )
    reserved = {"test", "aggregator", "."} & set(names) or [n for n in names if n[:5] == "node-"]
    if reserved:
        raise section.refusal("names", "names other than test, aggregator, node-…", "rename them")
    if "silos" in section.content and section.content["silos"] != len(names):
        raise section.refusal("silos", f"{len(names)}, the number of names", "leave it out")
    return names


def _data(table: dict[str, Any]) -> Data:
    keys = ("source", "files", "test", "target", "positive", "classes", "columns", "options")
    section = _Section("data", table, (*keys, "records"))
    source, files = section.text("source", ""), section.text("files", "")
    if bool(source) == bool(files):
        raise StudyError(
            f"expected either data.source or data.files, got {'both' if source else 'neither'}; "
            'write source = "hubbub.datasets:heart" or files = "silo-{name}.csv"'
        )
    if source and source.count(":") != (2 if source.startswith("python:") else 1):
        raise section.refusal("source", '"module:function" or "python:module:function"', "mend it")
    if files and ("{name}" not in files or not files.endswith((".csv", ".parquet"))):
        raise section.refusal(
            "files", "a path with {name} that ends in .csv or .parquet", "mend it"
        )
    if source:
        for key in ("test", "positive", "classes", "columns"):
            if key in table:
                raise section.refusal(key, "absent when data.source is given", "remove it")
    elif "options" in table:
        raise section.refusal("options", "absent when data.files is given", "remove it")
    return Data(
        source=source,
        files=files,
        test=section.text("test", ""),
        target=section.text("target", "target" if source else None),
        positive=section.texts("positive", ()),
        classes=section.texts("classes", ("0", "1")),
        columns=columns_from(section.table("columns")) if "columns" in table else (),
        options=_options(section),
        records=section.whole("records", 0, least=0, most=10**12),
    )


def _options(section: _Section) -> tuple[tuple[str, int | float | str | bool], ...]:
    """Arguments for the source's function."""
    options = section.content.get("options", {})
    plain = isinstance(options, dict) and all(
        isinstance(value, int | float | str | bool) for value in options.values()
    )
    if not plain:
        raise section.refusal("options", "a table of plain values", "write { split = 1 }")
    return tuple(sorted(options.items()))


def _model(table: dict[str, Any]) -> Model:
    section = _Section("model", table, ("kind", "hidden", "inputs", "outputs", "bias"))
    kind = section.text("kind", None)
    custom = kind.startswith("python:") and kind.count(":") == 2
    if kind not in ("logistic", "mlp", "cnn") and not custom:
        raise section.refusal(
            "kind", '"logistic", "mlp", "cnn" or "python:module:factory"', "choose one of them"
        )
    hidden = section.wholes("hidden")
    if kind == "mlp" and not hidden:
        raise section.refusal("hidden", "the widths of the hidden layers", "add hidden = [64, 64]")
    if kind == "logistic" and hidden:
        raise section.refusal("hidden", 'absent for kind = "logistic"', 'remove it or take "mlp"')
    return Model(
        kind=kind,
        hidden=hidden,
        inputs=section.wholes("inputs"),
        outputs=section.whole("outputs", 1, least=1, most=10**6),
        bias=section.truth("bias", True),
    )


def _training(table: dict[str, Any], data: dict[str, Any]) -> Training:
    keys = ("steps", "sampling", "sample_rate", "batch", "clip", "optimizer", "projection")
    section = _Section("training", table, keys)
    return Training(
        steps=section.whole("steps", None, least=1, most=1_000_000),
        sampling=section.text(
            "sampling", "poisson", options=("poisson", "without-replacement", "none")
        ),
        sample_rate=_sample_rate(section, data),
        clip=section.number("clip", 1.0, least=0, most=1e9, open_low=True),
        optimizer=_optimizer(section),
        projection=section.whole("projection", 0, least=0, most=10**7),
    )


def _sample_rate(section: _Section, data: dict[str, Any]) -> float:
    """The rate, stated or as batch / data.records."""
    if section.content.get("sampling") == "none":
        return section.number("sample_rate", 1.0, least=1, most=1)
    if ("sample_rate" in section.content) == ("batch" in section.content):
        found = "both" if "batch" in section.content else "neither"
        raise StudyError(
            f"expected either training.sample_rate or training.batch, got {found}; keep one of them"
        )
    if "sample_rate" in section.content:
        return section.number("sample_rate", None, least=0, most=1, open_low=True)
    records = data.get("records")
    if isinstance(records, bool) or not isinstance(records, int) or records <= 0:
        raise StudyError(
            "expected data.records beside training.batch, got nothing usable; state the public "
            "number of records of all silos together, or use training.sample_rate"
        )
    return section.whole("batch", None, least=1, most=records) / records


def _optimizer(section: _Section) -> tuple[tuple[str, str | float | bool], ...]:
    """The optimizer's name and settings; the learning layer checks the settings' names."""
    table = section.content.get("optimizer", {"name": "adam", "lr": 0.1})
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise section.refusal(
            "optimizer", "a table with a name", 'write { name = "adam", lr = 0.1 }'
        )
    inner = _Section(
        "training.optimizer",
        table,
        ("name", "lr", "momentum", "beta1", "beta2", "schedule"),
    )
    inner.text("name", None, options=("sgd", "adam"))
    inner.number("lr", None, least=0, most=1e6, open_low=True)
    for key in ("momentum", "beta1", "beta2"):
        if key in table:
            inner.number(key, None, least=0, most=0.999999)
    if "schedule" in table:
        inner.text("schedule", None, options=("constant", "linear", "cosine"))
    return tuple(sorted(table.items()))


def _privacy(table: dict[str, Any]) -> Privacy:
    section = _Section("privacy", table, ("epsilon", "delta", "relation"))
    return Privacy(
        epsilon=section.number("epsilon", None, least=1e-3, most=50),
        delta=section.number("delta", None, least=1e-12, most=0.1),
        relation=section.text("relation", "add-remove", options=("add-remove", "substitute")),
    )


def _check_together(study: Study) -> None:
    """Contradictions between keys that are each in range."""
    parties, training, data = study.parties, study.training, study.data
    _check_shares(parties)
    if parties.nodes_per_silo > parties.compute_nodes:
        raise StudyError(
            f"expected parties.nodes_per_silo <= compute_nodes = {parties.compute_nodes}, "
            f"got {parties.nodes_per_silo}; lower it or leave it out"
        )
    if parties.shares == "full" and parties.compute_nodes < 2:
        raise StudyError(
            'expected compute_nodes >= 2 with parties.shares = "full", '
            f"got {parties.compute_nodes}; add compute nodes or remove shares"
        )
    if training.sampling == "without-replacement" and study.privacy.relation == "add-remove":
        raise StudyError(
            'expected privacy.relation = "substitute" with training.sampling = '
            '"without-replacement", got "add-remove"; a joint batch of fixed size makes the number '
            "of records public, so adding one cannot be hidden"
        )
    if training.sampling == "without-replacement" and not data.records:
        raise StudyError(
            'expected data.records with sampling = "without-replacement", got nothing; state the '
            "public number of records, or use Poisson sampling"
        )
    if data.records and data.records < study.parties.silos:
        raise StudyError(
            f"expected data.records >= {parties.silos}, the number of silos, got {data.records}; "
            "mend it"
        )
    optimizer = dict(training.optimizer)
    if optimizer["name"] == "sgd" and not data.records:
        raise StudyError(
            'expected data.records with optimizer "sgd", got nothing; the sum is divided by the '
            "expected batch, so state the public number of records, or use adam"
        )


def _check_shares(parties: Parties) -> None:
    """Enough silos must be left to add the noise (docs/privacy.md P3)."""
    spare = 1 if parties.trust == "tee" else 2
    most = parties.silos - spare - parties.dropouts
    if parties.trust == "none" and parties.colluders > most:
        raise StudyError(
            f"expected parties.colluders <= silos - dropouts - 2 = {most}, "
            f"got {parties.colluders}; lower colluders or dropouts, or add silos"
        )
    if parties.dropouts > parties.silos - spare:
        raise StudyError(
            f"expected parties.dropouts <= silos - {spare} = {parties.silos - spare}, "
            f"got {parties.dropouts}; lower it or add silos"
        )


def _shown(value: object) -> str:
    """A value of the file, shortened, for an error message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _reason(error: Exception) -> str:
    """Why a file could not be read."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "it is not UTF-8 text"
