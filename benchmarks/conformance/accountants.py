"""Accountants of other libraries, each as its users ask it, for the settings of brackets.json."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.conformance.accountant_brackets import Bracket

Accountant = Callable[[Bracket], float]


def _opacus(name: str) -> Accountant:
    from opacus.accountants import create_accountant

    def answer(bracket: Bracket) -> float:
        accountant = create_accountant(name)
        accountant.history = [(bracket.noise_multiplier, bracket.sample_rate, bracket.steps)]
        return float(accountant.get_epsilon(delta=bracket.delta))

    return answer


def _dp_accounting(name: str) -> Accountant:
    import dp_accounting
    from dp_accounting import pld, rdp

    kind = {"rdp": rdp.RdpAccountant, "pld": pld.PLDAccountant}[name]

    def answer(bracket: Bracket) -> float:
        noise = dp_accounting.GaussianDpEvent(bracket.noise_multiplier)
        step = dp_accounting.PoissonSampledDpEvent(bracket.sample_rate, noise)
        return float(kind().compose(step, bracket.steps).get_epsilon(bracket.delta))

    return answer


def _autodp(_: str) -> Accountant:
    from autodp import rdp_acct, rdp_bank

    def answer(bracket: Bracket) -> float:
        accountant = rdp_acct.anaRDPacct()
        parameters = {"sigma": bracket.noise_multiplier}

        def curve(order: float) -> Any:
            return rdp_bank.RDP_gaussian(parameters, order)

        if bracket.sample_rate == 1:
            accountant.compose_mechanism(curve, coeff=bracket.steps)
        else:
            accountant.compose_poisson_subsampled_mechanisms(
                curve, bracket.sample_rate, coeff=bracket.steps
            )
        return float(accountant.get_eps(bracket.delta))

    return answer


def _prv(_: str) -> Accountant:
    from prv_accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

    def answer(bracket: Bracket) -> float:
        accountant = PRVAccountant(
            prvs=[
                PoissonSubsampledGaussianMechanism(
                    noise_multiplier=bracket.noise_multiplier,
                    sampling_probability=bracket.sample_rate,
                )
            ],
            max_self_compositions=[bracket.steps],
            eps_error=0.1,
            delta_error=bracket.delta / 1000,
        )
        return float(accountant.compute_epsilon(bracket.delta, [bracket.steps])[2])

    return answer


def _jax_privacy(name: str) -> Accountant:
    from jax_privacy.accounting import accountants, analysis

    kind = {"rdp": accountants.RdpAccountantConfig, "pld": accountants.PldAccountantConfig}[name]
    records = 10_000  # of which a batch is a whole number for each of the rates

    def answer(bracket: Bracket) -> float:
        parameters = analysis.DpParams(
            noise_multipliers=bracket.noise_multiplier,
            num_samples=records,
            delta=bracket.delta,
            batch_size=round(records * bracket.sample_rate),
        )
        accountant = analysis.DpsgdTrainingAccountant(kind())
        return float(accountant.compute_epsilon(bracket.steps, parameters))

    return answer


# By package the names of its accountants, and what makes them. They are for Poisson batches.
ACCOUNTANTS: Mapping[str, tuple[tuple[str, ...], Callable[[str], Accountant]]] = {
    "opacus": (("gdp", "rdp", "prv"), _opacus),
    "dp-accounting": (("rdp", "pld"), _dp_accounting),
    "autodp": (("rdp",), _autodp),
    "prv-accountant": (("prv",), _prv),
    "jax-privacy": (("rdp", "pld"), _jax_privacy),
}


def answered(accountant: Accountant, bracket: Bracket) -> float | None:
    """What an accountant says of a setting; None where it gives up."""
    warnings.simplefilter("ignore")  # they warn of orders and errors, and this is about numbers
    logging.disable(logging.WARNING)
    try:
        return accountant(bracket)
    except Exception:  # noqa: BLE001 - whatever a stranger's accountant raises
        return None
