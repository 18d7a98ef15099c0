"""Study ids are pinned: a change of one would part every running consortium from its ledgers.

An id moves only with `hubbub.core.study.study.FORMAT`, in a release that says so. To write the
file anew then: `python -m tests.core.study.test_study_ids`.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from hubbub import Study

_PINNED = Path(__file__).with_name("study_ids.json")
_HEAD = """study.name="s"\nprivacy={epsilon=1,delta=1e-5}\nparties={silos=5,colluders=1}\n"""
_ROWS = 'data={files="{name}.csv",target="y",records=90,columns={a={low=0,high=1}}}\n'
_ADAM = 'training={steps=9,sample_rate=0.1}\nmodel={kind="mlp",hidden=[4]}\n'
_BUILT_IN = ("heart", "dialysis", "practices")
STUDIES = {
    "files": _HEAD + _ROWS + _ADAM,
    "full batch": _HEAD + _ROWS + 'training={steps=9,sampling="full-batch"}\nmodel.kind="logistic"',
    "projected": _HEAD + _ROWS + _ADAM.replace("0.1}", '0.1,projection=40,projection_kind="sign"}'),
    "correlated": _HEAD
    + _ROWS
    + _ADAM.replace("0.1}", '0.1,noise="correlated",bands=4,optimizer={name="sgd",lr=1}}'),
    "joint": _HEAD.replace("1e-5", '1e-5,relation="substitute"')
    + _ROWS
    + _ADAM.replace("sample_rate=0.1", 'batch=9,sampling="without-replacement"'),
    "patients": _HEAD + _ROWS.replace("records", 'patient="p",most_per_patient=3,records') + _ADAM,
    "times": _HEAD
    + _ROWS.replace('"y"', '{kind="time-to-event",time="t",event="e",grid=[1,2]}')
    + _ADAM,
    "attested": _HEAD
    + _ROWS
    + _ADAM
    + f'attestation.silo={{platform="sgx",measurements=[{{mr_enclave="{64 * "a"}"}}]}}',
    "statistics": _HEAD
    + 'data={files="{name}.csv",records=90,columns={a={low=0,high=1},b={categories=["x","y"]}}}\n'
    + '[statistics.q]\nkind="linear"\noutcome="a"\ncovariates={b="categories"}',
    "statistics beside a model": _HEAD
    + _ROWS
    + _ADAM
    + '[statistics]\nepsilon=0.2\nh={kind="histogram",column="a",bins=4}',
}


def _texts() -> dict[str, str]:
    shipped = files("hubbub.learning.datasets")
    built_in = {name: (shipped / f"{name}.toml").read_text() for name in _BUILT_IN}
    return STUDIES | built_in


@pytest.mark.parametrize("name", _texts())
def test_the_id_of_a_study_is_the_one_that_is_pinned(name: str) -> None:
    assert Study.parse(_texts()[name]).id.hex() == json.loads(_PINNED.read_text())[name]


def test_a_complete_column_makes_another_study() -> None:
    text = _texts()["statistics"]
    complete = Study.parse(text.replace("high=1}", "high=1,complete=true}", 1))
    assert complete.id != Study.parse(text).id
    assert complete.data.columns[0].complete


def test_a_later_key_is_in_an_id_only_where_it_is_stated() -> None:
    files = STUDIES["files"]
    plain = files.replace("high=1}", "high=1,complete=false}").replace(
        "epsilon=1,", "epsilon=1,cap=0,"
    )
    stated = (
        files.replace("high=1}", "high=1,complete=true}"),
        files.replace("epsilon=1", "epsilon=1,cap=3"),
    )
    assert Study.parse(plain).id == Study.parse(files).id
    assert len({Study.parse(text).id for text in (files, *stated)}) == 3


def test_every_pinned_study_is_another() -> None:
    assert len({*json.loads(_PINNED.read_text()).values()}) == len(_texts())


if __name__ == "__main__":
    ids = {name: Study.parse(text).id.hex() for name, text in _texts().items()}
    _PINNED.write_text(json.dumps(ids, indent=2) + "\n")
