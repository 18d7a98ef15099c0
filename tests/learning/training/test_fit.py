"""`hubbub.fit`: arrays, tensors and data frames in, the whole protocol, a result out."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import hubbub
from hubbub.core.errors import BudgetError, DataError, ModelError, StudyError, UncountedWarning
from hubbub.learning.datasets import HEART_SILOS, heart
from hubbub.learning.runs import array_inputs


def silo(seed: int, rows: int = 60):
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
    return inputs, (inputs[:, 0] > 0).astype(np.float32)


class SqueezesAll(torch.nn.Linear):
    """Takes the records' own dimension away, too, where there is one record."""

    def forward(self, x):
        return super().forward(x).squeeze()


class HoldsAGraph(torch.nn.Linear):
    """As `torch.nn.utils.weight_norm` does."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.normed = self.weight / self.weight.norm()


class HoldsALock(torch.nn.Linear):
    """What no copy can be made of, nor a file."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.lock = threading.Lock()


class Leaves(torch.nn.Linear):
    def forward(self, x):
        raise SystemExit(3)


class WordsBeside(torch.nn.Linear):
    def get_extra_state(self):
        return {"step": 1}

    def set_extra_state(self, state):
        pass


class Looks(torch.nn.Embedding):
    """Has no row for large codes."""

    def forward(self, x):
        return super().forward(x.long().abs()).sum((1, 2))


class GivesATuple(torch.nn.Linear):
    """As models of transformers do with return_dict=False."""

    def forward(self, x):
        return (super().forward(x),)


SILOS = {"north": silo(1), "south": silo(2), "east": silo(3)}
SHORT = {"epsilon": 8.0, "steps": 3}


@pytest.mark.slow
def test_arrays_learn_what_the_built_in_source_does():
    """AUC .896 with a deviation of .005 over 6 runs: nine of them above what is asked."""
    silos = {name: (heart(name).inputs, heart(name).targets) for name in HEART_SILOS}
    test = heart("test")
    result = hubbub.fit(silos, epsilon=8, test=(test.inputs, test.targets))
    assert result.final["auc"] > 0.85
    assert result.epsilon <= 8
    assert result.plan.study.data.records == 735


@pytest.mark.slow
def test_silos_are_charged_and_the_folder_can_be_verified(tmp_path):
    result = hubbub.fit(SILOS, **SHORT, out=tmp_path / "run", test=silo(4))
    assert {path.name for path in (tmp_path / "ledgers").iterdir()} >= {
        "north.sqlite", "south.sqlite", "east.sqlite"
    }  # fmt: skip
    assert result.report() == tmp_path / "run" / "report.html"
    np.testing.assert_array_equal(
        hubbub.load(tmp_path / "run").predict(silo(5)[0]), result.predict(silo(5)[0])
    )


def test_a_module_of_ones_own_is_trained_and_left_as_it_was(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
    before = [value.clone() for value in module.parameters()]
    result = hubbub.fit(SILOS, **SHORT, model=module, out=tmp_path / "run")
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    trained = [value.detach() for value in result.model.parameters()]
    assert not all(torch.equal(a, b) for a, b in zip(before, trained, strict=True))
    again = hubbub.load(tmp_path / "run", model=module)
    np.testing.assert_array_equal(again.predict(silo(6)[0]), result.predict(silo(6)[0]))
    with pytest.raises(StudyError, match=r"hubbub\.fit"):
        hubbub.load(tmp_path / "run")


@pytest.mark.slow
def test_texts_tensors_and_several_classes():
    targets = np.array(["a", "b", "c"] * 20)
    silos = {name: (torch.from_numpy(x), targets) for name, (x, _) in SILOS.items()}
    result = hubbub.fit(silos, **SHORT, model="mlp", hidden=[4])
    assert result.trained.classes == ("a", "b", "c")
    assert result.predict(SILOS["north"][0]).shape == (60, 3)


@pytest.mark.slow
def test_a_data_frame_is_encoded_by_its_columns_then_and_later():
    columns = {"age": {"low": 0, "high": 100, "default": 40}, "sex": {"categories": ["f", "m"]}}
    frame = {"sex": ["f", "m"] * 30, "age": [*range(59), None]}
    silos = {name: (frame, ["yes", "no"] * 30) for name in SILOS}
    result = hubbub.fit(silos, **SHORT, columns=columns, classes=["no", "yes"])
    assert result.predict(frame).shape == (60,)
    assert result.trained.features(frame)[1].tolist() == pytest.approx([-0.98, 1.0])


def frames_of_patients():
    rng = np.random.default_rng(5)
    sexes = rng.choice(["f", "m"], (3, 400))
    ages = rng.uniform(20, 90, (3, 400))
    ill = np.where(ages + 20 * (sexes == "m") + rng.normal(0, 10, ages.shape) > 65, "ill", "well")
    return {
        name: ({"age": ages[k], "sex": sexes[k], "state": ill[k]}, ill[k])
        for k, name in enumerate(SILOS)
    }


COLUMNS = {
    "age": {"low": 20, "high": 90},
    "sex": {"categories": ["f", "m"]},
    "state": {"categories": ["well", "ill"], "feature": False},
}


@pytest.mark.slow
def test_statistics_are_asked_beside_the_training_for_their_part_of_epsilon(tmp_path):
    silos, asked = frames_of_patients(), {"kind": "crosstab", "rows": "sex", "columns": "state"}
    both = {"epsilon": 3.0, "baseline": {"kind": "table"}, "who": asked}
    more = {"columns": COLUMNS, "classes": ["well", "ill"], "statistics": both}
    result = hubbub.fit(silos, epsilon=8.0, steps=3, **more, out=tmp_path / "run")
    assert result.epsilon <= 8
    assert result.plan.dimension == 3  # of age and sex; the model does not see the state
    assert {*result.statistics} == {"baseline", "who"}
    rows = result.statistics["baseline"].rows
    mean = next(row for row in rows if (row.column, row.quantity) == ("age", "mean"))
    # The interval is that of all such patients, eleven deviations of the noise to either side.
    truth = np.mean([ages["age"] for ages, _ in silos.values()])
    assert mean.low < truth < mean.high
    assert not mean.low < 1.05 * truth < mean.high
    assert "(baseline)</h4>" in result._repr_html_()
    assert (tmp_path / "run" / "statistics.json").is_file()
    alone = hubbub.fit(silos, epsilon=8.0, steps=3, columns=COLUMNS, classes=["well", "ill"])
    assert result.plan.noise_multiplier > alone.plan.noise_multiplier


@pytest.mark.slow_cases("more3-stand out from the noise")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"columns": None}, "declare the columns"),
        ({"statistics": {"baseline": {"kind": "table"}}}, "statistics.epsilon"),
        ({"statistics": {"epsilon": 0.1, "q": {"kind": "mode"}}}, "statistics.q.kind"),
        ({"statistics": {"epsilon": 0.01, "q": {"kind": "table"}}}, "stand out from the noise"),
    ],
)
def test_statistics_that_cannot_be_asked_are_refused_before_anything_is_charged(
    tmp_path, more, words
):
    silos = frames_of_patients()
    if more.get("columns", COLUMNS) is None:
        silos = {name: (np.zeros((400, 2)), y) for name, (_, y) in silos.items()}
    asked = {"columns": COLUMNS, "statistics": {"epsilon": 3.0, "baseline": {"kind": "table"}}}
    with pytest.raises(StudyError, match=words):
        hubbub.fit(silos, epsilon=8.0, steps=3, **asked | more, out=tmp_path / "run")
    assert not (tmp_path / "ledgers").exists()


@pytest.mark.slow
def test_features_far_from_one_are_warned_of_by_their_silo():
    far = {**SILOS, "south": (silo(2)[0] * 1e6, silo(2)[1])}
    with pytest.warns(UserWarning, match=r"beyond 100 at south: .*divide by public numbers"):
        hubbub.fit(far, **SHORT)


@pytest.mark.slow
def test_the_second_class_is_the_positive_one():
    """Log-odds of 2.3 and -2.3 with deviations of .15: fifteen of them from what is asked."""
    silos = {name: (x, np.where(y > 0, "ill", "well")) for name, (x, y) in SILOS.items()}
    result = hubbub.fit(silos, epsilon=8, steps=40, classes=["well", "ill"])
    scores = result.predict(np.array([[1.0, 0, 0], [-1.0, 0, 0]]))
    assert scores[0] > 0.5 > scores[1]


@pytest.mark.slow
def test_baselines_say_against_whom_their_epsilon_holds():
    found = {
        name: repr(hubbub.fit(SILOS, **SHORT, baseline=name)) for name in ("trusted", "non-private")
    }
    assert "against those who see only models" in found["trusted"]
    assert "no epsilon: this baseline adds no noise" in found["non-private"]


@pytest.mark.slow
def test_a_result_shows_itself_and_writes_a_report_anywhere(tmp_path):
    result = hubbub.fit(SILOS, **SHORT, test=silo(4))
    assert repr(result).startswith("fit: 3 of 3 steps\nepsilon 8.00 at delta 1e-05 against the ")
    assert "auc 0." in repr(result)
    shown = result._repr_html_()
    assert "<pre>" not in shown
    assert f"<h4>{result.plan.study.name}: 3 of 3 steps</h4>" in shown
    assert "<b>epsilon 8.00 at delta 1e-05 against the aggregator together with 1 silo</b>" in shown
    assert f"{result.final['auc']:.3f}</td>" in shown
    path = result.report(tmp_path / "page.html")
    assert "<html" in path.read_text()


@pytest.mark.parametrize(
    ("silos", "more", "error", "words"),
    [
        ([silo(1), silo(2)], {}, DataError, "at least two silos, a mapping"),
        ({"north": silo(1)}, {}, DataError, "at least two silos"),
        (pd.DataFrame({"age": [1.0], "sex": [0.0]}), {}, DataError, "silos, .*found DataFrame"),
        ({**SILOS, "north": silo(1)[0]}, {}, DataError, "features and targets for north"),
        ({**SILOS, "west": (silo(1)[0][:, :2], silo(1)[1])}, {}, DataError, "for west"),
        ({**SILOS, "west": (silo(1)[0][:5], silo(1)[1])}, {}, DataError, "one target per record"),
        ({**SILOS, "west": ([["x"] * 3], [0])}, {}, DataError, "numbers as features of west"),
        (SILOS, {"classes": [1, 2]}, DataError, "targets out of .* for north"),
        (SILOS, {"model": "forest"}, StudyError, "model.kind"),
        (SILOS, {"colluders": 3}, StudyError, "colluders"),
        ({n: (x, y * 0) for n, (x, y) in SILOS.items()}, {}, DataError, "at least two classes"),
        ({**SILOS, "North Shore": silo(1)}, {}, StudyError, "rename the silos"),
        (SILOS, {"model": torch.nn.Linear}, ModelError, "got a class; pass a module"),
        (SILOS, {"model": None}, ModelError, "got NoneType"),
        (SILOS, {"model": torch.nn.Linear(3, 3)}, ModelError, r"two classes, found \(n, 3\)"),
        (SILOS, {"model": GivesATuple(3, 1)}, ModelError, "gives one tensor.*found a tuple"),
        (SILOS, {"model": HoldsALock(3, 1)}, ModelError, "can be copied, found that .*lock"),
        (SILOS, {"model": HoldsAGraph(3, 1)}, ModelError, "can be copied, .*parametrizations"),
        (SILOS, {"model": WordsBeside(3, 1), "test": silo(4)}, ModelError, "get_extra_state"),
        (SILOS, {"model": Leaves(3, 1)}, ModelError, "found that it raised SystemExit"),
        (
            SILOS,
            {"model": torch.nn.Linear(3, 2).requires_grad_(False)},
            ModelError,
            "found all of them frozen; call requires_grad_",
        ),
        ({n: SILOS[n] for n in ("north", "south")}, {}, StudyError, "use colluders=0, which"),
        (
            {n: DataLoader(TensorDataset(*map(torch.tensor, silo(1)))) for n in SILOS},
            {},
            DataError,
            "north, found a DataLoader.*pass its .dataset",
        ),
        (
            {**SILOS, "west": (np.where(np.arange(60) == 17, np.nan, 0.5)[:, None], silo(1)[1])},
            {},
            DataError,
            "west: .*undefined inputs, the first in record 17",
        ),
        (SILOS, {"model": SqueezesAll(3, 1)}, ModelError, r"found \(\); squeeze\(-1\) in place"),
        (SILOS, {"model": torch.nn.Linear(5, 1)}, ModelError, r"float32 records of shape \(4, 3\)"),
        (SILOS, {"model": torch.nn.LazyLinear(1)}, ModelError, "the lazy weight; run the model"),
        (SILOS, {"model": torch.nn.Linear(3, 1).half()}, ModelError, "model with model.float"),
        (
            SILOS,
            {"model": Looks(4, 1), "test": (9 * silo(4)[0], silo(4)[1])},
            ModelError,
            "raised IndexError; call it on the public test records to see why",
        ),
        (SILOS, {"optimizer": "adam"}, StudyError, "optimizer to be a mapping"),
        (SILOS, {"classes": 2}, DataError, "classes to be at least two different values"),
        (SILOS, {"classes": [0, 0]}, DataError, "classes to be at least two different values"),
        (SILOS, {"model": "mlp", "hidden": 4}, StudyError, "model.hidden"),
        (
            {n: (x, np.arange(60) + 60 * k) for k, (n, (x, _)) in enumerate(SILOS.items())},
            {},
            DataError,
            "at most 100 classes, found 180: each would become public",
        ),
        (
            {n: (x[:0], y[:0]) for n, (x, y) in SILOS.items()},
            {"classes": [0, 1]},
            DataError,
            "found none at all",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(silos, more, error, words):
    with pytest.raises(error, match=words):
        hubbub.fit(silos, **{**SHORT, **more})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "a target for every record of north, found none at 3"),
        (None, "a target for every record of north, found none at 3"),
        (0.25, "a number with a fraction at 3; to predict a number say"),
    ],
)
def test_what_is_no_class_does_not_become_a_public_one(value, words):
    targets = [*SILOS["north"][1]]
    targets[3] = value
    with pytest.raises(DataError, match=words):
        hubbub.fit({**SILOS, "north": (SILOS["north"][0], targets)}, **SHORT)


@pytest.mark.slow
def test_data_frames_in_another_order_are_not_taken_by_place():
    pandas = pytest.importorskip("pandas")
    frames = {n: (pandas.DataFrame(x, columns=[*"abc"]), y) for n, (x, y) in SILOS.items()}
    frames["south"] = (frames["south"][0][[*"cab"]], frames["south"][1])
    with pytest.raises(DataError, match=r"in place 1 for south and .* for north; put"):
        hubbub.fit(frames, **SHORT)
    named = {one: {"low": -1, "high": 1} for one in "abc"}
    assert hubbub.fit(frames, **SHORT, columns=named).plan.dimension == 4


@pytest.mark.slow
def test_pandas_own_missing_values_are_missing_cells():
    pandas = pytest.importorskip("pandas")

    def frame(seed):
        ages = pandas.array([30, None, *range(20, 78)], dtype="Int64")
        days = [pandas.NaT, *["2021-01-01"] * 30, *["2022-01-01"] * 29]
        return pandas.DataFrame({"age": ages, "day": days}), silo(seed)[1]

    columns = {
        "age": {"low": 20, "high": 90, "default": 50},
        "day": {"categories": ["2021-01-01", "2022-01-01"], "default": "2021-01-01"},
    }
    silos = {name: frame(k) for k, name in enumerate(SILOS)}
    result = hubbub.fit(silos, **SHORT, columns=columns)
    new = pandas.DataFrame({"age": [50, pandas.NA], "day": ["2021-01-01", pandas.NaT]})
    assert len(set(result.predict(new).tolist())) == 1


def test_rows_in_two_orders_are_not_taken_by_place():
    pandas = pytest.importorskip("pandas")
    x, y = SILOS["north"]
    turned = (pandas.DataFrame(x), pandas.Series(y[::-1], index=range(60)[::-1]))
    with pytest.raises(DataError, match="rows in one order"):
        hubbub.fit({**SILOS, "north": turned}, **SHORT)


@pytest.mark.slow
def test_columns_of_a_frame_may_be_numbered_and_categories_be_values():
    pandas = pytest.importorskip("pandas")
    silos = {n: (pandas.DataFrame({0: x[:, 0], 1: x[:, 1] > 0}), y) for n, (x, y) in SILOS.items()}
    columns = {0: {"low": np.float64(-1), "high": np.int64(1)}, 1: {"categories": [False, True]}}
    assert hubbub.fit(silos, **SHORT, columns=columns).plan.dimension == 3


@pytest.mark.slow
def test_numbers_of_numpy_are_numbers():
    settings = {"epsilon": np.float32(8), "steps": np.int64(3), "clip_norm": np.float64(1)}
    settings |= {"records": np.int64(180), "colluders": np.int64(1)}
    assert hubbub.fit(SILOS, **settings).final["step"] == 3


@pytest.mark.slow
def test_a_study_in_memory_cannot_be_run_from_its_file(tmp_path):
    hubbub.fit(SILOS, **SHORT, out=tmp_path / "run")
    study = hubbub.Study.load(tmp_path / "run" / "study.toml")
    with pytest.raises(StudyError, match=r"run the study with hubbub\.fit"):
        hubbub.run(study)


def test_a_study_from_keywords_is_checked_like_a_file():
    keywords = {
        "name": "example",
        "parties": {"silos": 4, "colluders": 1},
        "data": {"source": "hubbub.datasets:heart", "records": 740},
        "model": {"kind": "logistic", "inputs": [26]},
        "training": {"steps": 10, "sampling": "full-batch"},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }
    study = hubbub.Study(**keywords)
    assert study == hubbub.Study.parse(study.as_toml())
    with pytest.raises(StudyError, match="colluders"):
        hubbub.Study(**{**keywords, "parties": {"silos": 4, "colluders": 4}})
    with pytest.raises(StudyError, match="speed"):
        hubbub.Study(**{**keywords, "training": {"steps": 10, "speed": 3}})


# What a result tells beyond its promise --------------------------------------------------------


@pytest.mark.slow
def test_what_nobody_stated_is_read_off_and_named_in_the_summary():
    texts = {name: (x, np.where(y > 0, "ill", "well")) for name, (x, y) in SILOS.items()}
    result = hubbub.fit(texts, **SHORT)
    said = "made public because the study did not state it: the number of records (180); how many "
    said += "records a silo may hold, to a factor of 2; which classes there are (ill, well)"
    assert said in repr(result)
    assert "the number of records (180)" in result._repr_html_()
    public = {"classes": ["well", "ill"], "records": 200, "capacity": (100, 80, 80)}
    stated = hubbub.fit(texts, **SHORT, **public)
    assert stated.plan.study.data.capacity == (100, 80, 80)
    assert stated.made_public == ()
    with pytest.raises(DataError, match=r"at most 59 records of north, as data\.capacity says"):
        hubbub.fit(texts, **SHORT, **public | {"capacity": 59})
    assert "made public" not in repr(stated)
    whose = {name: [f"p{k // 2}" for k in range(60)] for name in texts}
    public |= {"records": None, "capacity": 40}
    found = hubbub.fit(texts, **SHORT, **public, patients=whose, most_per_patient=2)
    assert found.made_public == ("the number of patients (90)",)


@pytest.mark.slow
def test_a_stated_number_hides_one_record_from_the_divisor():
    """A record more or less moved the divisor, from 40.0 to 39.8."""
    fewer = {**SILOS, "north": tuple(part[1:] for part in SILOS["north"])}
    read_off = {hubbub.fit(silos, **SHORT).plan.mechanism.divisor for silos in (SILOS, fewer)}
    assert len(read_off) == 2
    public = {"records": 180, "capacity": 60}
    stated = {hubbub.fit(silos, **SHORT, **public).plan.to_json() for silos in (SILOS, fewer)}
    assert len(stated) == 1


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (
            lambda y: np.where(y > 0, "ill", "well"),
            "has classes that .* does not have, as if",
        ),
        (lambda y: y > 0, "spelled in two ways"),
        (lambda y: np.where(y > 0, 1, -1), "spelled in two ways"),
        (lambda y: np.where(y > 0, 2, 1), "spelled in two ways"),
        (lambda y: np.where(y > 0, "1", "2"), "spelled in two ways"),
    ],
    ids=["words", "truth values", "signs", "from 1", "texts"],
)
def test_classes_that_silos_spell_in_several_ways_are_refused(others, words):
    spelled = {n: (x, others(y)) for n, (x, y) in SILOS.items() if n != "north"}
    with pytest.raises(DataError, match=words):
        hubbub.fit({"north": SILOS["north"], **spelled}, **SHORT)
    cased = {n: (x, np.where(y > 0, "Ill", "well")) for n, (x, y) in SILOS.items()}
    cased["east"] = (SILOS["east"][0], ["ill", "Ill", "well"] * 20)
    with pytest.raises(DataError, match="only in case or spaces"):
        hubbub.fit(cased, **SHORT)


def test_classes_in_bytes_are_called_what_they_spell():
    silos = {name: (x, np.where(y > 0, b"ill", b"well")) for name, (x, y) in SILOS.items()}
    assert array_inputs.classes_of(silos, None) == ("ill", "well")


@pytest.mark.slow
def test_a_silo_may_lack_a_class_that_another_has_and_spell_numbers_as_texts():
    north, south = SILOS["north"], SILOS["south"]
    silos = {"north": north, "south": (south[0], [str(int(one)) for one in south[1]])}
    silos["east"] = (SILOS["east"][0], np.ones(60))
    assert hubbub.fit(silos, **SHORT).trained.classes == ("0", "1")


@pytest.mark.parametrize("classes", [None, [0, 1]])
def test_a_silo_without_records_is_refused(classes):
    empty = {**SILOS, "west": (SILOS["north"][0][:0], SILOS["north"][1][:0])}
    with pytest.raises(DataError, match="records of west, found none"):
        hubbub.fit(empty, **SHORT, classes=classes)


@pytest.mark.slow
def test_learning_again_without_a_common_ledger_warns(tmp_path):
    """Not the first time, and not where one folder of ledgers counts all."""
    silos = {f"once-{name}": silo for name, silo in SILOS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncountedWarning)
        hubbub.fit(silos, **SHORT, out=tmp_path / "one")
        hubbub.fit(silos, **SHORT, out=tmp_path / "two")
    for out in (None, tmp_path / "elsewhere" / "three", tmp_path / "four"):
        with pytest.warns(UncountedWarning, match="one folder of ledgers for all"):
            hubbub.fit(silos, **SHORT, out=out)
    fresh = {f"new-{name}": silo for name, silo in SILOS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncountedWarning)
        hubbub.fit(fresh, **SHORT)
    with pytest.warns(UncountedWarning, match="new-north, new-south"):
        hubbub.fit(fresh, **SHORT)


@pytest.mark.slow
def test_the_warning_names_every_silo_or_how_many_more_there_are():
    silos = {f"ward-{k}": silo(k) for k in range(4)}
    hubbub.fit(silos, **SHORT)
    with pytest.warns(UncountedWarning, match="ward-0, ward-1, ward-2, ward-3, found"):
        hubbub.fit(silos, **SHORT)
    silos = {f"room-{k}": silo(k) for k in range(7)}
    hubbub.fit(silos, **SHORT)
    with pytest.warns(UncountedWarning, match="room-4 and 2 more, found"):
        hubbub.fit(silos, **SHORT)


@pytest.mark.slow
def test_patients_after_records_are_refused_before_anything_is_written(tmp_path):
    hubbub.fit(SILOS, **SHORT, out=tmp_path / "one")
    before = {path.name: path.read_bytes() for path in (tmp_path / "ledgers").glob("*.sqlite")}
    patients = {name: np.arange(60) // 2 for name in SILOS}
    of_patients = {"patients": patients, "most_per_patient": 2, "out": tmp_path / "two"}
    with pytest.raises(BudgetError, match="nobody could say what patients have lost"):
        hubbub.fit(SILOS, **SHORT, **of_patients)
    after = {path.name: path.read_bytes() for path in (tmp_path / "ledgers").glob("*.sqlite")}
    assert after == before
    assert not (tmp_path / "two").exists()
    again = hubbub.fit(SILOS, **SHORT, out=tmp_path / "three")
    assert again.spending.epsilon is not None
    assert again.spending.charge == 2


@pytest.mark.slow
def test_records_that_say_how_many_a_patient_has_go_beside_patients(tmp_path):
    hubbub.fit(SILOS, **SHORT, most_per_patient=2, out=tmp_path / "one")
    patients = {name: np.arange(60) // 2 for name in SILOS}
    of_patients = {"patients": patients, "most_per_patient": 2, "out": tmp_path / "two"}
    assert hubbub.fit(SILOS, **SHORT, **of_patients).spending.charge == 2


@pytest.mark.slow
def test_what_was_spent_is_every_silos_where_all_have_spent_alike(tmp_path):
    result = hubbub.fit(SILOS, **SHORT, out=tmp_path / "one")
    assert "by the records of every silo" in repr(result)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.assign(ward="A"), "found others in 'ward'"),
        (
            lambda table: table.rename(columns={"b": "c"}),
            "'c' in place 2 for south and 'b' for north",
        ),
        (lambda table: table[["b", "a"]], "'b' in place 1 for south"),
    ],
)
def test_a_data_frame_that_does_not_fit_is_refused_by_the_names_of_its_columns(change, words):
    frames = pytest.importorskip("pandas")
    table = frames.DataFrame({"a": [0.1, 0.2, 0.3, 0.4], "b": [1.0, 0.0, 1.0, 0.0]})
    second = change(table)
    first = second if "others in" in words else table
    labels = ["no", "yes", "no", "yes"]
    with pytest.raises(DataError, match=words):
        hubbub.fit(
            {"north": (first, labels), "south": (second, labels), "west": (first, labels)},
            epsilon=1.0,
            classes=["no", "yes"],
            records=12,
            capacity=9,
        )


@pytest.mark.slow
def test_a_validation_scores_the_model_on_the_silos_own_records(tmp_path):
    silos = frames_of_patients()
    asked = {"epsilon": 4.0, "records": "held-back", "by": {"sex": "categories"}, "centres": True}
    more = {"columns": COLUMNS, "classes": ["well", "ill"], "records": 1200}
    result = hubbub.fit(silos, epsilon=8, **more, validation=asked, out=tmp_path / "run")
    told = result.validation
    assert result.epsilon <= 8
    assert told["telling"] == "auc"
    assert told["all"]["scores"]["auc"]["is_better"] is True
    groups = {(one["by"], one["group"]): one["count"] for one in told["groups"]}
    assert [*groups] == [*(("centre", name) for name in SILOS), ("sex", "f"), ("sex", "m")]
    noise = 6 * told["groups"][0]["count_error"]
    held = np.concatenate([frame["sex"] for frame, _ in silos.values()]) == "f"
    assert groups["sex", "f"] == pytest.approx(0.2 * held.sum(), abs=noise + 60)
    assert "better than guessing" in repr(result)
    assert "not evaluated" not in repr(result)
    shown = result._repr_html_()
    assert "better than guessing" in shown
    assert "Calibration: observed outcomes" in shown
    assert "Next: " in shown
    assert (tmp_path / "run" / "validation.json").is_file()
    assert "The model on about" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_a_validation_may_be_its_epsilon_alone_and_counts_for_patients():
    patients = {name: np.arange(60) // 2 for name in SILOS}
    more = {"patients": patients, "most_per_patient": 2, "validation": 6.0}
    told = hubbub.fit(SILOS, **SHORT, **more).validation
    assert told["unit"] == "patient"
    # Ninety patients of two records each: beyond five deviations lie 6e-7 of a normal law.
    noise = 5 * told["all"]["count_error"]
    assert noise < 45
    assert told["all"]["count"] == pytest.approx(90, abs=noise)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (9.0, r"epsilon"),
        ({"by": {}}, r"validation\.epsilon"),
        ({"epsilon": 1.0, "by": {"sex": "categories"}}, r"data\.columns"),
        ("much", r"validation\.epsilon"),
    ],
)
def test_a_validation_that_cannot_be_is_refused_before_anything_is_charged(tmp_path, asked, words):
    with pytest.raises(StudyError, match=words):
        hubbub.fit(SILOS, **SHORT, validation=asked, out=tmp_path / "run")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_result_without_any_score_says_how_to_have_one():
    result = hubbub.fit(SILOS, **SHORT)
    assert "not evaluated: the study has no public test records (data.test)" in repr(result)
    assert "not evaluated: the study has no public test records (data.test)" in result._repr_html_()


@pytest.mark.slow
def test_a_notebook_says_whether_the_model_is_better_than_guessing():
    shown = hubbub.fit(SILOS, epsilon=20, test=silo(7, 400))._repr_html_()
    assert "better than guessing (0.500)" in shown
    assert "Next: " in shown


@pytest.mark.slow
def test_a_rare_outcome_begins_at_the_stated_intercept():
    """Noise of some 10 times a rate of 1e-9 moves nothing that is seen."""
    still = {"name": "sgd", "lr": 1e-9}
    result = hubbub.fit(SILOS, **SHORT, classes=[0, 1], intercept=-4.5, optimizer=still)
    assert result.plan.study.model.intercept == -4.5
    assert result.predict(silo(5)[0]) == pytest.approx(1 / (1 + np.exp(4.5)), abs=1e-4)
    with pytest.raises(StudyError, match=r"model\.intercept"):
        hubbub.fit(SILOS, **SHORT, model="mlp", hidden=[4], intercept=-4.5)


@pytest.mark.slow
def test_a_column_of_a_data_frame_has_the_reference_that_it_states():
    frames = {
        name: ({"ward": np.array(["A", "B", "C"] * 20)}, targets)
        for name, (_, targets) in SILOS.items()
    }
    columns = {"ward": {"categories": ["A", "B", "C"], "reference": "A"}}
    result = hubbub.fit(frames, **SHORT, columns=columns)
    assert result.plan.study.data.columns[0].reference == "A"
    assert result.predict({"ward": ["A", "B"]}).shape == (2,)
    assert result.plan.study.model.inputs == (2,)
