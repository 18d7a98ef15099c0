"""What a ledger charges for a study is what its plan says, whatever the batches and projections."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import resources
from math import ceil
from types import SimpleNamespace
from unittest import mock

import pytest

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.ledger.entry import LedgerMechanism
from hubbub.core.ledger.privacy_ledger import Entry
from hubbub.core.ledger.tally import Tally, cost_of, kind_of, rows_of
from hubbub.core.planning import exposure
from hubbub.core.planning.accounts import account_of, releases
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.random_projection import RandomProjection
from hubbub.core.privacy.accountant import Composition
from ledger.book import entry, simplest

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
STEPS = 12
PROJECTIONS = ["", "gaussian", "sign", "layers"]
BATCHES = ["poisson", "per-step", "per-epoch", "static"]


def study(relation: str, projection: str, batches: str) -> hubbub.Study:
    """A short study with one kind of everything."""
    text = HEART.replace("steps = 60", f"steps = {STEPS}").replace("epsilon = 0.5", "epsilon = 4.0")
    more = f'\nprojection = 10\nprojection_kind = "{projection}"' if projection else ""
    if batches != "poisson":
        text = text.replace('sampling = "poisson"', 'sampling = "without-replacement"')
        more += f'\ntokens = "{batches}"'
    text = text.replace("[training]", f"[training]{more}")
    return hubbub.Study.parse(text.replace('"add-remove"', f'"{relation}"'))


@lru_cache
def planned(one: hubbub.Study) -> hubbub.Plan:
    """The plan with no coalition but the stated one: the others take most of the time."""
    with mock.patch.object(exposure, "_curve", lambda parties: [parties.colluders]):
        return hubbub.plan(one)


def upper(kind: LedgerMechanism, count: int, relation: str, delta: float) -> float:
    try:
        return Composition(cost_of(kind, count, relation)).epsilon(delta).upper
    except StudyError:
        return float("inf")


CASES = [
    (relation, projection, batches)
    for relation in ("add-remove", "substitute")
    for projection in PROJECTIONS
    for batches in BATCHES
    if batches == "poisson" or relation == "substitute"
]


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "projection", "batches"), CASES)
def test_p15_the_ledger_charges_what_the_plan_says(relation, projection, batches):
    plan = planned(study(relation, projection, batches))
    kind = kind_of(plan.main)
    rows = ceil(STEPS / plan.mechanism.epoch)
    ideal = plan.certificate.ideal_delta(1e-5, plan.stated.epsilon)
    charged = upper(kind, rows, relation, ideal) + plan.certificate.epsilon
    assert charged == pytest.approx(plan.stated.epsilon, rel=1e-3)
    assert charged >= plan.stated.epsilon * (1 - 1e-9)
    assert upper(kind, rows - 1, relation, ideal) < charged


@pytest.mark.slow
@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_p15_a_cap_of_the_other_relation_is_charged_too(projection, batches):
    """Exchanging a record is taking one away and adding one, so it costs more."""
    plan = planned(study("substitute", projection, batches))
    kind = kind_of(plan.main)
    other = upper(kind, 2, "add-remove", 1e-5)
    assert other > 0
    if batches == "poisson":
        assert other < upper(kind, 2, "substitute", 1e-5)


def test_p10_a_row_of_joint_batches_says_which_records_the_adversary_owns_and_others_none():
    """Of all records at once nobody has to guess who is in: to own some of them tells nothing."""
    joint = Mechanism(
        purpose="training",
        relation="substitute",
        delta=1e-5,
        steps=STEPS,
        records=100,
        sampling="without-replacement",
        sample_rate=0.1,
        tokens="per-step",
    )
    every = replace(joint, purpose="validation", sampling="full-batch", sample_rate=1.0)
    for mechanism, known in ((joint, 40), (every, 0)):
        row = kind_of(SimpleNamespace(mechanism=mechanism, noise_multiplier=2.0, known_records=40))
        assert (row.purpose, row.known_records) == (mechanism.purpose, known)


@pytest.mark.slow
def test_p10_records_that_the_adversary_owns_are_charged():
    plan = planned(study("substitute", "", "per-step"))
    kind = kind_of(plan.main)
    assert kind.known_records == plan.stated.known_records > 0
    none = replace(kind, known_records=0)
    assert upper(kind, STEPS, "substitute", 1e-5) > 1.001 * upper(none, STEPS, "substitute", 1e-5)


@pytest.mark.slow
def test_p8_a_projection_is_charged():
    plan = planned(study("add-remove", "gaussian", "poisson"))
    kind = kind_of(plan.main)
    plain = replace(kind, projection="", dimension=0)
    assert upper(kind, STEPS, "add-remove", 1e-5) > 1.1 * upper(plain, STEPS, "add-remove", 1e-5)


@pytest.mark.parametrize("dimension", [0, 1])
def test_p8_a_row_with_a_projection_to_no_or_one_number_is_refused_and_not_charged_as_plain(
    dimension,
):
    with pytest.raises(StudyError, match="dimension"):
        replace(entry().kind, projection="gaussian", dimension=dimension)


def test_p8_a_row_without_a_kind_of_projection_is_charged_as_plain():
    kind = entry().kind
    odd = replace(kind, projection="", dimension=8)
    assert upper(odd, 3, "add-remove", 1e-5) == upper(kind, 3, "add-remove", 1e-5)


def test_p10_a_record_less_in_joint_batches_costs_a_change_of_twice_its_length_each_time():
    """Whoever owns records may know all batches, so that nothing is gained by sampling."""
    joint = replace(
        entry().kind, sampling="without-replacement", sample_rate=0.1, records=100, known_records=10
    )
    twice = hubbub.epsilon(
        noise_multiplier=joint.noise_multiplier / 2, steps=3, delta=1e-5, sampling="full-batch"
    )
    assert upper(joint, 3, "add-remove", 1e-5) == pytest.approx(twice.upper)


@pytest.mark.parametrize("batches", ["per-epoch", "static"])
def test_p15_a_record_less_on_a_kept_list_costs_no_less_than_one_exchanged(batches):
    """All after it move up, or the last one takes its place: two batches of an epoch change."""
    kind = kind_of(planned(study("substitute", "", batches)).main)
    exchanged = upper(kind, 2, "substitute", 1e-5)
    assert exchanged < upper(kind, 2, "add-remove", 1e-5) < 1.3 * exchanged


@pytest.mark.parametrize("batches", ["poisson", "per-epoch"])
def test_what_approve_tells_is_what_the_ledger_says_in_the_end(batches: str) -> None:
    """With other studies there already, and with a part of this one behind it."""
    made = planned(study("substitute", "", batches))
    kind, rows, certificate = rows_of(made)[0]
    there = {"kind": kind, "certificate": certificate, "attempt": 0}
    tally, goal = Tally(), {"delta": 1e-5, "relation": "substitute"}
    assert tally.after(made).epsilon(**goal) == pytest.approx(made.stated.epsilon, rel=1e-3)
    tally.add(entry(1))
    before = tally.epsilon(**goal)
    told = tally.after(made).epsilon(**goal)
    for number in range(1, rows + 1):
        row = Entry(study=made.study.id, session=b"e" * 16, round=number, **there)
        tally.add(row)
        assert tally.after(made).epsilon(**goal) >= told  # a session more, or as many
    assert before < tally.epsilon(**goal) == told == tally.after(made).epsilon(**goal)


@pytest.mark.parametrize("kind", [None, "gaussian", "sign", "layers"])
@pytest.mark.parametrize(
    ("sampling", "relation", "tokens"),
    [
        ("full-batch", "add-remove", "per-step"),
        ("full-batch", "substitute", "per-step"),
        ("poisson", "add-remove", "per-step"),
        ("poisson", "substitute", "per-step"),
        ("without-replacement", "substitute", "per-step"),
        ("without-replacement", "substitute", "per-epoch"),
    ],
)
def test_p15_a_row_holds_all_that_its_account_rests_on(
    sampling: str, relation: str, tokens: str, kind: str | None
) -> None:
    """What is made of rows is what was planned, law by law."""
    mechanism = replace(
        simplest().mechanism,
        relation=relation,
        sampling=sampling,
        sample_rate=1.0 if sampling == "full-batch" else 0.2,
        tokens=tokens,
        records=90,
        projection=RandomProjection(kind=kind, dimension=8) if kind else None,
        diameter=1.5,
        steps=9,
        noise_multiplier=3.0,
    )
    query = replace(simplest(), mechanism=mechanism, known_records=2)
    account = account_of(mechanism)
    known = 2 if account.sampling == "without-replacement" else 0
    planned_for = releases(account, query.noise_multiplier, mechanism.steps, known)
    assert cost_of(kind_of(query), mechanism.rows, relation) == planned_for
