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
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from math import isfinite, prod
from pathlib import Path
from typing import Any

from hubbub.errors import StudyError
from hubbub.tabular import Column, columns_from
from hubbub.tabular.column import canonical

FORMAT = 1
_SILO_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")  # never "..": names become parts of paths
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MOST_SILOS = 100_000
_MOST_FEATURES = 10**9
# What no honest study needs; refused first, so that every later sentence is short.
_MOST_LEVELS, _MOST_KEY, _MOST_TEXT, _MOST_WHOLE = 8, 100, 1000, 2**63 - 1
# Written out in the canonical form, because both parties must use the same.
_OPTIMIZERS: dict[str, dict[str, float]] = {
    "adam": {"beta1": 0.9, "beta2": 0.999},
    "sgd": {"momentum": 0.0},
}
_DEFAULT_OPTIMIZER = {"name": "adam", "lr": 0.1}


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
    optimizer: tuple[tuple[str, str | float], ...]
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
        except (OSError, ValueError) as error:
            raise StudyError(
                f"expected a readable study file, got {_shown(str(path))}: {_reason(error)}; "
                "check the path"
            ) from None
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Study:
        """The study in a TOML text."""
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise StudyError(f"expected a TOML file, got {_fault(error, text)}; mend it") from None
        return cls.from_table(table, toml=text)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, toml: str = "") -> Study:
        """The study in a table as `tomllib` gives it."""
        _check_size(table)
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
                    f"got {_key(key)} = {_shown(table[key])}; {remedy}"
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
        return float(value) + 0.0  # -0.0 is 0.0

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

    def wholes(self, key: str, *, longest: int) -> tuple[int, ...]:
        value = self.content.get(key, [])
        good = isinstance(value, list) and all(
            isinstance(item, int) and not isinstance(item, bool) and 0 < item <= 10**7
            for item in value
        )
        if not good or len(value) > longest:
            wanted = f"a list of at most {longest} positive whole numbers up to 10000000"
            raise self.refusal(key, wanted, "write it like [64, 64]")
        return tuple(value)

    def absent(self, key: str, why: str) -> None:
        if key in self.content:
            raise self.refusal(key, f"absent {why}", "remove it")

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
    if not 1 <= len(name) <= 200:
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
        count = section.whole("silos", None, least=2, most=_MOST_SILOS)
        return tuple(f"silo-{number}" for number in range(1, count + 1))
    names = section.texts("names", ())
    valid = all(_SILO_NAME.fullmatch(name) for name in names)
    if not 2 <= len(names) <= _MOST_SILOS or len(set(names)) < len(names) or not valid:
        raise section.refusal(
            "names",
            "at least two different names of letters a-z and digits, with '-', '_' and '.' inside",
            "rename the silos",
        )
    if {"test", "aggregator"} & set(names) or any(name.startswith("node-") for name in names):
        raise section.refusal("names", "names other than test, aggregator, node-…", "rename them")
    count = section.whole("silos", len(names), least=2, most=_MOST_SILOS)
    if count != len(names):
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
    if source and not _is_place(source):
        raise section.refusal("source", '"module:function" or "python:module:function"', "mend it")
    if files and ("{name}" not in files or not files.endswith((".csv", ".parquet"))):
        raise section.refusal(
            "files", "a path with {name} that ends in .csv or .parquet", "mend it"
        )
    if source:
        for key in ("test", "positive", "classes", "columns"):
            section.absent(key, "when data.source is given")
    if files:
        section.absent("options", "when data.files is given")
    return Data(
        source=source,
        files=files,
        test=_test(section),
        target=section.text("target", "target" if source else None),
        positive=section.texts("positive", ()),
        classes=_classes(section),
        columns=_columns(section) if "columns" in table else (),
        options=_options(section),
        records=section.whole("records", 0, least=0, most=10**12),
    )


def _test(section: _Section) -> str:
    """The public test file, if there is one."""
    test = section.text("test", "")
    if test and not test.endswith((".csv", ".parquet")):
        raise section.refusal("test", "a path that ends in .csv or .parquet", "mend it")
    return test


def _classes(section: _Section) -> tuple[str, ...]:
    """The spellings of the target; there is no loss for a target that is not a class."""
    if section.content.get("positive"):
        section.absent("classes", "when data.positive is given")
    classes = section.texts("classes", ("0", "1"))
    if len({canonical(spelling) for spelling in classes}) < max(2, len(classes)):
        raise section.refusal("classes", "at least two different spellings", "list each class once")
    return classes


def _columns(section: _Section) -> tuple[Column, ...]:
    """The declared columns; 1 and 1.0 are the same bound, and must give the same study id."""
    try:
        columns = tuple(_normal(column) for column in columns_from(section.table("columns")))
    except StudyError as error:  # which quotes a list of categories in full
        said, _, remedy = str(error).rpartition("; ")
        raise StudyError(f"{_short(said, 300)}; {remedy}") from None
    if section.content.get("target") in {column.name for column in columns}:
        raise section.refusal("target", "none of data.columns", "remove it from data.columns")
    return columns


def _normal(column: Column) -> Column:
    """The column with every number in one form."""
    default = column.default
    if column.categories:
        text = default is None or isinstance(default, str)
        return column if text else replace(column, default=canonical(str(default)))
    low, high = (float(bound) + 0.0 for bound in column.bounds)
    return replace(
        column, low=low, high=high, default=None if default is None else float(default) + 0.0
    )


def _options(section: _Section) -> tuple[tuple[str, int | float | str | bool], ...]:
    """Arguments for the source's function, each of the type that is written."""
    options = section.content.get("options", {})
    plain = isinstance(options, dict) and all(
        isinstance(value, str) or (isinstance(value, int | float) and isfinite(value))
        for value in options.values()
    )
    if not plain:
        raise section.refusal("options", "a table of plain values", "write { split = 1 }")
    return tuple(sorted(options.items()))


def _is_place(text: str) -> bool:
    """Whether a text is "module:name" or "python:module:name"."""
    module, _, name = text.removeprefix("python:").partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _model(table: dict[str, Any]) -> Model:
    section = _Section("model", table, ("kind", "hidden", "inputs", "outputs", "bias"))
    kind = section.text("kind", None)
    custom = kind.startswith("python:") and _is_place(kind)
    if kind not in ("logistic", "mlp", "cnn") and not custom:
        raise section.refusal(
            "kind", '"logistic", "mlp", "cnn" or "python:module:factory"', "choose one of them"
        )
    if custom:
        section.absent("bias", "for a model of your own")
    return Model(
        kind=kind,
        hidden=_hidden(section, kind),
        inputs=_inputs(section, kind),
        outputs=section.whole("outputs", 1, least=1, most=10**6),
        bias=section.truth("bias", True),
    )


def _hidden(section: _Section, kind: str) -> tuple[int, ...]:
    """Widths of the hidden layers; a "cnn" may leave them to the paper's."""
    hidden = section.wholes("hidden", longest=100)
    if kind == "mlp" and not hidden:
        raise section.refusal("hidden", "the widths of the hidden layers", "add hidden = [64, 64]")
    if kind == "logistic" and hidden:
        raise section.refusal("hidden", 'absent for kind = "logistic"', 'remove it or take "mlp"')
    if kind.startswith("python:"):
        section.absent("hidden", "for a model of your own")
    return hidden


def _inputs(section: _Section, kind: str) -> tuple[int, ...]:
    """Shape of a record, if it is stated."""
    inputs = section.wholes("inputs", longest=8)
    if prod(inputs) > _MOST_FEATURES:
        raise section.refusal("inputs", f"at most {_MOST_FEATURES} features in all", "lower it")
    if kind == "cnn" and inputs and len(inputs) != 3:
        raise section.refusal("inputs", '[channels, height, width] for kind = "cnn"', "mend it")
    return inputs


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
        section.absent("batch", 'with training.sampling = "none", which takes all records')
        if section.number("sample_rate", 1.0, least=0, most=1, open_low=True) != 1:
            raise section.refusal("sample_rate", '1 with sampling = "none"', "leave it out")
        return 1.0
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


def _optimizer(section: _Section) -> tuple[tuple[str, str | float], ...]:
    """The optimizer's name and all of its settings."""
    table = section.content.get("optimizer", _DEFAULT_OPTIMIZER)
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise section.refusal(
            "optimizer", "a table with a name", 'write { name = "adam", lr = 0.1 }'
        )
    known = ("name", "lr", "momentum", "beta1", "beta2", "schedule")
    inner = _Section("training.optimizer", table, known)
    name = inner.text("name", None, options=("sgd", "adam"))
    defaults = _OPTIMIZERS[name]
    for key in ("momentum", "beta1", "beta2"):
        if key not in defaults:
            inner.absent(key, f'for name = "{name}"')
    found: dict[str, str | float] = {
        "name": name,
        "lr": inner.number("lr", None, least=0, most=1e6, open_low=True),
        "schedule": inner.text("schedule", "constant", options=("constant", "linear", "cosine")),
    }
    for key, default in defaults.items():
        found[key] = inner.number(key, default, least=0, most=0.999999)
    return tuple(sorted(found.items()))


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
    _check_outputs(data, study.model)
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
    if parties.shares == "full" and parties.nodes_per_silo == 1:
        raise StudyError(
            'expected parties.nodes_per_silo >= 2 with parties.shares = "full", got 1: a silo\'s '
            "only node would see its vector; raise it or leave it out"
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
    most = parties.silos - spare
    if parties.dropouts > most:
        raise StudyError(
            f"expected parties.dropouts <= silos - {spare} = {most}, "
            f"got {parties.dropouts}; lower it or add silos"
        )
    if parties.colluders > most - parties.dropouts:
        raise StudyError(
            f"expected parties.colluders <= silos - dropouts - {spare} = "
            f"{most - parties.dropouts}, got {parties.colluders}; "
            "lower colluders or dropouts, or add silos"
        )


def _check_outputs(data: Data, model: Model) -> None:
    """As many outputs as the target in the files has classes, one for two."""
    classes = 2 if data.positive else len(data.classes)
    wanted = classes if classes > 2 else 1
    if data.files and model.outputs != wanted:
        raise StudyError(
            f"expected model.outputs = {wanted} for a target of {classes} classes, "
            f"got {model.outputs}; set it, or mend data.classes"
        )


def _check_size(table: Mapping[str, Any]) -> None:
    """Refuse keys, texts, whole numbers and depths that could spoil a later sentence or program."""
    left: list[tuple[str, Any, int]] = [("", table, 1)]
    while left:
        path, value, level = left.pop()
        if isinstance(value, int) and abs(value) > _MOST_WHOLE:
            raise StudyError(
                f"expected {path} to fit into 64 bits, got a number of {value.bit_length()} bits; "
                "choose a smaller one"
            )
        if isinstance(value, str) and not _is_printable(value, _MOST_TEXT):
            raise StudyError(
                f"expected {path} to be at most {_MOST_TEXT} printable characters, "
                f"got {_shown(value)}; shorten or correct it"
            )
        if isinstance(value, Mapping | list) and level > _MOST_LEVELS:
            raise StudyError(
                f"expected at most {_MOST_LEVELS} levels of tables and lists, "
                f"got more in {path}; remove it"
            )
        if isinstance(value, Mapping):
            left += [(_path(path, key), inner, level + 1) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(path, inner, level + 1) for inner in value]


def _path(path: str, key: object) -> str:
    """The dotted name of a key, which must be short and printable."""
    if not isinstance(key, str) or not _is_printable(key, _MOST_KEY):
        raise StudyError(
            f"expected keys of at most {_MOST_KEY} printable characters in "
            f"{f'[{path}]' if path else 'the study'}, got {_shown(key)}; rename or remove it"
        )
    return f"{path}.{_key(key)}" if path else _key(key)


def _is_printable(text: str, longest: int) -> bool:
    """One line without control characters, not too long."""
    return len(text) <= longest and text.isprintable()


def _key(key: str) -> str:
    """A key as it is written in TOML."""
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key)


def _shown(value: object) -> str:
    """A value of the file, shortened, for an error message."""
    return _short(json.dumps(value, default=str), 80)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _fault(error: Exception, text: str) -> str:
    """Why a text could not be read as TOML."""
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"a syntax error: {_short(str(error), 200)}"
    if isinstance(error, RecursionError):
        return "lists or tables nested too deep to read"
    # Python refuses to read whole numbers of thousands of digits.
    digits = [max(map(len, re.findall(r"\d+", line)), default=0) for line in text.split("\n")]
    return f"too long a number in line {1 + digits.index(max(digits))}"


def _reason(error: Exception) -> str:
    """Why a file could not be read."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return "it is not a path"
