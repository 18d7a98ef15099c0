"""The study file: what it refuses and how it says so, and what its identity depends on."""

from __future__ import annotations

import random
import sys
import tomllib
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import canonical

EXAMPLE = """
[study]
name = "heart-disease-four-hospitals"

[parties]
silos = 4
compute_nodes = 0
colluders = 1
dropouts = 0
trust = "none"

[data]
source = "hubbub.datasets:heart"
target = "disease"

[model]
kind = "logistic"

[training]
steps = 60
sampling = "poisson"
sample_rate = 0.2
clip_norm = 1.0
optimizer = { name = "adam", lr = 0.1 }
projection = 0

[privacy]
epsilon = 0.5
delta = 1e-5
relation = "add-remove"
"""
GOLDEN_ID = "4798eb86b1a0b95a541149526111c8fe369e323ef7758e2ee21af0a448c2b195"


def edited(*edits: tuple[str, str]) -> str:
    """The example with texts replaced; each must be there."""
    text = EXAMPLE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def refusal(text: str) -> str:
    """The sentence with which a study is refused."""
    with pytest.raises(StudyError) as caught:
        Study.parse(text)
    return str(caught.value)


def is_one_sentence(message: str) -> bool:
    """One printable line that says what was expected."""
    return message.isprintable() and message.startswith("expected ")


def rewritten(study: Study) -> str:
    """The study file that is written when there is no text that the study was read from."""
    return replace(study, toml="").as_toml()


def says_the_same(text: str, study: Study) -> bool:
    """Whether a study file gives this study, field by field and in its id."""
    read = Study.parse(text)
    return read == study and read.id == study.id


def nodes(new: str) -> tuple[str, str]:
    return "compute_nodes = 0", new


def silos(new: str) -> tuple[str, str]:
    return "silos = 4", new


def source(new: str) -> tuple[str, str]:
    return 'source = "hubbub.datasets:heart"', new


def rate(new: str) -> tuple[str, str]:
    return "sample_rate = 0.2", new


def optimizer(new: str) -> tuple[str, str]:
    return '{ name = "adam", lr = 0.1 }', new


FILES = 'files = "silo-{name}.csv"'
REFUSED = [
    # (what is edited, the words that the sentence must hold: key, found, expected, remedy)
    ([("[study]", "[study")], ["TOML", "syntax", "fix it"]),
    ([("[study]", "[studdy]")], ["studdy", "study, parties", "did you mean study?"]),
    ([('name = "heart-disease-four-hospitals"', "")], ["study.name", "nothing", "add it"]),
    ([('"heart-disease-four-hospitals"', '""')], ["study.name", '""', "1 to 200", "another name"]),
    ([('"heart-disease-four-hospitals"', r'"a\nb"')], ["study.name", r"a\nb", "printable"]),
    ([("four-hospitals", "h" * 200)], ["study.name", "...", "1 to 200"]),
    ([('"heart-disease-four-hospitals"', "7")], ["study.name", "a text", "7", "quotes"]),
    ([("[privacy]", "[privacy_]")], ["privacy_", "did you mean privacy?"]),
    ([("[parties]", "[[parties]]")], ["table [parties]", "a table of keys and values"]),
    ([("[study]\n", "model = 3\n[study]\n"), ("[model]", "[data.x]")], ["model", "3"]),
    ([silos("")], ["parties.silos", "nothing", "a whole number", "add it"]),
    ([silos("silos = 1")], ["parties.silos", "from 2 to 100000", "got 1", "choose"]),
    ([silos("silos = 100001")], ["parties.silos", "100000", "100001", "choose"]),
    ([silos("silos = 4.0")], ["parties.silos", "a whole number", "4.0", "choose"]),
    ([silos("silos = true")], ["parties.silos", "a whole number", "true", "choose"]),
    ([silos('silos = "4"')], ["parties.silos", "a whole number", '"4"', "choose"]),
    ([silos("silo = 4")], ["silo = 4", "[parties]", "did you mean silos?"]),
    ([silos('names = ["a"]')], ["parties.names", '["a"]', "at least two", "rename"]),
    ([silos('names = ["a", "a", "b"]')], ["parties.names", "different", '["a", "a", "b"]']),
    ([silos('names = ["A", "b", "c"]')], ["parties.names", "a-z", '"A"', "rename"]),
    ([silos('names = ["a", "../b", "c"]')], ["parties.names", "../b", "rename"]),
    ([silos('names = ["a", "test", "c"]')], ["parties.names", "other than test", "rename"]),
    ([silos('names = ["a", "node-1", "c"]')], ["parties.names", "node-", "rename"]),
    ([silos('names = ["a", "relay", "c"]')], ["parties.names", "relay", "rename"]),
    ([silos('names = ["everybody", "b"]')], ["parties.names", "everybody", "rename"]),
    ([silos('names = ["a", "..", "c"]')], ["parties.names", '".."', "rename"]),
    ([silos('names = ["a", "b", "c"]\nsilos = 3.0')], ["parties.silos", "whole", "3.0", "choose"]),
    ([silos('names = "a, b, c"')], ["parties.names", "a list of texts", '"a, b, c"']),
    (
        [silos('silos = 4\nnames = ["a", "b", "c"]')],
        ["parties.silos", "3", "got 4", "leave it out"],
    ),
    ([("compute_nodes = 0", "compute_nodes = -1")], ["compute_nodes", "from 0 to 1000", "-1"]),
    ([("colluders = 1\n", "")], ["parties.colluders", "nothing", "add it"]),
    (
        [("colluders = 1", "colluders = 3")],
        ["colluders <= silos - dropouts - 2 = 2", "got 3", "add"],
    ),
    ([("colluders = 1", "colluders = 2"), ("dropouts = 0", "dropouts = 1")], ["= 1", "got 2"]),
    (
        [("colluders = 1", "colluders = 0"), ("dropouts = 0", "dropouts = 3")],
        ["parties.dropouts <= silos - 2 = 2", "got 3", "lower"],
    ),
    ([('trust = "none"', 'trust = "all"')], ["parties.trust", '"none", "tee"', '"all"', "choose"]),
    (
        [("compute_nodes = 0", "nodes_per_silo = 2")],
        ["nodes_per_silo", "compute_nodes = 0", "got 2"],
    ),
    ([("compute_nodes = 0", 'shares = "full"')], ["compute_nodes >= 2", "shares", "got 0", "add"]),
    (
        [("compute_nodes = 0", 'shares = "half"')],
        ["parties.shares", '"compressed", "full"', "half"],
    ),
    ([source("")], ["data.source", "data.files", "neither", "write"]),
    ([source(f'source = "python:a:b"\n{FILES}')], ["data.source", "data.files", "both"]),
    ([source('source = "heart"')], ["data.source", "module:function", '"heart"', "fix"]),
    ([source('source = ":"')], ["data.source", "module:function", '":"', "fix"]),
    ([source('source = "a:b c"')], ["data.source", "hubbub.datasets:name", "b c", "fix"]),
    ([source('source = "python:heart"')], ["data.source", "python:module:function", "fix"]),
    (
        [source('source = "os:system"')],
        ["data.source", "hubbub.datasets:name", "os:sys", 'write "py'],
    ),
    ([source('source = "python:os:"')], ["data.source", "python:module:function", "os:", "fix"]),
    ([source('files = "all.csv"')], ["data.files", "{name}", "all.csv", "fix"]),
    ([source('files = "{name}.xls"')], ["data.files", ".parquet", "{name}.xls", "fix"]),
    ([source('source = "python:a:b"\ntest = "t.csv"')], ["data.test", "absent", "t.csv", "remove"]),
    ([source(FILES + "\noptions = { a = 1 }")], ["data.options", "absent", "remove"]),
    ([source('source = "python:a:b"\noptions = { a = [1] }')], ["data.options", "plain", "write"]),
    ([source('source = "python:a:b"\nrecords = 3')], ["data.records >= 4", "got 3", "fix"]),
    ([source(FILES), ('target = "disease"', "")], ["data.target", "nothing", "add it"]),
    (
        [source('source = "python:a:b"\noptions = { a = nan }')],
        ["data.options", "plain", "NaN", "write"],
    ),
    ([source(FILES + '\ntest = "t.xls"')], ["data.test", ".parquet", "t.xls", "fix"]),
    ([source(FILES + '\npositive = "1"')], ["data.positive", "a list of texts", '"1"', "write"]),
    ([source('files = "{name}\\u0000.csv"')], ["data.files", "printable", r"\u0000", "correct"]),
    (
        [source(FILES + "\ncolumns = { disease = { low = 0, high = 1 } }")],
        ["data.target", "data.columns", '"disease"', "remove"],
    ),
    (
        [source(FILES + f"\ncolumns = {{ age = {{ low = 1, categories = {['x'] * 999} }} }}")],
        ["data.columns.age", "either categories or low", "both", "remove"],
    ),
    (
        [source(FILES + f"\ncolumns = {{ age = {{ missing = {[0.5] * 999} }} }}")],
        ["data.columns.age.missing", "a list of texts", "...", "write"],
    ),
    ([source(FILES + "\ncolumns = 3")], ["data.columns", "a table", "3"]),
    ([source(FILES + "\ncolumns = { age = { lo = 1 } }")], ["data.columns.age", "lo", "low"]),
    ([('kind = "logistic"', "")], ["model.kind", "nothing", "add it"]),
    ([('kind = "logistic"', 'kind = "tree"')], ["model.kind", '"mlp"', '"tree"', "choose"]),
    ([('kind = "logistic"', 'kind = "python::"')], ["model.kind", "python::", "choose"]),
    (
        [('kind = "logistic"', 'kind = "mlp"\nhidden = [8]\ninputs = [100000, 100000]')],
        ["model.inputs", "1000000000", "100000", "lower"],
    ),
    ([('kind = "logistic"', 'kind = "python:factory"')], ["model.kind", "python:module:factory"]),
    ([('kind = "logistic"', 'kind = "mlp"')], ["model.hidden", "nothing", "add hidden"]),
    ([('kind = "logistic"', 'kind = "logistic"\nhidden = [3]')], ["model.hidden", "[3]", "remove"]),
    ([('kind = "logistic"', 'kind = "mlp"\nhidden = [0]')], ["model.hidden", "positive", "[0]"]),
    ([('kind = "logistic"', 'kind = "logistic"\nbias = 1')], ["model.bias", "true or false", "1"]),
    (
        [('kind = "logistic"', 'kind = "logistic"\noutputs = 0')],
        ["model.outputs", "from 1", "got 0"],
    ),
    ([("steps = 60", "steps = 0")], ["training.steps", "from 1 to 1000000", "got 0", "choose"]),
    ([("steps = 60", "steps = 1e3")], ["training.steps", "a whole number", "1000.0", "choose"]),
    ([("steps = 60", "epochs = 60")], ["epochs = 60", "[training]", "did you mean steps?"]),
    (
        [('sampling = "poisson"', 'sampling = "Poisson"')],
        ["training.sampling", '"poisson"', "choose"],
    ),
    ([rate("")], ["training.sample_rate", "training.batch", "neither", "keep one"]),
    ([rate("sample_rate = 0.2\nbatch = 4")], ["sample_rate", "batch", "both", "keep one"]),
    ([rate("batch = 4")], ["data.records", "training.batch", "state"]),
    (
        [rate("batch = 41"), source('source = "python:a:b"\nrecords = 40')],
        ["training.batch", "40", "41"],
    ),
    ([rate("sample_rate = 0")], ["sample_rate", "above 0 to 1", "got 0", "choose"]),
    ([rate("sample_rate = 1.01")], ["sample_rate", "above 0 to 1", "1.01", "choose"]),
    ([rate("sample_rate = nan")], ["sample_rate", "above 0 to 1", "NaN", "choose"]),
    ([rate('sample_rate = "20 %"')], ["sample_rate", "a number", "20 %", "choose"]),
    (
        [('"poisson"', '"full-batch"')],
        ["sample_rate", '1 with sampling = "full-batch"', "0.2", "leave"],
    ),
    (
        [('"poisson"', '"full-batch"'), rate("batch = 4")],
        ["training.batch", "absent", "4", "remove"],
    ),
    ([('"poisson"', '"without-replacement"')], ["privacy.relation", '"substitute"', "add-remove"]),
    (
        [('"poisson"', '"without-replacement"'), ('"add-remove"', '"substitute"')],
        ["data.records", "without-replacement", "nothing", "Poisson"],
    ),
    (
        [("clip_norm = 1.0", "clip_norm = 0.0")],
        ["training.clip_norm", "from 1e-29", "0.0", "choose"],
    ),
    (
        [("clip_norm = 1.0", "clip_norm = 1e-30")],
        ["training.clip_norm", "from 1e-29", "1e-30", "choose"],
    ),
    (
        [("clip_norm = 1.0", "clip_norm = inf")],
        ["training.clip_norm", "1e+09", "Infinity", "choose"],
    ),
    ([optimizer('"adam"')], ["training.optimizer", "a table with a name", '"adam"', "write"]),
    ([optimizer('{ name = "rms", lr = 1.0 }')], ["optimizer.name", '"adam", "sgd"', '"rms"']),
    ([optimizer('{ name = "adam" }')], ["training.optimizer.lr", "nothing", "add it"]),
    ([optimizer('{ name = "adam", lr = 0.1, l = 1 }')], ["l = 1", "optimizer", "lr"]),
    ([optimizer('{ name = "sgd", lr = 0.1, momentum = 1 }')], ["momentum", "0.999999", "got 1"]),
    ([optimizer('{ name = "sgd", lr = 0.1 }')], ["data.records", '"sgd"', "nothing", "adam"]),
    ([("projection = 0", "projection = -5")], ["training.projection", "from 0", "-5", "choose"]),
    ([("epsilon = 0.5", "epsilon = 0")], ["privacy.epsilon", "0.001 to 50", "got 0", "choose"]),
    ([("epsilon = 0.5", "epsilon = 51")], ["privacy.epsilon", "0.001 to 50", "got 51", "choose"]),
    ([("epsilon = 0.5", "epsilon = false")], ["privacy.epsilon", "a number", "false", "choose"]),
    ([("delta = 1e-5", "delta = 1e-13")], ["privacy.delta", "1e-12 to 0.1", "1e-13", "choose"]),
    ([("delta = 1e-5", "delta = 0.2")], ["privacy.delta", "1e-12 to 0.1", "0.2", "choose"]),
    ([("delta = 1e-5", "")], ["privacy.delta", "nothing", "a number", "add it"]),
    ([("epsilon = 0.5", "epsilon = 2024-01-01")], ["privacy.epsilon", "2024-01-01", "choose"]),
    ([('"add-remove"', '"replace"')], ["privacy.relation", '"substitute"', '"replace"', "choose"]),
    ([('"add-remove"', '"add-remove"\n"a\\nb" = 1')], ["[privacy]", r'"a\nb"', "remove it"]),
    ([('"add-remove"', f'"add-remove"\n{"k" * 101} = 1')], ["[privacy]", "100", "kkk", "remove"]),
    ([('"add-remove"', '"add-remove"\n"a b" = 1')], ["[privacy]", '"a b" = 1', "remove it"]),
]


@pytest.mark.parametrize(
    ("edits", "words"), REFUSED, ids=[f"{n}:{e[0][1][:30]!r}" for n, (e, _) in enumerate(REFUSED)]
)
def test_a_malformed_study_is_refused_in_one_sentence_that_helps(edits, words):
    message = refusal(edited(*edits))
    assert is_one_sentence(message), message
    assert [word for word in words if word not in message] == [], message


CONTRADICTORY = {
    # What is scored without noise would be a silo's own records.
    "a silo's file as the test file": (
        [source(FILES + '\ntest = "silo-silo-1.csv"')],
        ["data.test", "a public file", "silo-silo-1.csv"],
    ),
    "a silo's file by another path": (
        [source(FILES + '\ntest = "x/.././silo-silo-2.csv"')],
        ["data.test", "a public file"],
    ),
    "a part of a silo's": (
        [source('files = "parts/{name}/"\ntest = "parts/silo-2/one.parquet"')],
        ["data.test", "a public file"],
    ),
    "a target without a name": (
        [source(FILES), ('target = "disease"', 'target = " "')],
        ["data.target", "the name of a column"],
    ),
    "a target's table without a name": (
        [source(FILES), ('target = "disease"', 'target = { kind = "class", column = "" }')],
        ["data.target.column", "the name of a column"],
    ),
    # Settings that would be ignored without a word.
    "full share to one node": (
        [silos('silos = 4\nshares = "full"\nnodes_per_silo = 1'), nodes("compute_nodes = 2")],
        ["nodes_per_silo >= 2", "shares", "got 1", "raise"],
    ),
    "adam with momentum": (
        [optimizer('{ name = "adam", lr = 0.1, momentum = 0.5 }')],
        ["optimizer.momentum", "absent", '"adam"', "0.5", "remove"],
    ),
    "sgd with beta1": (
        [optimizer('{ name = "sgd", lr = 0.1, beta1 = 0.5 }')],
        ["optimizer.beta1", "absent", '"sgd"', "0.5", "remove"],
    ),
    "classes beside positive": (
        [source(FILES + '\nclasses = ["a", "b"]\npositive = ["b"]\nnegative = ["a"]')],
        ["data.classes", "absent", "data.positive", '["a", "b"]', "remove"],
    ),
    "positive without negative": (
        [source(FILES + '\npositive = ["b"]')],
        ["data.negative", "count as 0", "nothing", "list them all"],
    ),
    "negative without positive": (
        [source(FILES + '\nnegative = ["b"]')],
        ["data.positive", "count as 1", "nothing", "list them all"],
    ),
    "a spelling in both lists": (
        [source(FILES + '\npositive = ["b", "1.0"]\nnegative = ["1"]')],
        ["data.negative", "data.positive has not", '["1"]', "fix"],
    ),
    "hidden of a factory": (
        [('kind = "logistic"', 'kind = "python:a:b"\nhidden = [3]')],
        ["model.hidden", "absent", "[3]", "remove"],
    ),
    "bias of a factory": (
        [('kind = "logistic"', 'kind = "python:a:b"\nbias = false')],
        ["model.bias", "absent", "false", "remove"],
    ),
    # A target that the model cannot learn.
    "no classes": ([source(FILES + "\nclasses = []")], ["data.classes", "two", "[]", "once"]),
    "one class": ([source(FILES + '\nclasses = ["a"]')], ["data.classes", "two", '["a"]', "once"]),
    "class twice": (
        [source(FILES + '\nclasses = ["a", "a"]')],
        ["data.classes", "different", '["a", "a"]', "once"],
    ),
    "class twice in two spellings": (
        [source(FILES + '\nclasses = ["1", "1.0"]')],
        ["data.classes", "different", '["1", "1.0"]', "once"],
    ),
    "too few outputs": (
        [source(FILES + '\nclasses = ["a", "b", "c"]')],
        ["model.outputs = 3", "3 classes", "got 1", "data.classes"],
    ),
    "too many outputs": (
        [source(FILES), ('kind = "logistic"', 'kind = "logistic"\noutputs = 2')],
        ["model.outputs = 1", "2 classes", "got 2", "data.classes"],
    ),
    "an image of one number": (
        [('kind = "logistic"', 'kind = "cnn"\ninputs = [9]')],
        ["model.inputs", "height", "[9]", "fix"],
    ),
    # Colluders that are more than the silos, or leave no noise.
    "colluders": (
        [('trust = "none"', 'trust = "tee"'), ("colluders = 1", "colluders = 100")],
        ["colluders <= silos - dropouts - 1 = 3", "got 100", "lower"],
    ),
    "colluders and dropouts": (
        [
            ('trust = "none"', 'trust = "tee"'),
            ("colluders = 1", "colluders = 3"),
            ("dropouts = 0", "dropouts = 1"),
        ],
        ["colluders <= silos - dropouts - 1 = 2", "got 3", "lower"],
    ),
}


@pytest.mark.parametrize(("edits", "words"), CONTRADICTORY.values(), ids=CONTRADICTORY)
def test_a_contradictory_study_is_refused(edits, words):
    message = refusal(edited(*edits))
    assert is_one_sentence(message), message
    assert [word for word in words if word not in message] == [], message


def test_full_shares_and_all_colluders_but_one_in_tees_are_studies():
    full = Study.parse(edited(nodes('compute_nodes = 2\nshares = "full"')))
    assert full.parties.shares == "full"
    tee = edited(('trust = "none"', 'trust = "tee"'), ("colluders = 1", "colluders = 3"))
    assert Study.parse(tee).parties.colluders == 3


DEEP = ".x" * 30
HOSTILE = {
    # What is read, and words that the sentence must hold.
    "NUL": ("\0", ["syntax"]),
    "control character": (EXAMPLE.replace("heart-", "heart\a"), ["syntax", "line 3"]),
    "escaped control character": (
        EXAMPLE.replace("heart-", r"heart\u009b"),
        ["study.name", r"\u009b", "printable"],
    ),
    "text that reads backwards": (
        EXAMPLE.replace("disease", r"\u202edisease", 1),
        ["study.name", r"\u202e", "printable"],
    ),
    "deep list": ("x = " + "[" * 5000, ["nested too deep", "fix"]),
    "deep inline table": ("x = " + "{x = " * 5000, ["nested too deep", "fix"]),
    "list of 100 levels": (
        EXAMPLE.replace("steps = 60", "steps = " + "[" * 100 + "]" * 100),
        ["training.steps", "8 levels", "remove"],
    ),
    "deep table": (EXAMPLE + f"[study{DEEP}]", ["study.x.x", "8 levels", "remove"]),
    "deep table twice": (f"[study{DEEP}]\n" * 2, ["syntax", "..."]),
    "long number": (
        EXAMPLE.replace("steps = 60", "steps = " + "9" * 5000),
        ["too long a number in line 20", "fix"],
    ),
    "long hexadecimal number": (
        EXAMPLE.replace("steps = 60", "steps = 0x" + "f" * 5000),
        ["training.steps", "64 bits", "20000 bits", "smaller"],
    ),
    "number past 64 bits": (
        EXAMPLE.replace("epsilon = 0.5", f"epsilon = {2**63}"),
        ["privacy.epsilon", "64 bits", "smaller"],
    ),
    "long text": (
        EXAMPLE.replace("steps = 60", 'steps = 60\nname = "' + "x" * 10**5 + '"'),
        ["training.name", "at most 1000", "xxx...", "shorten"],
    ),
    "long key": (EXAMPLE + "x" * 10**5 + " = 1", ["[privacy]", "at most 100", "rename"]),
    "long list": (
        EXAMPLE.replace("silos = 4", f"names = {['a'] * 10_000}"),
        ["parties.names", "different", "...", "rename"],
    ),
}


@pytest.mark.parametrize(("text", "words"), HOSTILE.values(), ids=HOSTILE)
def test_text_made_to_break_a_parser_is_refused_like_any_other(text, words):
    message = refusal(text)
    assert is_one_sentence(message)
    assert len(message) < 1000
    assert [word for word in words if word not in message] == [], message


def test_a_missing_or_unreadable_file_is_refused(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b'[study]\nname = "caf\xe9"')
    nowhere = (tmp_path / "absent.toml", tmp_path / "a\nb.toml", tmp_path, "a\0b")
    for path in (*nowhere, tmp_path / "latin.toml"):
        with pytest.raises(StudyError, match="readable study file") as caught:
            Study.load(path)
        assert is_one_sentence(str(caught.value))


def test_a_file_is_read_as_its_text(tmp_path):
    (tmp_path / "study.toml").write_text(EXAMPLE, encoding="utf-8")
    assert Study.load(tmp_path / "study.toml") == Study.parse(EXAMPLE)


# Any table at all ------------------------------------------------------------------------------

_SECTIONS = tuple(tomllib.loads(EXAMPLE))
_KEYS = (
    *_SECTIONS,
    *("name", "silos", "names", "compute_nodes", "nodes_per_silo", "colluders", "dropouts"),
    *("trust", "shares", "source", "files", "test", "target", "positive", "classes", "columns"),
    *("options", "records", "kind", "hidden", "inputs", "outputs", "bias", "steps", "sampling"),
    *(
        "sample_rate",
        "batch",
        "clip_norm",
        "optimizer",
        "projection",
        "epsilon",
        "delta",
        "relation",
    ),
)
_TEXTS = ["", "none", "tee", "full", "poisson", "adam", "sgd", "mlp", "python:a:b", "{name}.csv"]
_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 5),
    st.floats(),
    st.floats(0, 1),
    st.text(max_size=8),
    st.sampled_from(_TEXTS),
    st.dates(),
)
_keys = st.sampled_from(_KEYS) | st.text(max_size=6)
_values = st.recursive(
    _plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=8,
)


def _outcome(read, given):
    """The study, or the error that refuses it."""
    try:
        return read(given)
    except StudyError as error:
        return error


def _is_proper(outcome):
    """A study that can be written down and read again, or a refusal in one sentence."""
    if isinstance(outcome, Study):
        return len(outcome.id) == 32 and says_the_same(rewritten(outcome), outcome)
    return is_one_sentence(str(outcome))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.dictionaries(_keys, _values, max_size=7))
def test_any_table_is_a_study_or_a_study_error(table):
    assert _is_proper(_outcome(Study.from_table, table))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_study_with_any_one_entry_changed_is_a_study_or_a_study_error(data):
    table = tomllib.loads(EXAMPLE)
    section = table[data.draw(st.sampled_from(sorted(table)))]
    section[data.draw(st.sampled_from([*section, *_KEYS]))] = data.draw(_values)
    assert _is_proper(_outcome(Study.from_table, table))


_column = st.dictionaries(
    st.sampled_from(["low", "high", "categories", "default", "indicator", "missing", "x"]),
    _values | st.lists(st.sampled_from(["a", "b", "1", "1.0", 1, 2]), max_size=3),
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=4), _column | _values, max_size=2))
def test_any_table_of_columns_is_a_study_or_a_study_error(columns):
    table = tomllib.loads(edited(source(FILES)))
    table["data"]["columns"] = columns
    assert _is_proper(_outcome(Study.from_table, table))


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_study_or_a_study_error(text):
    assert _is_proper(_outcome(Study.parse, text))


# Identity --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "new"),
    [
        ([("clip_norm = 1.0", "clip = 1.0")], "clip_norm"),
        ([("steps = ", "epochs = ")], "steps"),
    ],
)
def test_a_word_of_another_library_is_refused_with_ours(edits, new):
    with pytest.raises(StudyError, match=f"did you mean {new}"):
        Study.parse(edited(*edits))


def test_the_id_of_the_example_is_as_committed():
    assert Study.parse(EXAMPLE).id.hex() == GOLDEN_ID


def test_comments_spaces_and_the_order_of_keys_do_not_change_the_id():
    blocks = [block.splitlines() for block in EXAMPLE.strip().split("\n\n")]
    generator = random.Random(1)
    for _ in range(5):
        generator.shuffle(blocks)
        lines = []
        for head, *keys in blocks:
            generator.shuffle(keys)
            spaced = [key.replace("= ", "   =\t", 1) + "  # why" for key in keys]
            lines += ["# a comment", f"  {head}", "", *spaced, ""]
        assert Study.parse("\n".join(lines)).id.hex() == GOLDEN_ID


def test_what_is_said_by_default_does_not_change_the_id():
    defaults = ["compute_nodes = 0", "dropouts = 0", 'trust = "none"', 'sampling = "poisson"']
    defaults += ["clip_norm = 1.0", "projection = 0", 'relation = "add-remove"']
    defaults += ['optimizer = { name = "adam", lr = 0.1 }']
    assert Study.parse(edited(*((line, "") for line in defaults))).id.hex() == GOLDEN_ID
    names = silos('names = ["silo-1", "silo-2", "silo-3", "silo-4"]')
    assert Study.parse(edited(names)).id.hex() == GOLDEN_ID


def test_the_defaults_of_an_optimizer_do_not_change_the_id():
    adam = '{ name = "adam", lr = 0.1, beta1 = 0.9, beta2 = 0.999, schedule = "constant" }'
    assert Study.parse(edited(optimizer(adam))).id.hex() == GOLDEN_ID
    records = source('source = "python:a:b"\nrecords = 40')
    sgd = [
        Study.parse(edited(records, optimizer(f'{{ name = "sgd", lr = 0.1{more} }}')))
        for more in ("", ", momentum = 0", ", momentum = -0.0", ', schedule = "constant"')
    ]
    assert len({one.id for one in sgd}) == 1


@pytest.mark.parametrize(
    "setting",
    [
        rate("sample_rate = @"),
        ("clip_norm = 1.0", "clip_norm = @"),
        ("epsilon = 0.5", "epsilon = @"),
        optimizer('{ name = "adam", lr = @ }'),
        source(FILES + "\ncolumns = { age = { low = @, high = 2 } }"),
        source(FILES + "\ncolumns = { age = { low = 0, high = @ } }"),
        source(FILES + "\ncolumns = { age = { low = 0, high = 2, default = @ } }"),
        source(FILES + '\ncolumns = { age = { categories = ["0", "1"], default = @ } }'),
    ],
    ids=["rate", "clip", "epsilon", "lr", "low", "high", "default", "default category"],
)
def test_a_whole_number_is_the_same_setting_with_and_without_a_decimal_point(setting):
    old, new = setting
    one, other = (Study.parse(edited((old, new.replace("@", text)))) for text in ("1", "1.0"))
    assert one == other
    assert one.id == other.id


def test_a_batch_is_the_rate_that_it_stands_for():
    stated = source('source = "hubbub.datasets:heart"\nrecords = 720')
    batch = Study.parse(edited(stated, rate("batch = 144")))
    assert batch == Study.parse(edited(stated))


CHANGES = [
    ("four-hospitals", "five-hospitals"),
    silos("silos = 5"),
    silos('names = ["silo-1", "silo-2", "silo-4", "silo-3"]'),
    ("compute_nodes = 0", "compute_nodes = 3"),
    ("compute_nodes = 0", "compute_nodes = 3\nnodes_per_silo = 2"),
    ("compute_nodes = 0", 'compute_nodes = 3\nshares = "full"'),
    ("colluders = 1", "colluders = 2"),
    ("dropouts = 0", "dropouts = 1"),
    ('trust = "none"\n', 'trust = "tee"\n'),
    source('source = "hubbub.datasets:liver"'),
    source('source = "python:other:heart"'),
    source(FILES),
    source(FILES + '\npositive = ["1"]\nnegative = ["0"]'),
    source(FILES + '\npositive = ["1"]\nnegative = ["0", "no"]'),
    source(FILES + '\nclasses = ["a", "b"]'),
    source(FILES + '\nclasses = ["b", "a"]'),
    source(FILES + '\ntest = "test.csv"'),
    source(FILES + "\ncolumns = { age = { low = 20, high = 90 } }"),
    source(FILES + "\ncolumns = { age = { low = 20, high = 91 } }"),
    source('source = "hubbub.datasets:heart"\noptions = { split = 1 }'),
    source('source = "hubbub.datasets:heart"\nrecords = 700'),
    ('target = "disease"', 'target = "death"'),
    ('kind = "logistic"', 'kind = "mlp"\nhidden = [8]'),
    ('kind = "logistic"', 'kind = "mlp"\nhidden = [8, 8]'),
    ('kind = "logistic"', 'kind = "logistic"\ninputs = [26]'),
    ('kind = "logistic"', 'kind = "logistic"\noutputs = 2'),
    ('kind = "logistic"', 'kind = "logistic"\nbias = false'),
    ("steps = 60", "steps = 61"),
    rate("sample_rate = 0.20000000000000004"),
    ("clip_norm = 1.0", "clip_norm = 0.5"),
    optimizer('{ name = "adam", lr = 0.2 }'),
    optimizer('{ name = "adam", lr = 0.1, beta1 = 0.5 }'),
    optimizer('{ name = "adam", lr = 0.1, schedule = "cosine" }'),
    ("projection = 0", "projection = 10"),
    ("epsilon = 0.5", "epsilon = 0.6"),
    ("delta = 1e-5", "delta = 1e-6"),
    ('"add-remove"', '"substitute"'),
]


def test_every_change_of_meaning_changes_the_id():
    ids = {Study.parse(edited(change)).id.hex() for change in CHANGES}
    assert len(ids | {GOLDEN_ID}) == len(CHANGES) + 1


def test_the_canonical_form_does_not_hold_the_text_of_the_file():
    text = edited(("[study]", "# a private remark\n[study]"))
    assert b"private remark" not in Study.parse(text).canonical
    assert Study.parse(text).toml == text


# Written anew ----------------------------------------------------------------------------------

COLUMNS = r"""
files = "silo-{name}.csv"
test = "test.csv"
classes = ["no", "yes", "2"]
columns.zinc = { low = -0.0, high = 1e-7, default = 0, indicator = true }
columns.age = { low = 20, high = 90, step = 1, default = 50, missing = ["?", "n/a"] }
columns."blood \"pressure\" in µ" = { categories = [1, 2, "3.0"], default = 2.0 }
columns."a.b" = { categories = ["", "'"], default = "", missing = ["#"] }
"""
OPTIONS = """
source = "python:a:b"
options = { split = 1, rate = 1.0, least = 5e-324, most = 1e22, zero = -0.0, yes = true, "" = "é" }
"""
VALID = {
    "example": EXAMPLE,
    **{new: edited((old, new)) for old, new in CHANGES},
    "columns": edited(source(COLUMNS), ('kind = "logistic"', 'kind = "logistic"\noutputs = 3')),
    "files whose target has the name that sources have by default": edited(
        source(FILES), ('"disease"', '"target"')
    ),
    "options": edited(source(OPTIONS)),
    "batches": edited(source('source = "python:a:b"\nrecords = 47'), rate("batch = 3")),
    "all records": edited(('"poisson"', '"full-batch"'), rate("")),
    "joint batches": edited(
        source('source = "python:a:b"\nrecords = 47'),
        ('"poisson"', '"without-replacement"'),
        ('"add-remove"', '"substitute"'),
    ),
    "sgd": edited(
        source('source = "python:a:b"\nrecords = 40'),
        optimizer('{ name = "sgd", lr = 1, momentum = 0.9, schedule = "linear" }'),
    ),
    "a model of one's own": edited(
        ('kind = "logistic"', 'kind = "python:a.b:c"\ninputs = [3, 32, 32]\noutputs = 10')
    ),
    "a name with signs": edited(("heart-disease-four-hospitals", r"\\ \" ' # = [a] é")),
    "some names that count and one that does not": edited(
        silos('names = ["silo-1", "silo-2", "silo-3", "silo-5"]')
    ),
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_a_study_written_anew_says_the_same(text):
    study = Study.from_table(tomllib.loads(text))
    assert study.toml == ""
    assert says_the_same(study.as_toml(), study)


_words = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), max_size=20)
_settings = st.dictionaries(
    _words,
    st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _words,
    max_size=6,
)
_bounds = st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=2, unique=True).map(sorted)


@st.composite
def _numeric(draw):
    low, high = draw(_bounds)
    default = draw(st.none() | st.floats(low, high))
    column = {"low": low, "high": high, "indicator": default is not None and draw(st.booleans())}
    return column if default is None else {**column, "default": default}


@st.composite
def _categorical(draw):
    spellings = draw(st.lists(_words, min_size=3, max_size=6, unique_by=canonical))
    *categories, missing = spellings
    return {"categories": categories, "missing": [missing], "default": categories[-1]}


@pytest.mark.slow
@settings(max_examples=70, deadline=None)
@given(name=st.text("a\"'\\#=[]{}\u00e9\U0001f600 ", min_size=1, max_size=9), options=_settings)
def test_any_options_are_written_anew_as_they_were(name, options):
    table = tomllib.loads(EXAMPLE)
    table["study"]["name"], table["data"]["options"] = name, options
    study = Study.from_table(table)
    assert dict(study.data.options) == options
    assert says_the_same(study.as_toml(), study)


@pytest.mark.slow
@settings(max_examples=70, deadline=None)
@given(st.dictionaries(_words, _numeric() | _categorical(), min_size=1, max_size=4))
def test_any_columns_are_written_anew_in_their_order(columns):
    columns.pop("disease", None)
    assume(columns)
    table = tomllib.loads(edited(source(FILES)))
    table["data"]["columns"] = columns
    study = Study.from_table(table)
    assert [column.name for column in study.data.columns] == list(columns)
    assert says_the_same(study.as_toml(), study)


def test_a_study_that_was_read_keeps_its_text():
    text = edited(("[study]", "# a remark for people\n[study]"))
    assert Study.parse(text).as_toml() == text


def test_a_study_that_was_changed_does_not_keep_the_text_that_it_was_read_from():
    read = Study.parse(EXAMPLE)
    longer = replace(read, training=replace(read.training, steps=61))
    assert longer.toml == EXAMPLE
    assert longer.as_toml() != EXAMPLE
    assert says_the_same(longer.as_toml(), longer)


@pytest.mark.slow
def test_silos_that_are_only_counted_are_not_listed():
    text = rewritten(Study.parse(edited(silos("silos = 100000"))))
    assert "silos = 100000" in text
    assert len(text) < 1000


@pytest.mark.parametrize("epsilon", [1, 51.0])
def test_a_study_put_together_by_hand_that_no_file_can_say_is_refused(epsilon):
    read = Study.parse(EXAMPLE)
    made = replace(read, privacy=replace(read.privacy, epsilon=epsilon))
    with pytest.raises(StudyError) as caught:
        made.as_toml()
    assert is_one_sentence(str(caught.value))


# Code that a study names -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        "os:system",
        "hubbub.core.session.secure_sums:private_sum",
        "hubbub.learning.datasets.heart_disease:heart",
        "hubbub.datasets:_rows",
        "hubbub.datasets:heart.x",
        "hubbub.datasets:",
        "hubbub:datasets",
        "datasets:heart",
        " hubbub.datasets:heart",
        "Python:os:system",
        "python:python:os:system",
    ],
)
def test_only_built_in_data_goes_without_the_word_python(place):
    message = refusal(edited(source(f'source = "{place}"')))
    assert is_one_sentence(message)
    assert 'expected data.source to be "hubbub.datasets:name" or "python:' in message
    assert f'got "{place}"' in message


def test_what_a_package_may_bring_is_not_said_to_be_removed_alone():
    unknown = 'source = "wards"\nwards = "{name}.txt"'
    message = refusal(edited(source(unknown)))
    assert '"omop", "sql", "python:module:function", got "wards"; fix it, or' in message
    assert "install the package that registers it" in message
    message = refusal(edited(source('source = "python:ward.data:records"')) + "\n[wards]\n")
    assert "got wards = {}; remove it, or install the package that reads it" in message


def test_code_from_elsewhere_is_named_with_the_word_python():
    own = Study.parse(edited(source('source = "python:ward.data:records"')))
    assert own.data.source == "python:ward.data:records"
    assert 'write "python:" before' in refusal(edited(source('source = "ward.data:records"')))


def test_reading_a_study_imports_nothing_that_it_names(tmp_path, monkeypatch):
    (tmp_path / "named_by_a_study.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    named = "python:named_by_a_study:x"
    study = Study.parse(edited(source(f'source = "{named}"'), ('"logistic"', f'"{named}"')))
    assert (study.data.source, study.model.kind) == (named, named)
    assert "named_by_a_study" not in sys.modules


def test_a_key_of_thousands_of_parts_is_refused_before_it_is_read() -> None:
    with pytest.raises(StudyError, match=r"a key of more than 32 parts in line 2; fix"):
        Study.parse("\n" + "a." * 16_000 + "a = 1")
