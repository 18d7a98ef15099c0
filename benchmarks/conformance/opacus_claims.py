"""What Opacus claims where its accounts are known to be wrong, and of Flower's example with it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import hubbub
from benchmarks.conformance.claim import Claim, attacked

DELTA = 1e-5
RUNS = 250  # of either side of an attack
_ISSUES = "https://github.com/meta-pytorch/opacus/issues"


def claims(library: str) -> Iterator[Claim]:
    """What a check that is worth anything has to catch."""
    warnings.simplefilter("ignore")  # it warns of many things, and this is about numbers
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    yield _gaussian(library)
    yield _high_delta(library)
    yield _weighted(library)
    yield _fixed_order(library)
    yield _engine_a_round(library)
    yield _divided_by_their_number(
        library, {3: "of 3 records", 2: "of 2"}, batch=2, width=400, known=571
    )
    yield _divided_by_their_number(
        library, {99: "of 99 records", 100: "of 100"}, batch=10, width=20_000, known=819
    )


def _gaussian(library: str) -> Claim:
    """The limit of many steps, where there are few."""
    how = {"noise_multiplier": 0.6, "sample_rate": 0.001, "steps": 300}
    return Claim(
        library=library,
        case="accountant gdp: Poisson, z 0.6, q 0.001, 300 steps, 1e-5",
        claimed=_epsilon("gdp", 0.6, 0.001, 300, DELTA),
        certified=hubbub.epsilon(**how, delta=DELTA),
    )


def _epsilon(name: str, noise: float, rate: float, steps: int, delta: float) -> float:
    accountant = create_accountant(name)
    for _ in range(steps):
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    return float(accountant.get_epsilon(delta=delta))


def _high_delta(library: str) -> Claim:
    """No epsilon is below zero."""
    how = {"noise_multiplier": 4.0, "sample_rate": 0.01, "steps": 1}
    return Claim(
        library=library,
        case="accountant rdp: z 4, q .01, 1 step, delta .1",
        claimed=_epsilon("rdp", 4.0, 0.01, 1, 0.1),
        certified=hubbub.epsilon(**how, delta=0.1),
        known=f"{_ISSUES}/585",
    )


def _weighted(library: str) -> Claim:
    """100,000 records, batches of 16 asked for, by a sampler that draws 128 in an epoch."""
    count, batch = 100_000, 16
    data = TensorDataset(torch.zeros(count, 1), torch.zeros(count, 1))
    sampler = WeightedRandomSampler(torch.ones(count), num_samples=128, replacement=True)
    loader = DataLoader(data, batch_size=batch, sampler=sampler)
    engine, steps = PrivacyEngine(accountant="rdp"), 0
    module, optimizer, loader = _private(engine, 1, loader)
    for x, y in loader:
        _step(module, optimizer, x, y)
        steps += 1
    return Claim(
        library=library,
        case=f"WeightedRandomSampler: {steps} batches of 16 of 100,000 asked for, z 1",
        claimed=float(engine.get_epsilon(DELTA)),
        certified=hubbub.epsilon(
            noise_multiplier=1.0, sample_rate=batch / count, steps=steps, delta=DELTA
        ),
        known=f"{_ISSUES}/813",
    )


def _fixed_order(library: str) -> Claim:
    """Batches in the order of the file: each record is in exactly one, and nothing is hidden."""
    data = TensorDataset(torch.zeros(1000, 1), torch.zeros(1000, 1))
    engine = PrivacyEngine(accountant="prv")
    module, optimizer, loader = _private(
        engine, 1, DataLoader(data, batch_size=100, shuffle=False), poisson_sampling=False
    )
    for x, y in loader:
        _step(module, optimizer, x, y)
    return Claim(
        library=library,
        case="poisson_sampling=False: 10 batches of 100 of 1000 in fixed order, z 1",
        claimed=float(engine.get_epsilon(DELTA)),
        certified=hubbub.epsilon(noise_multiplier=1.0, sampling="full-batch", steps=1, delta=DELTA),
    )


def _engine_a_round(library: str) -> Claim:
    """Flower's example of both: a new engine for each round, whose epsilon is that round's alone.

    As it runs it: 20,000 images of a site, batches of 32, one epoch in each of three rounds.
    """
    data = TensorDataset(torch.zeros(20_000, 1), torch.zeros(20_000, 1))
    steps, claimed = 0, []
    for _ in range(3):
        engine = PrivacyEngine()
        loader = DataLoader(data, batch_size=32, shuffle=True)
        module, optimizer, loader = _private(engine, 1, loader)
        for x, y in loader:
            _step(module, optimizer, x, y)
            steps += 1
        claimed.append(float(engine.get_epsilon(DELTA)))
    return Claim(
        library=library,
        case=f"Flower's example, a new engine a round: 3 rounds, {steps} steps, batches of 32 of "
        "20,000, z 1, as its last line says",
        claimed=claimed[-1],
        certified=hubbub.epsilon(
            noise_multiplier=1.0, sample_rate=32 / 20_000, steps=steps, delta=DELTA
        ),
        known="https://github.com/adap/flower/tree/main/examples/opacus",
    )


def _divided_by_their_number(
    library: str, told: Mapping[int, str], *, batch: int, width: int, known: int
) -> Claim:
    """What the noise is divided by follows from how many records there are, and shows it.

    Opacus divides by int(records × sample rate), and takes 1 / (batches of an epoch) for the rate.
    Of 2 or 3 records the rate differs too (#571); of 99 or 100 it is a tenth of either, and only
    what is left after rounding down differs (#819). All numbers that move are noise.

    Args:
        library: with its version.
        told: how many records there are in either world, first where the noise is larger.
        batch: records in a batch.
        width: numbers in the model.
        known: the number of the issue.
    """
    seen = {count: [_changed(count, batch, width) for _ in range(RUNS)] for count in told}
    larger, smaller = ([moved for moved, _ in runs] for runs in seen.values())
    return Claim(
        library=library,
        case=f"batches of {batch} {' or '.join(told.values())}, z 4, 1 step, {width:,} numbers: "
        f"attacked in {2 * RUNS} runs",
        claimed=max(claimed for runs in seen.values() for _, claimed in runs),
        certified=attacked(larger, smaller, delta=DELTA),
        known=f"{_ISSUES}/{known}",
    )


def _changed(count: int, batch: int, width: int) -> tuple[float, float]:
    """How far one step moves a model on records that say nothing; and the epsilon claimed."""
    data = TensorDataset(torch.zeros(count, width), torch.zeros(count, 1))
    engine = PrivacyEngine(accountant="rdp")
    module, optimizer, loader = _private(
        engine, width, DataLoader(data, batch_size=batch), noise_multiplier=4.0
    )
    before = next(module.parameters()).detach().clone()
    for x, y in loader:
        _step(module, optimizer, x, y)
        break
    moved = float((next(module.parameters()).detach() - before).norm())
    return moved, float(engine.get_epsilon(DELTA))


def _private(
    engine: PrivacyEngine, width: int, loader: Any, noise_multiplier: float = 1.0, **how: Any
) -> Any:
    module = torch.nn.Linear(width, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    return engine.make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
        **how,
    )


def _step(module: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(module(x), y, reduction="sum").backward()
    optimizer.step()
