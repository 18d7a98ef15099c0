"""What has no row in the table of accounts has no epsilon, whichever package asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from hubbub.core.errors import StudyError
from hubbub.core.planning.accounts import account_of
from hubbub.core.planning.exposure import Threat
from hubbub.core.planning.mechanism import IndependentNoise, Mechanism
from hubbub.core.planning.noise_shares import shares_of
from hubbub.core.planning.random_projection import RandomProjection
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.study.parties import Parties, Privacy, numbered

USUAL = {"purpose": "sums", "relation": "substitute", "delta": 1e-5, "steps": 4}
JOINT = {**USUAL, "sampling": "without-replacement", "sample_rate": 0.1, "records": 100}
POISSON = {**USUAL, "sampling": "poisson", "sample_rate": 0.1}
CORRELATED = {"noise": IndependentNoise(epoch=2)}


@pytest.mark.parametrize("tokens", ["per-step", "per-epoch", "static"])
def test_p10_joint_batches_hide_no_record_that_is_there_or_not(tokens: str) -> None:
    account_of(Mechanism(**JOINT, tokens=tokens))
    with pytest.raises(StudyError, match='relation = "substitute"'):
        account_of(Mechanism(**{**JOINT, "relation": "add-remove"}, tokens=tokens))


def test_p25_correlated_noise_goes_with_batches_of_ones_own_and_the_whole_sum() -> None:
    account_of(Mechanism(**POISSON, **CORRELATED))
    for others in (JOINT, {**POISSON, "projection": RandomProjection(kind="sign", dimension=4)}):
        account_of(Mechanism(**others))
        with pytest.raises(StudyError, match="correlated noise"):
            account_of(Mechanism(**others, **CORRELATED))


def threat(mechanism: Mechanism, *beside: Mechanism, **more: Any) -> Threat:
    """What is to be counted of a sum, with others beside it, among five silos."""
    parties = Parties(names=numbered(5), colluders=1, **more)
    return Threat(
        parties=parties,
        privacy=Privacy(epsilon=1.0, delta=1e-5, relation="substitute"),
        mechanism=mechanism,
        shares=shares_of(parties),
        certificate=Certificate(),
        beside=beside,
    )


def test_p9_a_joint_batch_needs_all_silos() -> None:
    threat(Mechanism(**JOINT))
    with pytest.raises(StudyError, match="dropouts = 0"):
        threat(Mechanism(**JOINT), dropouts=1)


def test_p10_no_joint_batches_are_drawn_beside_another_sum() -> None:
    threat(Mechanism(**JOINT), Mechanism(**POISSON))
    with pytest.raises(StudyError, match="joint batches in sums alone"):
        threat(Mechanism(**POISSON), Mechanism(**JOINT))


def test_p25_no_enclave_may_tell_the_noise_of_earlier_steps() -> None:
    plain, correlated = Mechanism(**POISSON), Mechanism(**POISSON, **CORRELATED)
    threat(plain, plain, trust="tee")
    for some in ((correlated,), (plain, correlated)):
        threat(*some)
        with pytest.raises(StudyError, match='trust = "none"'):
            threat(*some, trust="tee")
