"""What Flower claims: its accountant of clients, and the noise that a client adds by itself."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.supercore.privacy_accounting import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

import hubbub
from benchmarks.conformance.claim import Claim

DELTA = 1e-5
_NUMBERS = 1_000_000  # drawn to see how large the noise is: to .15 %


def claims(library: str) -> Iterator[Claim]:
    """All of them."""
    for noise, size, clients, rounds in ((1.0, 10, 1000, 1000), (4.0, 20, 100, 60)):
        config = PrivacyConfig(
            target_delta=DELTA,
            population_size=clients,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.POISSON,
        )
        accountant = RdpAccountant(config)
        accountant.compose(GaussianPrivacyEvent(noise, size, clients), rounds)
        yield Claim(
            library=library,
            case=f"accountant: Poisson, {size} of {clients} clients, z {noise:g}, {rounds} rounds,"
            " 1e-5",
            claimed=float(accountant.get_epsilon(DELTA)),
            certified=hubbub.epsilon(
                noise_multiplier=noise, sample_rate=size / clients, steps=rounds, delta=DELTA
            ),
        )
    for epsilon in (0.5, 4.0, 10.0, 20.0):
        noise = _noise_of(epsilon)
        yield Claim(
            library=library,
            case=f"LocalDpMod: epsilon {epsilon:g} asked, sensitivity and clipping norm 1, one "
            f"round: z {noise:.3f} seen",
            claimed=epsilon,
            certified=hubbub.epsilon(
                noise_multiplier=noise, sampling="full-batch", steps=1, delta=DELTA
            ),
        )


def _noise_of(epsilon: float) -> float:
    """The standard deviation that the mod is seen to add to an update of almost nothing."""

    def message(of: float) -> Any:
        update = np.zeros(_NUMBERS)
        update[0] = of  # an update of zeros is divided by its norm
        content = RecordDict({"arrays": ArrayRecord([update])})
        return SimpleNamespace(content=content, has_error=lambda: False)

    np.random.seed(0)  # noqa: NPY002 - the generator that it draws from
    mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=epsilon, delta=DELTA)
    said: Any = mod(message(0.0), None, lambda *_: message(1e-6))  # type: ignore[arg-type]
    (record,) = said.content.array_records.values()
    return float(np.std(record.to_numpy_ndarrays()[0]))
