"""The vectors of joint seeds: anchors, links, seeds, the draws that follow, and a projected round.

The set-up is that of `pairwise.json`, begun with the digest of the anchors.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.agreement.joint_seed import JointSeed
from hubbub.core.protocol.agreement.key_agreement import Session
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES
from hubbub.core.protocol.projection.matrix import Projection
from hubbub.core.protocol.projection.projected_sum import LAYERS, ProjectedSums, lift
from hubbub.core.protocol.round.draw import Draw, draw_of
from hubbub.core.protocol.round.round_parameters import Parameters, decoded
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.protocol.token_lists.joint_batch import (
    chosen_records,
    partition,
    without_replacement,
)
from hubbub.learning.layer_projection import layer_matrices
from protocol.parties import PROJECTED, SESSION, STUDY, World

JSON = dict[str, Any]
ROUND, ATTEMPT = 7, 1
SILOS = (1, 2, 3)
PARAMETERS = np.array([0.5, -1.25, 0, 3, 1e-3, -7, 2.5, 100], dtype=np.float32)
# Sums of clipped gradients whose fine parts the grid of the projection rounds away.
SUMS = {
    silo: [silo * value for value in (1.0, -0.5, 3e-9, 1 / 3, -1000.25, 0.0, 2**17, 1e-7)]
    for silo in SILOS
}
SIGNS, NORMALS = (40, 25), (8195, 3)  # d and k of the matrices that are shown
SHAPES = ([(3, 5), (3,)], [(16, 9), (16,), (2, 16), (2,)], [(1,), (1,)])
NUMBERS = (8, 40, 2)  # to how many numbers models of these shapes are projected
LIST, BATCH = 20, 6
OWN = (3, 17, 5, 8, 0)  # places of a silo's records in the list


def secret(index: int) -> bytes:
    """The key of the generator from which a silo's chain begins."""
    return hashlib.sha256(b"chain of party %d" % index).digest()[:16]


def chains(w: World) -> dict[int, JointSeed]:
    """Every silo's part of the joint seeds."""
    return {index: w.seeds(index, source=SecureSource(secret(index))) for index in w.roster.silos}


def committed(w: World) -> tuple[dict[int, JointSeed], list[bytes], bytes]:
    """The chains, the anchors, and the digest that all have of them."""
    silos = chains(w)
    anchors = [silo.anchor() for silo in silos.values()]
    (digest,) = {silo.learn_anchors(anchors) for silo in silos.values()}
    return silos, anchors, digest


def joint(w: World, set_up: JSON, sessions: dict[int, Session]) -> JSON:
    """The file, from a set-up whose transcript begins with the anchors."""
    silos, anchors, digest = committed(w)
    found: JSON = {"study": STUDY.hex(), "session": SESSION.hex()}
    found |= {"rounds": w.round_parameters.steps, "attempts": w.round_parameters.attempts}
    found["tops"] = [SecureSource(secret(index)).bytes(32).hex() for index in silos]
    found["anchors"] = [anchor.hex() for anchor in anchors]
    found["anchors_digest"] = digest.hex()
    found |= {name: set_up[name] for name in ("transcript", "secrets", "confirms", "checks")}
    found["seeds"] = seeds(w)
    turn, draw = a_round(w, sessions, silos)
    return found | {"round": turn, "matrices": matrices(draw), "batches": batches(draw.seed)}


def seeds(w: World) -> list[JSON]:
    """Seeds of several attempts, some of them among fewer silos."""
    silos, anchors, _ = committed(w)
    check, found = w.seed_check(), []
    check.learn_anchors(anchors)
    for round, attempt, active in ((1, 0, SILOS), (1, 1, (1, 3)), (4, 0, (2, 3)), (9, 1, SILOS)):
        links = [silos[index].reveal(round, attempt) for index in active]
        seed = check.seed(round, attempt, active, links)
        found.append({"round": round, "attempt": attempt, "active": list(active)})
        found[-1] |= {"links": [link[HEADER_BYTES:-64].hex() for link in links], "seed": seed.hex()}
    return found


@dataclass(frozen=True, kw_only=True)
class Given:
    """A silo's clipped sum, whatever is in its batch."""

    total: list[float]
    count: int = 1
    capacity: int = 1

    def clipped_sum(self, parameters: Parameters, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.array(self.total)


def a_round(
    w: World, sessions: dict[int, Session], chained: dict[int, JointSeed]
) -> tuple[JSON, Draw]:
    """One attempt with projected sums: model, links, seed, masked vectors, the sum and its lift."""
    check = w.seed_check()
    check.learn_anchors([silo.anchor() for silo in chained.values()])
    aggregator, transform = w.aggregator(check), ProjectedSums(w.round_parameters)
    silos = {
        index: Silo(
            round_parameters=w.round_parameters,
            task=Given(total=SUMS[index]),
            masking=w.masking(sessions[index]),
            source=SecureSource(),
            seeds=chained[index],
            transform=transform,
        )
        for index in SILOS
    }
    model = aggregator.begin(ROUND, ATTEMPT, SILOS, PARAMETERS)
    for silo in silos.values():
        silo.accept(model)
    links = [silo.reveal() for silo in silos.values()]
    aggregator.attempt.learn_seed(links)
    masked = []
    for silo in silos.values():
        silo.learn_seed(links)
        masked.append(silo.contribute())
        aggregator.receive(masked[-1])
    seed, total = aggregator.attempt.seed, aggregator.attempt.integers()
    assert seed is not None
    draw, projection = draw_of(seed, ROUND, ATTEMPT, PARAMETERS), transform.matrices()
    found: JSON = {"round": ROUND, "attempt": ATTEMPT, "active": list(SILOS)}
    found |= {"parameters": PARAMETERS.astype(float).tolist(), "model": model.hex()}
    found |= {"model_digest": draw.model.hex(), "links": [link.hex() for link in links]}
    found |= {"seed": seed.hex(), "word_bits": 32, "grid_step": w.round_parameters.grid_step}
    found |= {"clip": w.round_parameters.clip, "most_records": w.round_parameters.most_records}
    found |= {"quantum": projection.quantum, "draw_key": projection.key(draw).hex()}
    layers = ProjectedSums(replace(w.round_parameters, projection=LAYERS))
    found["layers_key"] = layers.key(draw).hex()
    found["sums"] = {str(silo): values for silo, values in SUMS.items()}
    found["masked"], found["sum"] = [each.hex() for each in masked], total.tolist()
    found["lifted"] = lift(decoded(w.round_parameters, total), projection, draw).tolist()
    assert len(found["lifted"]) == PROJECTED
    return found, draw


def matrices(draw: Draw) -> JSON:
    """The key and some entries of a matrix of every kind; seed, model and time as in the round."""
    places = {"sign": (*range(4), 8, 39), "gaussian": (*range(4), 8191, 8192, 8194)}
    found: JSON = {}
    for kind, (d, k) in (("sign", SIGNS), ("gaussian", NORMALS)):
        projection = Projection(kind=kind, parameters=d, dimension=k, clip=1.0, records=1)
        unit = 1 if kind == "sign" else 1 << 20
        whole = np.stack([lift(one, projection, draw) for one in np.eye(k)], axis=1) * sqrt(k)
        entries = np.rint(whole * unit).astype(int)
        found[kind] = {"parameters": d, "dimension": k, "key": projection.key(draw).hex()}
        found[kind]["rows"] = {str(row): entries[row].tolist() for row in places[kind]}
    key = draw.key_of(LAYERS, 18, 8)
    found["layers"] = {"parameters": 18, "dimension": 8, "key": key.hex()}
    made = [layer_matrices(shapes, k) for shapes, k in zip(SHAPES, NUMBERS, strict=True)]
    found["layers"]["divided"] = [
        {"shapes": [list(shape) for shape in shapes], "sent": [m.sent for m in each]}
        for shapes, each in zip(SHAPES, made, strict=True)
    ]
    found["layers"]["signs"] = [_sides(m, key) for m in made[0]]
    return found


def _sides(matrix: Any, key: bytes) -> JSON:
    outer, inner = matrix.signs(key)
    shape = {"place": matrix.place, "rows": matrix.rows, "columns": matrix.columns}
    return shape | {"sent": matrix.sent, "outer": outer.tolist(), "inner": inner.tolist()}


def batches(seed: bytes) -> JSON:
    """The batches of a list: places, and which of a silo's records they are."""
    own = np.array(OWN)
    found: JSON = {"seed": seed.hex(), "records": LIST, "batch": BATCH, "positions": list(OWN)}
    for scheme, steps in ((without_replacement, (1, 2)), (partition, range(1, 6))):
        name = scheme.__name__
        found[name] = []
        for step in steps:
            places = scheme(seed, LIST, BATCH, step)
            mine = chosen_records(places, own).tolist()
            found[name].append({"step": step, "places": places.tolist(), "own": mine})
    return found
