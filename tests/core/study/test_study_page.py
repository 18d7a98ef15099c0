"""The site's page docs/study.md and the JSON schema have the keys that a study accepts."""

from __future__ import annotations

import math
import re
import runpy
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.core.study.study_file import json_schema, pages
from hubbub.estimation.kinds import KINDS

# Together they have every table, and each key that may be left out is left out of one of them.
FILES = f"""study.name="s"\nprivacy={{epsilon=1,delta=1e-5}}\nparties={{silos=3,colluders=0}}
model={{kind="logistic",inputs=[2],frozen={{weights="w.npz",sha256="{64 * "a"}"}}}}
training={{steps=9,sample_rate=1,evaluate={{every=3,epsilon=0.1}},optimizer={{name="adam",lr=1}}}}
data={{files="{{name}}.csv",target="y",columns.NAME={{low=0,high=1}},standardise.epsilon=0.1}}"""
GROUPS = FILES.replace("low=0,high=1", 'categories=["a","b"]').replace("adam", "sgd")
GROUPS = GROUPS.replace("steps=9", 'steps=9,noise="correlated"')
JOINT = """study.name="s"\nmodel.kind="logistic"\nparties={names=["a","b","c"],colluders=0}
training={steps=9,batch=3,sampling="without-replacement",projection=2}
data={source="hubbub.datasets:heart",target="y",records=9}
privacy={epsilon=1,delta=1e-5,relation="substitute"}"""
ENCLAVES = f"""\nattestation.silo={{platform="sgx",measurements=[{{mr_enclave="{64 * "a"}"}}]}}"""
CHIPS = f"""\nattestation.silo={{platform="snp",measurements=[{{measurement="{96 * "a"}"}}]}}"""
COHORT = """{source="omop",target="event",
omop={index={domain="visit"},outcome={domain="death"},columns.NAME={domain="drug"}},columns.NAME={"""
ASKED = """\n[statistics]\nepsilon=0.1\nNAME.kind="table"\n[synthetic]\nepsilon=0.1\n"""
SCORED = """\n[validation]\nepsilon=0.1\n"""
EFFECTS = """study.name="s"\nmodel.kind="logistic"\nparties={names=["a","b","c"],colluders=0}
training={steps=9,sample_rate=1}
data={files="{name}.csv",target="y",positive=["1"],negative=["0"],columns.NAME={low=0,high=1}}
privacy={epsilon=1,delta=1e-5}\n[coefficients]\nepsilon=0.1\n"""
IMAGES = """study.name="s"\nparties={silos=3,colluders=0}\nprivacy={epsilon=1,delta=1e-5}
model={kind="wide-resnet",inputs=[3,8,8],outputs=2}
data={source="python:ward:records",records=9}
training={steps=9,sample_rate=1,augment.views=2,average.kind="exponential"}"""
STUDIES = (
    EFFECTS,
    IMAGES,
    IMAGES.replace("exponential", "tail"),
    FILES + ENCLAVES + ASKED,
    GROUPS.replace("data={", "data={records=9,") + CHIPS,
    JOINT + "\nattestation={}" + SCORED,
    FILES.replace(
        '{files="{name}.csv",target="y",columns.NAME={', COHORT.replace("\n", "")
    ).replace("low=0,high=1", 'categories=["0","1"]'),
    FILES.replace('target="y"', 'target={kind="numeric",column="y",low=0,high=9}'),
    FILES.replace('target="y"', 'target={kind="time-to-event",time="y",event="e",grid=[1,2]}'),
)
DOCS = Path(__file__).parents[3] / "docs"
WRITTEN = runpy.run_path(str(DOCS / "_extensions" / "study_keys.py"))["written"]
PAGE = WRITTEN((DOCS / "study.md").read_text(encoding="utf-8"))
PARTS = re.findall(r"(?ms)^##+ `\[([\w.]+)\]`$(.*?)(?=^##|\Z)", PAGE)
SHOWN = {name: dict(re.findall(r"(?m)^\| `(\w+)` \|.*?\| (.*?) \|", text)) for name, text in PARTS}


def tables(within: dict[str, Any], above: str = "") -> dict[str, dict[str, Any]]:
    """Every table in a table, by its dotted name."""
    found = {above + key: value for key, value in within.items() if isinstance(value, dict)}
    return found | {k: v for name in found for k, v in tables(found[name], f"{name}.").items()}


def outcome(text: str, table: str, change: dict[str, Any], without: str = "") -> bytes | str:
    """The id of the study with a table changed, or why it is refused."""
    study = tomllib.loads(text)
    tables(study)[table].update(change)
    tables(study)[table].pop(without, None)
    try:
        return Study.from_table(study).id
    except StudyError as error:
        return str(error)


@pytest.mark.slow
def test_the_page_names_the_keys_that_are_accepted() -> None:
    """The refusal of a strange key lists the known ones; among columns it is one more column."""
    known = re.compile(r"(?:the keys|hold only) ([\w, ]+?)(?: in \[|, found)")
    accepted: dict[str, set[str]] = defaultdict(set)
    for text in STUDIES:
        for name in tables(tomllib.loads(text)):
            for kind in KINDS if name == "statistics.NAME" else ("",):  # each has keys of its own
                change = {"strange": 0} | ({"kind": kind} if kind else {})
                if found := known.search(str(outcome(text, name, change))):
                    accepted[name] |= set(found[1].split(", "))
    assert {name: set(rows) for name, rows in SHOWN.items()} == accepted


@pytest.mark.slow
def test_the_defaults_on_the_page_are_the_real_ones() -> None:
    """A required key cannot be left out; to write a default leaves the id as it is."""
    ids = {text: Study.parse(text).id for text in STUDIES}
    for name, key, shown in ((n, k, s) for n, rows in SHOWN.items() for k, s in rows.items()):
        having = [text for text in STUDIES if name in tables(tomllib.loads(text))]
        if shown in {"required", "either"}:
            assert any(isinstance(outcome(text, name, {}, key), str) for text in having), key
            continue
        stated = {} if shown == "none" else tomllib.loads(f"{key} = {shown.strip('`')}")
        lacking = [text for text in having if key not in tables(tomllib.loads(text))[name]]
        after = {text: outcome(text, name, stated) for text in lacking}
        same = [ids[text] == i for text, i in after.items() if isinstance(i, bytes)]
        assert set(same) == {True}, f"{name}.{key}, {shown}"


def test_every_table_of_keys_has_its_place_on_the_page() -> None:
    assert set(SHOWN) == set(pages())
    assert [name for name, rows in SHOWN.items() if not rows] == []


SCHEMA = jsonschema.Draft202012Validator(json_schema())
REGRESSION = (
    """\n[statistics.NAME]\nkind="cox"\ntime="t"\nevent="e"\ncovariates={a=[1]}\nhorizon=3"""
)


@pytest.mark.parametrize("text", [*STUDIES, FILES + REGRESSION])
def test_the_schema_takes_every_study(text: str) -> None:
    assert not [*SCHEMA.iter_errors(tomllib.loads(text))]


def test_the_schema_takes_the_numbers_that_a_study_takes_as_spellings() -> None:
    text = FILES.replace("low=0,high=1", 'categories=[0,1],default=1,missing=[-9,"n/a"]')
    assert Study.parse(text).data.columns[0].missing == ("-9", "n/a")
    assert SCHEMA.is_valid(tomllib.loads(text))
    assert not SCHEMA.is_valid(tomllib.loads(text.replace("-9", "0.5")))


# Of no type, of every other type, or none: what the schema lets through is left aside.
STRANGE = (True, [], [["?"]], 1.5, -7, "?", {"?": {"?": 1}}, None, math.nan)


def keys_and_texts() -> dict[tuple[str, str], str]:
    """Each key of each table, with the first study that has the table."""
    pairs = [(name, text) for text in STUDIES for name in tables(tomllib.loads(text))]
    first = dict(reversed(pairs))
    return {(name, key): first[name] for name in SHOWN.keys() & first for key in SHOWN[name]}


@pytest.mark.slow
def test_a_key_of_a_wrong_type_is_refused_by_its_name() -> None:
    """Nothing that is written down is passed over; a column's default may be left out as None."""
    tried = 0
    for (name, key), text in keys_and_texts().items():
        for strange in STRANGE:
            study = tomllib.loads(text)
            tables(study)[name][key] = strange
            absent = strange is None and name == "data.columns.NAME"
            if absent or SCHEMA.is_valid(study):
                continue
            said = outcome(text, name, {key: strange})
            assert isinstance(said, str), f"{name}.{key} = {strange!r} is read"
            assert said.startswith("expected "), said
            assert f"{name}.{key}" in said or (key in said and name in said), (key, said)
            tried += 1
    assert tried > 800


@pytest.mark.parametrize("strange", [True, 1.5, ["full-batch"], {"full-batch": 1}])
def test_sampling_is_named_before_what_goes_with_it(strange: object) -> None:
    text = FILES.replace("sample_rate=1,", 'sampling="full-batch",')
    assert isinstance(outcome(text, "training", {}), bytes)
    assert "expected training.sampling to be one of" in str(
        outcome(text, "training", {"sampling": strange})
    )


WRONG = {
    "no privacy": {"privacy": None},
    "a former key": {"training.clip": 1.0},
    "a rate past 1": {"training.sample_rate": 1.5},
    "a word": {"privacy.relation": "remove"},
    "a text for a number": {"training.steps": "9"},
    "a key of another kind": {"statistics": {"a": {"kind": "table", "rows": "x"}}},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_the_schema_refuses_what_is_no_study(change: dict[str, Any]) -> None:
    study = tomllib.loads(FILES)
    for path, value in change.items():
        *above, key = path.split(".")
        place = study[above[0]] if above else study
        place.pop(key, None)
        place |= {} if value is None else {key: value}
    assert [*SCHEMA.iter_errors(study)]
    with pytest.raises(StudyError):
        Study.from_table(study)


def test_a_statistic_from_elsewhere_passes_the_schema_with_any_keys() -> None:
    study = tomllib.loads(FILES + """\n[statistics.own]\nkind="median-of-means"\nblocks=7""")
    assert not [*SCHEMA.iter_errors(study)]
