"""Writes collection.json: a whole collection, every frame and derived value, and bad frames.

    PYTHONPATH=src:tests python -m protocol.vectors.collection

Nodes' keys and sealed seeds are random, so the file comes out different each time: it was made
once, and is an input of tests as of other implementations. Made anew, it is a change of the wire.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hubbub.core.protocol.primitives.wire import Tag
from hubbub.site.collected.collection_frames import SEALED_SEED_BYTES, mask_key, opened_seed
from protocol.collection_world import Collection, collection

FILE = Path(__file__).with_name("collection.json")
RECEIPT = b'{"until": 1798156800, "come": 2, "quorum": 2, "taken": ""}'
PARTS = ("signing", "lattice", "curve")


def vectors() -> dict[str, Any]:
    """The file."""
    c = collection(3, 2, quorum=2)
    keys = c.node_keys
    secrets = {str(node): _secret(c, node) for node in c.nodes}
    sent = {silo: c.deposit(silo) for silo in (1, 3)}
    heads = [one.deposit for one in sent.values()]
    looked = c.node(4).look(c.states[4], keys, heads)
    seeds, masks = {}, {}
    for silo, one in sent.items():
        for place, node in enumerate(c.nodes):
            start = 74 + 64 + SEALED_SEED_BYTES * place
            sealed, secret = one.deposit[start : start + SEALED_SEED_BYTES], c.states[node].secret
            seed = opened_seed(c.opening, silo, node, sealed, secret) if secret else None
            assert seed is not None
            seeds[f"{silo}-{node}"] = seed.hex()
            masks[f"{silo}-{node}"] = mask_key(c.opening, silo, node, seed).hex()
    fixed = c.set_of(sent)
    promises = [c.promise(node, fixed, heads) for node in c.nodes]
    totals = [c.total(node, heads, promises) for node in c.nodes]
    return {
        "collect": c.collect.hex(),
        "node_keys": [one.hex() for one in keys],
        "node_secrets": secrets,
        "q": c.opening.q.hex(),
        "deposits": {str(silo): one.deposit.hex() for silo, one in sent.items()},
        "vectors": {str(silo): one.vector.hex() for silo, one in sent.items()},
        "seeds": seeds,
        "mask_keys": masks,
        "looked": looked.hex(),
        "receipt": c.w.forge(0, Tag.RECEIPT, RECEIPT, session=c.id, receiver=1).hex(),
        "set": fixed.hex(),
        "promises": [one.hex() for one in promises],
        "totals": [one.hex() for one in totals],
        "sum": [1010] * 5,
        "bad": [
            {"name": name, "step": step, "culprit": culprit, "says": says, "frame": frame.hex()}
            for name, step, culprit, says, frame in _bad(c, fixed, heads[0], promises[0])
        ],
    }


def shown() -> dict[str, str]:
    """One frame of every tag, for the page."""
    known = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        "COLLECT": known["collect"],
        "NODE_KEY": known["node_keys"][0],
        "DEPOSIT": known["deposits"]["1"],
        "VECTOR": known["vectors"]["1"],
        "LOOKED": known["looked"],
        "SET": known["set"],
        "SET_PROMISE": known["promises"][0],
        "SET_TOTAL": known["totals"][0],
        "RECEIPT": known["receipt"],
    }


def _secret(c: Collection, node: int) -> str:
    secret = c.states[node].secret
    assert secret is not None
    return b"".join(secret.secret_parts()[name] for name in PARTS).hex()


def _bad(c: Collection, fixed: bytes, head: bytes, promise: bytes) -> list[Any]:
    """Frames that the step must refuse, and whom it must blame."""

    def again(frame: bytes, sender: int, tag: Tag, change: Any) -> bytes:
        return c.w.forge(sender, tag, change(frame[74:-64]), session=c.id)

    flip = lambda data: bytes([data[0] ^ 1]) + data[1:]  # noqa: E731
    return [
        ("set of another Q", "set", "aggregator", "another", again(fixed, 0, Tag.SET, flip)),
        (
            "set of one silo",
            "set",
            "aggregator",
            "at least 2",
            again(fixed, 0, Tag.SET, lambda p: p[:32] + b"\x80" + p[33:65]),
        ),
        (
            "set with a digest more",
            "set",
            "aggregator",
            "the digests of 2",
            again(fixed, 0, Tag.SET, lambda p: p + bytes(32)),
        ),
        ("set of a silo", "set", "relay", "of aggregator", again(fixed, 1, Tag.SET, bytes)),
        ("deposit of a node", "deposit", "node-1", "a silo", again(head, 4, Tag.DEPOSIT, bytes)),
        (
            "deposit a byte short",
            "deposit",
            "silo-1",
            "a DEPOSIT of",
            again(head, 1, Tag.DEPOSIT, lambda p: p[:-1]),
        ),
        (
            "promise of another set",
            "promise",
            "node-1",
            "about another",
            again(promise, 4, Tag.SET_PROMISE, flip),
        ),
    ]


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n", encoding="utf-8")
