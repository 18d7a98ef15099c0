"""Every message of a list of two tokens, and of joint randomness, with fixed keys.

    python -m sampling.vectors        writes vectors.json anew, in the folder of this file

Layers are sealed with fresh randomness, so what wrapping gave is part of the file; all else follows
from it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from hubbub.core.protocol.agreement.joint_seed import JointSeed
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel
from hubbub.core.protocol.token_lists import onion_layers
from hubbub.core.protocol.token_lists.mixer import Mixer
from hubbub.core.protocol.token_lists.token_list import ListContext, Publication, list_places
from sampling.silos import KEYS, SESSION, STUDY

FILE = Path(__file__).parent / "vectors.json"
ROSTER = Roster.of(KEYS[:3])
COUNTS = (1, 1)
NUMBER = 3


def stored() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def written(vectors: dict[str, Any]) -> str:
    return json.dumps(vectors, indent=1) + "\n"


def fixed(purpose: str, index: int) -> bytes:
    return hashlib.sha256(f"{purpose} of {index}".encode()).digest()


def mixer(index: int) -> Mixer:
    with mock.patch.object(onion_layers, "fresh_private", return_value=fixed("mix key", index)):
        return Mixer(
            keys=KEYS[index],
            index=index,
            list_context=ListContext(roster=ROSTER, study=STUDY, session=SESSION, number=NUMBER),
            counts=COUNTS,
        )


def begun(
    wrapped: dict[str, Any],
) -> tuple[dict[int, Mixer], list[bytes], list[bytes], list[Publication]]:
    """All silos after step 0, from what wrapping gave: mixers, keys, commitments, publications."""
    silos = {index: mixer(index) for index in ROSTER.silos}
    keys = [one.key() for one in silos.values()]
    commits = []
    for index, one in silos.items():
        with mock.patch.object(
            onion_layers, "wrapped", return_value=_from_hex(wrapped[str(index)])
        ):
            commits.append(one.commit(keys))
    return silos, keys, commits, [one.submit(commits) for one in silos.values()]


def built(wrapped: dict[str, Any]) -> dict[str, Any]:
    """All messages, from what wrapping gave."""
    silos, keys, commits, published = begun(wrapped)
    steps = []
    for turn in (0, *silos):
        if turn:
            published = [silos[turn].mix([one.forms for one in published])]
        names = [one.names for one in published]
        seen = [one.look(names) for one in silos.values()]
        for one in silos.values():
            one.agree(seen)
        forms = [one.forms for one in published]
        steps.append({"MIX_NAMES": _hex(names), "MIX_FORMS": _hex(forms), "MIX_SEEN": _hex(seen)})
    owned = [one.finish() for one in silos.values()]
    again, _, _, published = begun(wrapped)  # the same once more, and somebody complains
    for step in (0, 1):
        names = [bytes.fromhex(one) for one in steps[step]["MIX_NAMES"]]
        seen = [one.look(names) for one in again.values()]
        if step == 0:
            for one in again.values():
                one.agree(seen)
            again[1].mix([one.forms for one in published])
    complaint = again[2].complain()
    return {
        "study": STUDY.hex(),
        "session": SESSION.hex(),
        "roster": ROSTER.digest.hex(),
        "privates": _hex([fixed("mix key", index) for index in silos]),
        "wrapped": wrapped,
        "MIX_KEY": _hex(keys),
        "MIX_COMMIT": _hex(commits),
        "steps": steps,
        "digest": owned[0].tokens.digest.hex(),
        "positions": [one.positions.tolist() for one in owned],
        "MIX_COMPLAINT": complaint.hex(),
        "MIX_OPENED": _hex([one.give_up(complaint) for one in again.values()]),
        **_joint(),
    }


def _joint() -> dict[str, Any]:
    silos = {
        index: JointSeed(
            keys=KEYS[index],
            channel=Channel(roster=ROSTER, study=STUDY, session=SESSION),
            index=index,
            steps=5,
            attempts=2,
            source=SecureSource(fixed("chain", index)[:16]),
        )
        for index in ROSTER.silos
    }
    anchors = [one.anchor() for one in silos.values()]
    (digest,) = {one.learn_anchors(anchors) for one in silos.values()}
    links = [one.reveal(2, 1) for one in silos.values()]
    return {
        "SEED_ANCHOR": _hex(anchors),
        "anchors": digest.hex(),
        "SEED_LINK": _hex(links),
        "seed": silos[1].seed(2, 1, silos, links).hex(),
    }


def fresh() -> dict[str, Any]:
    """What wrapping gives; the only part that is different each time."""
    publics = [onion_layers.public_of(fixed("mix key", index)) for index in ROSTER.silos]
    list_context = ListContext(roster=ROSTER, study=STUDY, session=SESSION, number=NUMBER)
    places = list_places(list_context, COUNTS, publics)
    made = {}
    for index in ROSTER.silos:
        token = fixed("token", index)[:16]
        forms, names = onion_layers.wrapped(token, publics, places, onion_layers.in_this_thread)
        made[str(index)] = {
            "forms": forms.tobytes().hex(),
            "names": _hex(each.tobytes() for each in names),
        }
    return made


def _hex(frames: Any) -> list[str]:
    return [frame.hex() for frame in frames]


def _from_hex(one: dict[str, Any]) -> tuple[np.ndarray, list[np.ndarray]]:
    forms = onion_layers.forms_in(
        bytes.fromhex(one["forms"]), onion_layers.form_bytes(len(ROSTER.silos))
    )
    return forms, [onion_layers.names_in(bytes.fromhex(names)) for names in one["names"]]


if __name__ == "__main__":
    FILE.write_text(written(built(fresh())), encoding="utf-8")
