"""Evidence files as a dishonest aggregator may change them: anywhere, or with sense.

A mutation is any change of the content of a true file; the aggregator signs it anew, for it can.
What of it is still true is the business of `true_claims.py`.
"""

from __future__ import annotations

import json
import random
import re
from base64 import b64encode
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from hubbub.core.errors import HubbubError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.claims import spent
from hubbub.core.verification.evidence.evidence_file import part_words
from run.true_claims import Content, TrueFile

Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where something stands, from the outside inwards."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner:
        yield (*at, key)
        if isinstance(one, dict | list):
            yield from places(one, (*at, key))


def at(content: Any, place: Place) -> Any:
    for key in place:
        content = content[key]
    return content


def mutated(true: TrueFile, others: list[TrueFile], chance: random.Random) -> tuple[str, Content]:
    """A changed file, and what was done to it: one to three things."""
    content, done = deepcopy(true.content), []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        change = chance.choice((_anywhere, _anywhere, _anywhere, _from_another, _with_sense))
        try:
            done.append(change(true, content, others, chance))
        except (LookupError, TypeError, ValueError, AttributeError, HubbubError):
            done.append("nothing")  # what an earlier change has taken away
    return "; ".join(done), content


def _anywhere(true: TrueFile, content: Content, _: list[TrueFile], chance: random.Random) -> str:
    """One place of the file, whatever it is; the outer ones as often as the many inner ones."""
    deep = chance.randrange(1, 7)
    known = [one for one in places(content) if len(one) <= deep]
    place = chance.choice([one for one in known if one[0] == chance.choice([*content])] or known)
    parent, key = at(content, place[:-1]), place[-1]
    what = chance.choice((_deleted, _emptied, _changed, _changed, _listed, _swapped))
    what(parent, key, chance)
    return f"{what.__name__} {place}"


def _deleted(parent: Any, key: Any, _: random.Random) -> None:
    del parent[key]


def _emptied(parent: Any, key: Any, chance: random.Random) -> None:
    parent[key] = chance.choice((type(parent[key])(), None, [], {}, "", 0, False))


def _changed(parent: Any, key: Any, chance: random.Random) -> None:
    value = parent[key]
    if isinstance(value, bool) or value is None:
        parent[key] = chance.choice((True, False, None, 0, 1))
    elif isinstance(value, int):
        parent[key] = chance.choice((value + 1, value - 1, 0, 1, -value, float(value), 2 * value))
    elif isinstance(value, float):
        factors = (1 + 1e-9, 1 - 1e-7, 1 - 1e-5, 0.999, 1.001, 0.5, 0, -1)
        parent[key] = chance.choice((value + 1, value - 1, *(value * one for one in factors)))
    elif isinstance(value, str) and value:
        spot = chance.randrange(len(value))
        other = chance.choice("0123456789abcdefABCDEF =\n")
        parent[key] = chance.choice(
            (value[:spot] + other + value[spot + 1 :], value[:-1], value + other, value.upper())
        )
    elif isinstance(value, list) and value:
        _listed(parent, key, chance)
    elif isinstance(value, dict) and value:
        _changed(value, chance.choice([*value]), chance)


def _listed(parent: Any, key: Any, chance: random.Random) -> None:
    """A list shortened, doubled, or in another order."""
    value = parent[key]
    if not isinstance(value, list):
        return _changed(parent, key, chance) if not isinstance(value, dict) else None
    some = chance.randrange(len(value) + 1)
    parent[key] = chance.choice(
        (
            *(value[:some], value[some:], value[:-1], value[1:], value[::-1]),
            *(value + value[:1], value + value, value[:1] * len(value)),
            chance.sample(value, len(value)),
        )
    )
    return None


def _swapped(parent: Any, key: Any, chance: random.Random) -> None:
    """Two members of one kind in each other's place."""
    keys = [*parent] if isinstance(parent, dict) else [*range(len(parent))]
    other = chance.choice([one for one in keys if type(parent[one]) is type(parent[key])])
    parent[key], parent[other] = parent[other], parent[key]
    if isinstance(parent[key], dict) and isinstance(parent[other], dict):  # or a member of theirs
        name = chance.choice([*(parent[key].keys() & parent[other].keys())])
        one, two = parent[key], parent[other]
        one[name], two[name] = two[name], one[name]


def _from_another(
    _true: TrueFile, content: Content, others: list[TrueFile], chance: random.Random
) -> str:
    """Members of another run's file, alone or with what belongs to them."""
    other = chance.choice(others)
    names = chance.choice(
        (
            *(("silos",), ("silos", "transcripts"), ("attested",), ("attested", "transcripts")),
            *(("study",), ("plan",), ("study", "plan"), ("study", "plan", "epsilon"), ("roster",)),
            *(("epsilon",), ("files", "model"), ("transcripts",), ("study", "epsilon")),
            ("study", "plan", "epsilon", "silos", "transcripts"),
            ("silos", "roster"),
        )
    )
    for name in names:
        if name in other.content:
            content[name] = deepcopy(other.content[name])
    if chance.random() < 0.3 and content["silos"] and other.content["silos"]:
        content["silos"][0] = deepcopy(chance.choice(other.content["silos"]))
    return f"{', '.join(names)} of {other.kind}"


def _with_sense(
    true: TrueFile, content: Content, others: list[TrueFile], chance: random.Random
) -> str:
    """What somebody would do who wants to be believed."""
    change = chance.choice(WITH_SENSE)
    change(true, content, others, chance)
    return change.__name__


def _fewer_attempts(true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    number = chance.randrange(true.plan.mechanism.steps + 2)
    content["epsilon"] |= {"attempts": number, "after_attempts": spent(true.plan, number)}


def _silent(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """Parts of some silos are left out, or of all."""
    content["silos"] = chance.sample(content["silos"], chance.randrange(len(content["silos"])))


def _silent_with_fewer(true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    _silent(true, content, _, chance)
    _fewer_attempts(true, content, _, chance)
    few = chance.choice((0, 1, 5, 15))
    for one in content["transcripts"]:
        one["frames"] = min(one["frames"], few)


def _fewer_frames(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    for one in content["transcripts"]:
        one["frames"] = chance.choice((0, 1, one["frames"] - 1))


def _unshown(true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """Evidence of machines is kept back, and frames and sessions are said to fit."""
    content["attested"] = content["attested"][: chance.randrange(len(content["attested"]))]
    if chance.random() < 0.7:
        _fewer_frames(true, content, _, chance)
    if chance.random() < 0.3:
        kept = {one["session"] for one in content["attested"]}
        content["transcripts"] = [one for one in content["transcripts"] if one["session"] in kept]
    if chance.random() < 0.5:
        _silent(true, content, _, chance)


def _session_lost(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """A session is not listed, nor what was shown in it."""
    gone = chance.choice(content["transcripts"])["session"]
    for name in ("transcripts", "attested"):
        if name in content:
            content[name] = [one for one in content[name] if one["session"] != gone]
    if chance.random() < 0.5:
        content["silos"] = [one for one in content["silos"] if gone not in one["sessions"]]


def _other_purpose(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    for one in content["transcripts"]:
        one["purpose"] = chance.choice(("evaluation", "statistics", "training", "nothing"))


def _own_words(true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """A part as the aggregator would like it, which it can only sign itself."""
    part, keys = chance.choice(content["silos"]), true.keys[0]
    assert keys is not None
    part |= chance.choice(
        ({"attempts": 0}, {"sessions": []}, {"closed": True}, {"unlisted": []}, {"attempts": 1})
    )
    part["signature"] = keys.sign(part_words(part)).hex()


def _signatures_swapped(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    one, two = chance.sample(content["silos"], 2)
    one["signature"], two["signature"] = two["signature"], one["signature"]
    if chance.random() < 0.5:
        one["silo"], two["silo"] = two["silo"], one["silo"]


def _other_keys(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """Silos whose keys the aggregator has made, and what they would sign."""
    for index, party in enumerate(content["roster"]):
        if party["role"] != "silo" or chance.random() < 0.3:
            continue
        keys = Keys.generate(party["name"], "silo")
        public = {"verifying": keys.identity.verifying, "sealing": keys.identity.sealing}
        content["roster"][index] |= {name: _base64(one) for name, one in public.items()}
        for part in content["silos"]:
            if part["silo"] == party["name"]:
                part["attempts"] = chance.choice((0, 1, part["attempts"]))
                part["signature"] = keys.sign(part_words(part)).hex()


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _other_study(true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """A study that promises less epsilon, or more noise, with its own id."""
    text = true.content["study"]["toml"]
    old = re.search(r"epsilon ?= ?[0-9.]+", text)
    assert old is not None
    study = Study.parse(text.replace(old[0], f"epsilon = {chance.choice((0.25, 3.0))}", 1))
    content["study"] = {"name": study.name, "id": study.id.hex(), "toml": study.as_toml()}


def _less_to_everybody(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """Every epsilon, wherever it stands."""
    factor = chance.choice((0.5, 0.999, 1.5))
    for rows in (content["epsilon"]["claimed"], content["epsilon"]["after_attempts"]):
        for row in rows:
            row["epsilon"] = row["epsilon"] and row["epsilon"] * factor


def _other_adversary(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    name = chance.choice(content["epsilon"]["claimed"])["adversary"]
    content["epsilon"]["stated_adversary"] = content["plan"]["stated_adversary"] = name


def _another_size(_true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    content["plan"]["dimension"] += chance.choice((-1, 1, 26))


def _shown_for_other_keys(true: TrueFile, content: Content, _: Any, chance: random.Random) -> None:
    """A session has a roster of its own, with keys that somebody has made."""
    one = chance.choice(content["attested"])
    own = deepcopy(content["roster"])
    _other_keys(true, {"roster": own, "silos": []}, _, chance)
    one["roster"] = own


WITH_SENSE = (
    *(_fewer_attempts, _silent, _silent_with_fewer, _fewer_frames, _unshown, _session_lost),
    *(_other_purpose, _own_words, _signatures_swapped, _other_keys, _other_study),
    *(_less_to_everybody, _other_adversary, _another_size, _shown_for_other_keys),
)


def content_of(folder: Path) -> Content:
    """Of the evidence of a run, without the signature."""
    content: Content = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    del content["signature"]
    return content
