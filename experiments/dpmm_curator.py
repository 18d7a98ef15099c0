"""AIM or MST of dpmm as a trusted curator: levels in, synthetic levels out.

    python experiments/dpmm_curator.py IN.npz OUT.npy METHOD EPSILON DELTA SEED [--as-shipped]

It is run by a Python of its own (`pip install dpmm`, which needs NumPy 1), so it imports neither
hubbub nor any other experiment. IN has `levels` (records, columns) and `sizes` (columns,). Settings
are dpmm's own, but for the budget and one process. Its solver (mirror descent with a line search)
is written anew with plain arrays, many times as fast, and ends where the loss falls no more;
`--as-shipped` takes dpmm's instead.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

Array = np.ndarray
_LOOK, _LEAST = 25, 1e-6  # the loss is looked at after so many steps; by which part it must fall


def model_of(method: str, epsilon: float, delta: float) -> Any:
    """An untrained model of dpmm."""
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM

    return {"AIM": AIMGM, "MST": MSTGM}[method](epsilon=epsilon, delta=delta, n_jobs=1)


def _moved(values: Array, held: tuple[str, ...], wanted: tuple[str, ...]) -> Array:
    """A table over `held` with the axes of `wanted`, of length 1 where it has none."""
    order = [held.index(one) for one in wanted if one in held]
    sizes = iter(values.shape[k] for k in order)
    shape = [next(sizes) if one in held else 1 for one in wanted]
    return values.transpose(order).reshape(shape)


class Losses:
    """What is measured, as a quadratic loss of each clique's table."""

    def __init__(self, model: Any, groups: Any) -> None:
        self.terms: list[tuple[Any, tuple[int, ...], Array, Array]] = []
        self.constant = 0.0
        for clique in model.cliques:
            attributes = model.domain.project(clique).attrs
            for queries, told, noise, of in groups[clique]:
                shape = model.domain.project(of).shape
                factor = np.asarray(queries @ np.ones(queries.shape[1]), float)  # all are diagonal
                self.constant += 0.5 * float(told @ told) / noise**2
                weights = ((factor / noise) ** 2).reshape(shape)
                wanted = (factor * told / noise**2).reshape(shape)
                away = tuple(k for k, one in enumerate(attributes) if one not in of)
                names = tuple(of)
                self.terms.append(
                    (
                        clique,
                        away,
                        _moved(weights, names, attributes),
                        _moved(wanted, names, attributes),
                    )
                )

    def __call__(self, tables: dict[Any, Array]) -> tuple[float, dict[Any, Array]]:
        """The loss, and its slope in each table."""
        loss, slopes = self.constant, {key: np.zeros_like(one) for key, one in tables.items()}
        for clique, away, weights, wanted in self.terms:
            found = tables[clique].sum(axis=away, keepdims=True)
            loss += float((0.5 * weights * found * found - wanted * found).sum())
            slopes[clique] += weights * found - wanted
        return loss, slopes


class Passing:
    """Marginals of potentials, by messages along dpmm's junction tree."""

    def __init__(self, model: Any) -> None:
        self.total = float(model.total)
        self.attributes = {one: model.domain.project(one).attrs for one in model.cliques}
        self.order = []
        for source, target in model.message_order:
            shared = model.sep_axes[source, target]
            here, there = self.attributes[source], self.attributes[target]
            left = tuple(one for one in here if one in shared)
            away = tuple(k for k, one in enumerate(here) if one not in shared)
            self.order.append((source, target, left, away, here, there))

    def __call__(self, potentials: dict[Any, Array]) -> dict[Any, Array]:
        """A table of counts for each clique."""
        beliefs = {key: one.copy() for key, one in potentials.items()}
        sent: dict[tuple[Any, Any], tuple[Array, tuple[str, ...]]] = {}
        for source, target, left, away, here, there in self.order:
            table = beliefs[source]
            if (target, source) in sent:
                back, names = sent[target, source]
                table = table - _moved(back, names, here)
            most = table.max(axis=away, keepdims=True)
            message = np.log(np.exp(table - most).sum(axis=away)) + most.reshape(
                [table.shape[here.index(one)] for one in left]
            )
            sent[source, target] = (message, left)
            beliefs[target] += _moved(message, left, there)
        for key, one in beliefs.items():
            risen = np.exp(one - one.max())
            beliefs[key] = risen * (self.total / risen.sum())
        return beliefs


def mirror_descent(self: Any, measurements: Any, total: Any = None, **_: Any) -> float:
    """dpmm's `FactoredInference.mirror_descent`, step for step, until the loss falls no more."""
    from dpmm.models.base.mbi import CliqueVector, Factor

    self._setup(measurements, total)
    model = self.model
    losses, passing = Losses(model, self.groups), Passing(model)
    potentials = {key: np.array(model.potentials[key].values) for key in model.cliques}
    tables = passing(potentials)
    loss, slopes = losses(tables)
    step, before = 1.0 / model.total**2, loss
    for number in range(1, self.iters + 1):
        step *= 2.0
        for _ in range(25):
            tried = {key: one - step * slopes[key] for key, one in potentials.items()}
            moved = passing(tried)
            found, next_slopes = losses(moved)
            gained = sum(
                float((slopes[key] * (one - moved[key])).sum()) for key, one in tables.items()
            )
            if loss - found >= 0.5 * step * gained:
                break
            step *= 0.5
        potentials, tables, loss, slopes = tried, moved, found, next_slopes
        if number % _LOOK == 0:
            if before - loss <= _LEAST * abs(loss):
                break
            before = loss
    for name, held in (("potentials", potentials), ("marginals", tables)):
        made = {key: Factor(model.domain.project(key), one) for key, one in held.items()}
        setattr(model, name, CliqueVector(made))
    return loss


def main(arguments: list[str]) -> None:
    """Train one model, and write its records; the last line printed is how many seconds it took."""
    import pandas as pd
    from dpmm.models.base.mbi import FactoredInference

    source, target, method = arguments[:3]
    epsilon, delta, seed = float(arguments[3]), float(arguments[4]), int(arguments[5])
    if "--as-shipped" not in arguments:
        FactoredInference.mirror_descent = mirror_descent
    given = np.load(source)
    levels, names = given["levels"], [f"c{k}" for k in range(len(given["sizes"]))]
    frame = pd.DataFrame(levels, columns=names)
    begun = time.perf_counter()
    model = model_of(method, epsilon, delta)
    model.set_random_state(np.random.RandomState(seed))
    model.set_domain({name: int(size) for name, size in zip(names, given["sizes"], strict=True)})
    model.fit(frame)
    made = model.generate(n_records=len(frame))[names].to_numpy(np.int64)
    np.save(target, made)
    sys.stdout.write(f"{time.perf_counter() - begun}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
