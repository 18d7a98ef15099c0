"""Writes the golden vectors, and the annotated frames of frames.md from them.

    PYTHONPATH=src:tests python tests/core/protocol/vectors/make.py

    pairwise, nodes         a whole set-up and round, every frame and derived value
    away                    the same with pairwise masks, where silo 3 of 4 is not there
    network                 frames that open and close a session, envelopes (parcels), a context
    frames                  the frames of frames.md in full
    masks                   pair secret, transcript, time, key, word size, ends and hash
    encoding                real numbers, residues, integers
    joint                   the same set-up with anchors; links and seeds of some attempts, a round
                            with a projected sum, matrices of every kind, batches
    graphs                  neighbours for a joint seed; the nodes of each silo
    bad_frames, bad_joint   what must be refused, the step that must do it, and the blamed party

Everything follows from fixed keys and seeds, so that the files come out the same every time. Only
sealing draws randomness that nobody can choose; what was sealed once is kept in sealed.json, which
is an input. A change of the other files is a change of the wire: see the heading *Wire* of the
changelog. A new contribution is sealed with the argument --seal, once.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hubbub.core.protocol.agreement import masks as mask_graph
from hubbub.core.protocol.agreement.key_agreement import (
    Agreement,
    PairSecret,
    Place,
    Session,
    sent_digests,
)
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Identity
from hubbub.core.protocol.primitives.noise import add_noise_and_round
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.round.additive_shares import ShareNode, sealed_shares
from hubbub.core.session.offer import Layout
from protocol.parties import SESSION, STUDY, World, world
from protocol.vectors.bad import bad
from protocol.vectors.bad_joint import bad_joint
from protocol.vectors.collection import shown
from protocol.vectors.joint import committed, joint
from protocol.vectors.network import network
from protocol.vectors.page import PAGES, page

HERE = Path(__file__).parent
NAMES = (
    *("pairwise", "nodes", "away", "masks", "encoding", "graphs", "joint"),
    *("network", "frames", "bad_frames", "bad_joint"),
)
MIXED = HERE.parents[1] / "sampling" / "vectors.json"
PAIRWISE, NODES = world(3, quorum=2), world(3, nodes=1, quorum=2)
JOINT = world(3, quorum=2, joint=True)
AWAY = world(4, quorum=3)
SILOS, HERE_OF_FOUR = (1, 2, 3), (1, 2, 4)
PARAMETERS = np.array([0.5, -1.25], dtype=np.float32)
ROUND, ATTEMPT = 7, 1
VALUES = {silo: [silo, -silo, 1000 * silo, 0, 2**31 - silo] for silo in (1, 2, 3, 4)}
REALS = (0.0, 0.2, -0.2, 0.25, 0.75, 1.25, -0.25, -0.75, -100.1, 16383.6, 16384.0, -16384.5)
LENGTHS = (1, 7, 1000, 1_000_003)  # the last is cut into chunks and among threads
JSON = dict[str, Any]
Seal = Callable[[Identity, bytes, bytes], bytes]


def here(w: World) -> tuple[int, ...]:
    """The silos that are there."""
    return HERE_OF_FOUR if w is AWAY else SILOS


def party(w: World, index: int) -> Agreement:
    """A party of the vectors: its randomness follows from its index."""
    key = hashlib.sha256(b"randomness of party %d" % index).digest()[:16]
    context = committed(w)[2] if w.joint else b""
    roll = w.rolled(here(w))[1]
    return w.agreement(index, source=SecureSource(key), context=context, roll=roll)


def contributed(one: Agreement, seal: Seal) -> dict[int, bytes]:
    """Phase 3 with given sealed bytes."""
    with patch.object(Identity, "seal", seal):
        return one.contribute()


def session(w: World, seal: Seal) -> tuple[JSON, dict[int, Session]]:
    """Everything that a set-up sends and derives."""
    parties = {index: party(w, index) for index in (*here(w), *w.roster.nodes)}
    found: JSON = {"study": STUDY.hex(), "session": SESSION.hex(), "roster": _roster(w)}
    found["roster_digest"], found["roll"] = w.roster.digest.hex(), w.rolled(here(w))[0].hex()
    if not w.layout.nodes:
        commits = [one.commit() for one in parties.values()]
        reveals = [one.reveal(commits) for one in parties.values()]
        for one in parties.values():
            one.learn_seed(reveals)
        found["commits"] = [data.hex() for data in commits]
        found["reveals"] = [data.hex() for data in reveals]
    sent = {index: contributed(one, seal) for index, one in parties.items()}
    digests = sent_digests(sent, len(w.keys))
    found["contributions"] = _hex(sent)
    found["contributed"] = _hex({index: one._sent for index, one in parties.items()})
    found["digests"] = digests.hex()
    out = {i: one.confirm(_inbox(sent, i), digests) for i, one in parties.items()}
    found["confirms"] = [confirm.hex() for confirm, _ in out.values()]
    checks = {index: each for index, (_, each) in out.items()}
    found["checks"] = _hex(checks)
    sessions = {}
    for index, one in parties.items():
        confirms = [out[other][0] for other in one.confirmers]
        sessions[index] = one.finish(confirms, _inbox(checks, index))
    found["seed"] = sessions[1].seed.hex()
    found["transcript"] = sessions[1].transcript.hex()
    found["secrets"] = {
        f"{index}-{other}": secret._value.hex()
        for index, one in sessions.items()
        for other, secret in one.secrets.items()
        if index < other
    }
    return found, sessions


def a_round(w: World, sessions: dict[int, Session]) -> JSON:
    """One attempt: the model, the masked vectors, the node's promise and total, the sum."""
    aggregator, silos = w.aggregator(), here(w)
    model = aggregator.begin(ROUND, ATTEMPT, silos, PARAMETERS)
    found: JSON = {"round": ROUND, "attempt": ATTEMPT, "active": list(silos), "word_bits": 32}
    found["values"] = {str(silo): VALUES[silo] for silo in silos}
    found["model"], found["model_digest"] = model.hex(), unverified(model).digest.hex()
    found["masked"] = []
    for index in silos:
        one = w.masking(sessions[index])
        residues = ring.to_residues(np.array(VALUES[index], dtype=np.int64), 32)
        answer = one.masked(one.accept(model), residues)
        aggregator.receive(answer)
        found["masked"].append(answer.hex())
    nodes = {index: w.node(sessions[index]) for index in w.roster.nodes}
    requests = aggregator.ask_nodes(Tag.REQUEST) if nodes else {}
    promises = [nodes[index].promise(request) for index, request in requests.items()]
    for promise in promises:
        aggregator.receive(promise)
    totals = [node.total(promises) for node in nodes.values()]
    for total in totals:
        aggregator.receive(total)
    found["requests"] = [request.hex() for request in requests.values()]
    found["promises"] = [promise.hex() for promise in promises]
    found["totals"] = [total.hex() for total in totals]
    found["sum"] = aggregator.attempt.integers().tolist()
    return found


def masks() -> list[JSON]:
    """Mask streams, from the pair's secret to the words."""
    return [a_mask(bits, length) for bits in (16, 32, 64) for length in LENGTHS]


def a_mask(bits: int, length: int) -> JSON:
    """The mask of one pair in one attempt, by its ends and its hash."""
    secret, transcript, model = (
        hashlib.sha256(b"%s %d %d" % (what, bits, length)).digest()
        for what in (b"secret", b"transcript", b"model")
    )
    round, attempt = bits, length % 5
    key = PairSecret(low=1, high=2, _value=secret).mask_key(
        transcript, Place(round=round, attempt=attempt, model=model)
    )
    vector = ring.zeros(length, bits)
    MaskStream().add(vector, key)
    return {
        "secret": secret.hex(),
        "transcript": transcript.hex(),
        "round": round,
        "attempt": attempt,
        "model_digest": model.hex(),
        "key": key.hex(),
        "word_bits": bits,
        "length": length,
        "first": [str(word) for word in vector[:4].tolist()],
        "last": [str(word) for word in vector[-4:].tolist()],
        "sha256": hashlib.sha256(ring.to_bytes(vector)).hexdigest(),
    }


def encoding() -> list[JSON]:
    """Real numbers on a grid of 1/2, without noise; the last ones wrap in 16 bits."""
    found = []
    for bits in (16, 32, 64):
        scaled = np.array(REALS) / 0.5
        residues = add_noise_and_round(scaled, 0.0, SecureSource(bytes(16)), bits)
        found.append(
            {
                "word_bits": bits,
                "grid_step": 0.5,
                "reals": list(REALS),
                "residues": [str(word) for word in residues.tolist()],
                "integers": ring.to_integers(residues).tolist(),
            }
        )
    return found


def graphs() -> JSON:
    """Mask graphs of a seed (silos from 0), and the nodes of each silo (roster indices)."""
    seed = hashlib.sha256(b"a joint seed").digest()
    drawn = [
        {
            "silos": silos,
            "degree": each,
            "neighbours": {
                str(one): mask_graph.neighbours_of(one, silos, each, seed)
                for one in (0, 1, silos - 1)
            },
        }
        for silos, each in ((5, 4), (20, 2), (20, 6), (100, 12), (1000, 18))
    ]
    names = tuple(f"silo-{number}" for number in range(1, 6))
    layout = Layout(names=names, nodes=4, nodes_per_silo=3)
    used = {str(silo): layout.neighbours(silo, b"") for silo in range(1, 6)}
    return {
        "seed": seed.hex(),
        "regular": drawn,
        "nodes": {"silos": 5, "nodes": 4, "nodes_per_silo": 3, "used": used},
    }


def shared(w: World, sessions: dict[int, Session], model: bytes) -> JSON:
    """Full shares of all silos for the compute node, and what it says of them.

    They are their whole vectors, since there is one node. Silo 3 has sealed its share for another
    attempt, so that it does not open.
    """
    (node,), shares = w.roster.nodes, []
    place = Place(round=ROUND, attempt=ATTEMPT, model=model)
    where = {"round": ROUND, "attempt": ATTEMPT, "receiver": node}
    for index in SILOS:
        residues = ring.to_residues(np.array(VALUES[index], dtype=np.int64), 32)
        for_whom = replace(place, attempt=ATTEMPT + (index == 3))
        sealed = sealed_shares(residues, sessions[index], for_whom, SecureSource(bytes(16)))
        shares.append(w.forge(index, Tag.SHARE, sealed[node], **where))
    round_parameters = replace(w.round_parameters, full_shares=True)
    arrived = w.forge(0, Tag.ARRIVED, round_parameters.named_payload(SILOS, model), **where)
    one = ShareNode(
        keys=w.keys[node],
        roster=w.roster,
        round_parameters=round_parameters,
        session=sessions[node],
        mask_stream=MaskStream(),
    )
    for share in shares:
        one.keep(share)
    held = one.held(arrived)
    return {
        "shares": [share.hex() for share in shares],
        "arrived": arrived.hex(),
        "held": held.hex(),
    }


def frames(pairwise: JSON, nodes: JSON, joint: JSON, network: JSON) -> JSON:
    """One frame of every tag; those of a shuffled token list from its own vectors."""
    mixed = json.loads(MIXED.read_text(encoding="utf-8"))
    return {
        "ROLL": pairwise["roll"],
        "COMMIT": pairwise["commits"][0],
        "REVEAL": pairwise["reveals"][0],
        "CONTRIBUTION": pairwise["contributions"]["1"]["2"],
        "CONFIRM": pairwise["confirms"][0],
        "KEY_CHECK": pairwise["checks"]["1"]["2"],
        "MODEL": pairwise["round"]["model"],
        "MASKED": pairwise["round"]["masked"][0],
        "REQUEST": nodes["round"]["requests"][0],
        "PROMISE": nodes["round"]["promises"][0],
        "TOTAL": nodes["round"]["totals"][0],
        "SHARE": nodes["round"]["shares"][0],
        "ARRIVED": nodes["round"]["arrived"],
        "HELD": nodes["round"]["held"],
        "SEED_ANCHOR": joint["anchors"][0],
        "SEED_LINK": joint["round"]["links"][0],
        "MIX_KEY": mixed["MIX_KEY"][0],
        "MIX_COMMIT": mixed["MIX_COMMIT"][0],
        "MIX_NAMES": mixed["steps"][1]["MIX_NAMES"][0],
        "MIX_FORMS": mixed["steps"][1]["MIX_FORMS"][0],
        "MIX_SEEN": mixed["steps"][1]["MIX_SEEN"][0],
        "MIX_COMPLAINT": mixed["MIX_COMPLAINT"],
        "MIX_OPENED": mixed["MIX_OPENED"][0],
        **network["frames"],
        **shown(),
    }


def build(seal: Seal) -> JSON:
    """All files, by name."""
    files: JSON = {"masks": masks(), "encoding": encoding(), "graphs": graphs()}
    for name, w in (("pairwise", PAIRWISE), ("nodes", NODES), ("away", AWAY)):
        found, sessions = session(w, seal)
        files[name] = found | {"round": a_round(w, sessions)}
        if w.layout.nodes:
            model = bytes.fromhex(files[name]["round"]["model_digest"])
            files[name]["round"] |= shared(w, sessions, model)
    files["joint"] = joint(JOINT, *session(JOINT, seal))
    files["network"] = network(PAIRWISE, bytes.fromhex(files["pairwise"]["round"]["model"]))
    files["frames"] = frames(*(files[name] for name in ("pairwise", "nodes", "joint", "network")))
    files["bad_joint"] = bad_joint(JOINT, files["joint"])
    files["bad_frames"] = bad(PAIRWISE, files["pairwise"], NODES, files["nodes"])
    return files


def stored(name: str) -> Any:
    """A file as it is."""
    return json.loads((HERE / f"{name}.json").read_text())


def sealing_from(sealed: dict[str, str], *, missing: bool = False) -> Seal:
    """`Identity.seal` that gives what was sealed once; `missing`: seals a new one."""
    fresh = Identity.seal

    def seal(self: Identity, plaintext: bytes, context: bytes) -> bytes:
        what = hashlib.sha256(self.sealing + plaintext + context).hexdigest()
        if missing and what not in sealed:
            sealed[what] = fresh(self, plaintext, context).hex()
        return bytes.fromhex(sealed[what])

    return seal


def written(content: Any, indent: str = "") -> str:
    """JSON in which whatever is short stays on its line."""
    line = json.dumps(content)
    if len(line) < 90 or not isinstance(content, dict | list):
        return line
    inner = indent + " "
    if isinstance(content, list):
        parts, ends = [written(value, inner) for value in content], "[]"
    else:
        parts = [f"{json.dumps(key)}: {written(value, inner)}" for key, value in content.items()]
        ends = "{}"
    return f"{ends[0]}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{ends[1]}"


def main() -> None:
    """Write everything."""
    sealed, more = stored("sealed"), "--seal" in sys.argv[1:]
    files = build(sealing_from(sealed, missing=more))
    if more:
        files["sealed"] = sealed
    for name, content in files.items():
        (HERE / f"{name}.json").write_text(written(content) + "\n", encoding="utf-8")
    for one in PAGES:
        one.write_text(page(one.read_text(encoding="utf-8"), files), encoding="utf-8")


def _roster(w: World) -> list[JSON]:
    return [
        {
            "name": one.name,
            "role": one.role,
            "verifying": one.verifying.hex(),
            "sealing": one.sealing.hex(),
        }
        for one in w.roster.parties
    ]


def _hex(sent: dict[int, dict[int, bytes]]) -> JSON:
    """From sender to receiver to hex."""
    return {str(i): {str(to): data.hex() for to, data in each.items()} for i, each in sent.items()}


def _inbox(sent: dict[int, dict[int, bytes]], index: int) -> list[bytes]:
    return [frames[index] for frames in sent.values() if index in frames]


if __name__ == "__main__":
    main()
