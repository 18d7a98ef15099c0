"""`Study.parse`: any text, as TOML and as a study.

Laws: a `StudyError` of one short printable line, or a study, which is still the same after it was
written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources

from fuzz.reading import hold
from hubbub import Study
from hubbub.core.errors import StudyError

_LONGEST_MESSAGE = 2000
_KEYS = """
    name names silos compute_nodes nodes_per_silo colluders dropouts trust shares source files test
    target positive classes columns options records kind hidden inputs outputs bias steps sampling
    sample_rate batch clip optimizer projection lr momentum beta1 beta2 schedule epsilon delta
    relation low high default categories missing indicator study parties data model training privacy
"""
_VALUES = """
    none tee compressed full logistic mlp cnn poisson without-replacement add-remove substitute sgd
    adam constant cosine hubbub.datasets:heart python:m:f silo-{name}.csv test.parquet
"""
_OTHERS = ("inf", "nan", "-0.0", "1e400", "9223372036854775808", "0x1", "1979-05-27", '"""', "[[")
WORDS = (
    *(f"{key} = " for key in _KEYS.split()),
    *(f'"{value}"' for value in _VALUES.split()),
    *_OTHERS,
)

_WRONG = ("0", "-1", "3", "1e400", "9" * 20, '""', '"x"', "[]", '["a", "a"]', "true", "{ x = 1 }")
_NO_TOML = (
    "",
    "]]",
    "x = " + "9" * 5000,
    "x = " + "[" * 3000,
    "a." * 30 + "x = 1",
    '"\\u0000" = 1',
)
_TOO_MUCH = (
    "silos = 9",
    'names = ["a", "node-1"]',
    'positive = ["1"]',
    'negative = ["0"]',
    "bias = 3",
    "hidden = [2]",
    "inputs = [3, 4]",
    "inputs = [100000, 100000]",
    "sample_rate = 0.5",
    "y = { low = 0, high = 1 }",
    'z = { low = 0, high = 1, categories = ["a", "b"] }',
    'z = { categories = ["a", "b"], missing = ["a"], indicator = true }',
    "z = { low = 1, high = 0, default = 9 }",
    "z = { indicator = true, low = 0, high = 1 }",
)
_FULL = """study.name = "thin"
[parties]
silos = 40
compute_nodes = 3
nodes_per_silo = 2
colluders = 5
dropouts = 4
shares = "full"
[data]
files = "silo-{name}.csv"
test = "test.csv"
target = "y"
classes = ["a", "b", "c"]
records = 4000
[data.columns]
age = { low = 0, high = 120, default = 50 }
sex = { categories = ["f", "m"], default = "f", missing = ["?"], indicator = true }
[model]
kind = "mlp"
hidden = [8, 4]
outputs = 3
[training]
steps = 9
sampling = "without-replacement"
batch = 40
clip = 0.5
optimizer = { name = "sgd", lr = 0.1, momentum = 0.9 }
[privacy]
epsilon = 1
delta = 1e-6
relation = "substitute"
"""
_OWN = """[study]
name = "own"
[parties]
names = ["a", "b", "c"]
colluders = 0
trust = "tee"
[data]
source = "python:records:of"
options = { split = 1, fast = true, part = "x" }
[model]
kind = "python:models:big"
inputs = [3, 8, 8]
[training]
steps = 1
sampling = "full-batch"
projection = 3
optimizer = { name = "adam", lr = 1, beta1 = 0.5, schedule = "cosine" }
[privacy]
epsilon = 50.0
delta = 0.1
"""


def check(data: bytes) -> None:
    """One input; bytes that are no UTF-8 become lone surrogates, which no text may hold."""
    try:
        study = Study.parse(data.decode("utf-8", "surrogateescape"))
    except StudyError as error:
        said = str(error)
        hold(said.isprintable() and len(said) < _LONGEST_MESSAGE, "a sentence nobody can read")
        return
    text = replace(study, toml="").as_toml()
    hold(Study.parse(text).id == study.id, "another study after it was written anew")


def seeds() -> list[bytes]:
    """Three studies, each also with one line wrong or missing; and what TOML itself refuses."""
    heart = resources.files("hubbub.learning.datasets").joinpath("heart.toml").read_text()
    texts = [changed for text in (heart, _FULL, _OWN) for changed in (text, *_one_line_wrong(text))]
    return [text.encode() for text in (*_NO_TOML, *texts)]


def _one_line_wrong(text: str) -> Iterator[str]:
    """The text without each of its lines, with other values in it, and with more in each table."""
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        before, after = "".join(lines[:place]), "".join(lines[place + 1 :])
        yield before + after
        key, equals, _ = line.partition(" = ")
        if equals:
            yield from (f"{before}{key} = {value}\n{after}" for value in _WRONG)
        else:
            yield from (f"{before}{line}{more}\n{after}" for more in _TOO_MUCH)
