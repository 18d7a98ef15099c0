"""The attack on token lists: its likelihood ratios, what rates show, and who withstands it."""

from __future__ import annotations

import csv
import importlib
import json
from math import ceil, exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

import hubbub

pytest.importorskip("matplotlib", reason="figures need the extra experiments")

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
if not RESULTS.parent.is_dir():
    pytest.skip("experiments/ is not part of this copy of hubbub", allow_module_level=True)

KEPT = ("kept list", "kept list in parts")
SOUND = ("fresh lists", "poisson")


@pytest.fixture(scope="module", autouse=True)
def root():
    """Where `experiments` is found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


@pytest.fixture(scope="module")
def lists():
    return importlib.import_module("experiments.token_lists")


@pytest.fixture(scope="module")
def attack():
    return importlib.import_module("experiments.record_attack")


@pytest.fixture(scope="module")
def rates():
    return importlib.import_module("experiments.rates")


@pytest.fixture(scope="module")
def small(lists, tmp_path_factory):
    """Folder of the small variant."""
    out = tmp_path_factory.mktemp("token_lists")
    lists.main(["--small", "--out", str(out)])
    return out


def rows_of(folder: Path) -> list[dict[str, str]]:
    path = folder / "token_lists.csv"
    if not path.exists():
        pytest.skip(f"{path} is not there: run python -m experiments.token_lists")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def at_most_steps(rows):
    """The row of each scheme with the most steps, as numbers."""
    most = max(int(row["steps"]) for row in rows)
    return {
        row["scheme"]: {key: float(value) for key, value in row.items() if key != "scheme"}
        for row in rows
        if int(row["steps"]) == most
    }


def assert_as_claimed(rows) -> None:
    found = at_most_steps(rows)
    assert set(found) == {*KEPT, *SOUND}
    for name in KEPT:
        row = found[name]
        assert row["epsilon_per_step"] < row["attack_epsilon"] < row["epsilon_account"]
        assert row["attack_delta"] > 1000 * row["delta"]
    for name in SOUND:
        row = found[name]
        assert 0 < row["attack_epsilon"] < row["epsilon_account"]
        assert row["attack_delta"] == 0
        assert row["epsilon_account"] == pytest.approx(row["epsilon_per_step"], rel=1e-3)


@pytest.mark.slow
def test_the_attack_breaks_the_claim_per_step_of_kept_lists_and_no_other(small):
    assert_as_claimed(rows_of(small))


def test_so_it_does_in_the_committed_table():
    rows = rows_of(RESULTS)
    assert_as_claimed(rows)
    assert all(float(row["attack_epsilon"]) < float(row["epsilon_account"]) for row in rows)


@pytest.mark.slow
def test_the_figure_is_drawn_and_a_finished_run_not_made_again(small, lists, monkeypatch):
    assert (small / "token_lists.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    said = json.loads((small / "token_lists.jsonl").read_text())
    assert said["command"].startswith("python -m experiments.token_lists --small")
    monkeypatch.setattr(lists, "measured", None)
    before = (small / "token_lists.csv").read_bytes()
    lists.main(["--small", "--out", str(small)])
    assert (small / "token_lists.csv").read_bytes() == before


def test_the_account_of_a_list_in_parts_is_that_of_its_epochs(lists, attack):
    setting = attack.PreparedStudy(records=95, batch=10, steps=41, trials=1)
    epochs = ceil(41 / ceil(95 / 10))
    assert lists.account(attack.PARTS, setting, 0) == pytest.approx(lists.whole_batches(epochs))
    assert lists.account(attack.KEPT, setting, 7) == lists.whole_batches(7)


# The attack --------------------------------------------------------------------------------------


def density(sums, means):
    return exp(norm.logpdf(sums, means).sum())


def test_a_kept_list_is_scored_by_the_likelihood_of_every_token(attack):
    setting = attack.PreparedStudy(records=6, batch=2, steps=5, trials=1)
    chosen = attack.schedule(attack.SCHEMES[attack.KEPT], setting, bytes(32))
    sums = np.random.default_rng(1).normal(size=5)
    tokens = [density(sums, 2 / attack.NOISE * chosen[:, token]) for token in range(6)]
    expected = log(np.mean(tokens) / density(sums, np.zeros(5)))
    assert attack.kept_score(sums[None], chosen)[0] == pytest.approx(expected)


def test_fresh_lists_and_poisson_are_scored_by_a_product_over_steps(attack):
    sums, rate, shift = np.random.default_rng(2).normal(size=4), 0.3, 1 / attack.NOISE

    def mixed(value, mean):
        return (1 - rate) * norm.pdf(value) + rate * norm.pdf(value, mean)

    fresh = sum(log(mixed(y, 2 * shift) / norm.pdf(y)) for y in sums)
    poisson = sum(log(mixed(y, shift) / mixed(y, -shift)) for y in sums)
    assert attack.fresh_score(sums[None], rate)[0] == pytest.approx(fresh)
    assert attack.poisson_score(sums[None], rate)[0] == pytest.approx(poisson)


@pytest.mark.parametrize("name", [*KEPT, *SOUND])
def test_scores_are_likelihood_ratios_of_the_views_that_are_played(attack, name):
    """The mean of 1 / LR is 1 under x, and that of LR under x' (false alarms: 6e-7 each).

    Roots of them, as of scores of half the size, must be told from that.
    """
    setting = attack.PreparedStudy(records=20, batch=4, steps=10, trials=20_000)
    found = attack.attacked(name, setting, lambda _: None)
    for score in (-found.given_x, found.given_other):
        assert abs(standard_errors(np.exp(score))) < 5
        assert standard_errors(np.exp(score / 2)) < -5


def standard_errors(ratios) -> float:
    """How far the mean is from 1."""
    return (ratios.mean() - 1) / (ratios.std() / sqrt(ratios.size))


def test_each_scheme_uses_tokens_as_it_says(attack):
    setting = attack.PreparedStudy(records=20, batch=4, steps=30, trials=1)
    kept, parts = (attack.schedule(attack.SCHEMES[name], setting, bytes(32)) for name in KEPT)
    assert (kept.sum(axis=1) == 4).all()
    assert len(set(kept.sum(axis=0))) > 1
    assert (parts.reshape(6, 5, 20).sum(axis=1) == 1).all()
    taken = attack.kept_parts(parts, 1000, attack.SecureSource(bytes(16)))
    assert (taken.sum(axis=1) == 6).all()
    moved = attack.fresh_parts(parts, 1000, attack.SecureSource(bytes(16)))
    coins = attack.poisson_parts(setting, 1000, attack.SecureSource(bytes(16)))
    for one in (moved, coins):
        # 30,000 draws at rate 0.2: five standard errors are 0.0115.
        assert one.mean() == pytest.approx(0.2, abs=0.0115)
        assert len(set(one.sum(axis=1))) > 5


# What rates show ---------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=100)
@given(hits=st.integers(0, 200), more=st.integers(0, 200))
def test_bounds_are_those_of_clopper_and_pearson(rates, hits, more):
    trials = max(1, hits + more)
    found = rates.Hits(true=hits, false=hits, trials=trials)
    assert found.true_least <= hits / trials <= found.false_most
    if hits:
        assert binom.sf(hits - 1, trials, found.true_least) == pytest.approx(rates.DOUBT / 2)
    if hits < trials:
        assert binom.cdf(hits, trials, found.false_most) == pytest.approx(rates.DOUBT / 2)


def test_no_hits_show_nothing_and_even_rates_show_nothing(rates):
    for true, false in ((0, 0), (0, 50), (50, 50), (100, 100), (1, 0)):
        found = rates.Hits(true=true, false=false, trials=100)
        assert found.epsilon(1e-5) == found.delta(0.0) == 0.0 or true > false


@settings(max_examples=50)
@given(true=st.integers(1, 1000), false=st.integers(0, 1000), epsilon=st.floats(0, 8))
def test_epsilon_and_delta_are_two_sides_of_one_statement(rates, true, false, epsilon):
    found = rates.Hits(true=true, false=false, trials=1000)
    delta = found.delta(epsilon)
    if 0 < delta < found.true_least:
        assert found.epsilon(delta) == pytest.approx(epsilon, abs=1e-9)


def test_what_is_shown_of_a_gaussian_is_near_its_epsilon_and_not_above(rates):
    """One Gaussian step, where the truth is known; it must miss a claim of 2/3 of that."""
    generator = np.random.default_rng(3)
    scores = generator.normal(1.0, size=200_000), generator.normal(size=200_000)
    truth = hubbub.epsilon(noise_multiplier=1.0, steps=1, delta=0.05, sampling="full-batch").upper
    shown = rates.best_hits(*scores, lambda hits: hits.epsilon(0.05)).epsilon(0.05)
    assert 2 / 3 * truth < shown < truth
    beyond = rates.best_hits(*scores, lambda hits: hits.delta(2 / 3 * truth))
    assert beyond.delta(2 / 3 * truth) > 0.05


def test_the_threshold_is_chosen_on_other_trials_than_those_that_count(rates):
    """Scores whose first half is perfect and whose second half says nothing show nothing."""
    generator = np.random.default_rng(4)
    noise = generator.normal(size=(2, 1000))
    right = np.concatenate([np.full(1000, 9.0), noise[0]])
    wrong = np.concatenate([np.full(1000, -9.0), noise[1]])
    assert rates.best_hits(right, wrong, lambda hits: hits.epsilon(1e-5)).epsilon(1e-5) < 0.3
