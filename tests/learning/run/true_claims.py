"""What of an evidence file is true: each claim that may be called re-derived, against the run.

A file may have been changed and signed anew by a dishonest aggregator. `falsely_confirmed` knows of
each claim what makes it true, from the run itself and not from the file; a claim that it does not
know counts as false, so that nobody confirms something new without saying here when it is true.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isclose
from pathlib import Path
from typing import Any

from hubbub.core.errors import HubbubError
from hubbub.core.planning.exposure import stated_adversary
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.claims import check, spent
from hubbub.core.verification.evidence.evidence_file import Finding, with_signature
from hubbub.core.verification.transcript.frame_records import roster_of

Content = dict[str, Any]
SIX_DIGITS = 1.000001e-6


@dataclass(frozen=True, kw_only=True)
class TrueFile:
    """The evidence of a run that was honest to the end.

    Args:
        kind: of the run.
        content: of its file, without the signature.
        keys: of the parties, in the order of the roster; where one is unknown, None.
    """

    kind: str
    content: Content
    keys: tuple[Keys | None, ...]

    @property
    def study(self) -> Study:
        return _parsed(self.content["study"]["toml"])

    @property
    def plan(self) -> Plan:
        return _planned(self.content["study"]["toml"], self.content["plan"]["dimension"])

    @property
    def charged(self) -> int:
        """Attempts of the silo that has charged most."""
        return max(one["attempts"] for one in self.content["silos"])

    @property
    def sessions(self) -> set[str]:
        """In which something was charged."""
        return {name for one in self.content["silos"] for name in one["sessions"]}

    def found(self, content: Content, path: Path) -> list[Finding]:
        """What a verifier says of changed content that the aggregator has signed."""
        keys = self.keys[0]
        assert keys is not None
        try:
            path.write_text(with_signature(content, keys.sign), encoding="utf-8")
            return check(path)
        except (HubbubError, ValueError, TypeError):
            return []  # refused as a whole


@lru_cache
def _parsed(text: str) -> Study:
    return Study.parse(text)


@lru_cache
def _planned(text: str, dimension: int) -> Plan:
    return plan(_parsed(text), dimension=dimension)


# What is true ------------------------------------------------------------------------------------


def close(shown: Any, truth: Any) -> bool:
    """Whether plain values agree, real numbers to six digits."""
    if isinstance(truth, dict):
        return (
            isinstance(shown, dict)
            and shown.keys() == truth.keys()
            and all(close(shown[key], truth[key]) for key in truth)
        )
    if isinstance(truth, list | tuple):
        return (
            isinstance(shown, list) and len(shown) == len(truth) and all(map(close, shown, truth))
        )
    if isinstance(truth, float) and type(shown) in (int, float):
        return isclose(shown, truth, rel_tol=SIX_DIGITS)
    return type(shown) is type(truth) and shown == truth


def _study(_: TrueFile, content: Content, name: str, start: str) -> bool:
    """A claim about a text alone, which names it."""
    study = _parsed(content["study"]["toml"])
    said = content["study"]["id"], content["study"]["name"]
    return said == (study.id.hex(), name) and study.name == name and said[0].startswith(start)


def _of_the_study(true: TrueFile, content: Content) -> bool:
    return _parsed(content["study"]["toml"]).id == true.study.id


def _plan(true: TrueFile, content: Content, start: str, parameters: str) -> bool:
    """A claim about two texts: the run need not have had either."""
    text, dimension = content["study"]["toml"], int(parameters)
    return (
        _parsed(text).id.hex().startswith(start)
        and content["plan"]["dimension"] == dimension
        and (dimension == true.plan.dimension or not _of_the_study(true, content))
        and close(content["plan"], _planned(text, dimension).to_dict())
    )


def _claimed(true: TrueFile, content: Content, *_: str) -> bool:
    made = _planned(content["study"]["toml"], content["plan"]["dimension"])
    rows = spent(made, made.mechanism.steps)
    return _is_shown(true, content) and close(content["epsilon"]["claimed"], rows)


def _attempts(true: TrueFile, content: Content, counted: str, how: str, most: str) -> bool:
    number, charged = int(counted.replace(",", "")), true.charged
    if _is_rekeyed(true, content):  # a claim about those keys, of which nobody knows whose they are
        charged = max(one["attempts"] for one in content["silos"])
    made = _planned(content["study"]["toml"], content["plan"]["dimension"])
    rows = spent(made, number)
    of_all = zip(rows, spent(made, charged), strict=True)
    return (
        (how != "charged" or number == charged)
        and _is_shown(true, content)
        and number == content["epsilon"]["attempts"]
        and int(most) == charged
        and close(content["epsilon"]["after_attempts"], rows)
        and all(_most(a) >= _most(b) * (1 - 1e-9) for a, b in of_all)
    )


def _most(row: Content) -> float:
    return inf if row["epsilon"] is None else row["epsilon"]


def _is_rekeyed(true: TrueFile, content: Content) -> bool:
    """Whether silos have other keys, in a study that does not say which are theirs."""
    named = _parsed(content["study"]["toml"]).parties.roster
    return not named and content["roster"] != true.content["roster"]


def _is_shown(true: TrueFile, content: Content) -> bool:
    """Whether the silos have taken part in the study of the file, as far as keys say who they are.

    In evidence from one process they say nothing, as a verifier is told.
    """
    return _of_the_study(true, content) or _is_rekeyed(true, content)


def _asked(_: TrueFile, content: Content, start: str) -> bool:
    study = _parsed(content["study"]["toml"])
    asked, said = study.privacy, content["epsilon"]
    return (
        study.id.hex().startswith(start)
        and (said["delta"], said["relation"]) == (asked.delta, asked.relation)
        and said["stated_adversary"] == stated_adversary(study.parties)
    )


def _roster(_: TrueFile, content: Content) -> bool:
    parties = _parsed(content["study"]["toml"]).parties
    listed = [(one["name"], one["role"]) for one in content["roster"][1:]]
    silos, nodes = listed[: parties.silos], listed[parties.silos :]
    return silos == [(name, "silo") for name in parties.names] and (
        [role for _, role in nodes] == ["node"] * parties.compute_nodes
    )


def _digest(true: TrueFile, content: Content, digest: str) -> bool:
    named = true.study.parties.roster
    return digest == named == roster_of(content["roster"]).digest.hex()


def _every_session(true: TrueFile, content: Content) -> bool:
    shown = {one["session"] for one in content["attested"]}
    return true.sessions <= shown and all(_session(true, content, one[:16]) for one in shown)


def _session(true: TrueFile, content: Content, start: str, *_: str) -> bool:
    truth = [one for one in true.content["attested"] if one["session"].startswith(start)]
    shown = [one for one in content["attested"] if one["session"].startswith(start)]
    return len(truth) == 1 and all(_frames(one) == _frames(truth[0]) for one in shown)


def _frames(session: Content) -> list[bytes]:
    """As they were signed; in which order the silos' and the parties' are kept says nothing."""
    frames = [b64decode(one) for one in session["frames"]]
    return [frames[0], *sorted(frames[1:])]


TRUE_IF: tuple[tuple[str, Callable[..., bool]], ...] = (
    (r"the study “(.*)” has the id ([0-9a-f]{16})…, which follows from its text", _study),
    (
        r"the plan's numbers follow from the study ([0-9a-f]{16})…, to six digits, for (\d+) "
        "parameters",
        _plan,
    ),
    (r"epsilon is at most (\S+) at delta .* if the study ran as planned", _claimed),
    (
        r"after ([\d,]+) attempts? (charged|counted), it is at most \S+; "
        r"no silo has charged more than (\d+), as all silos signed with the roster's keys",
        _attempts,
    ),
    ("epsilon is stated for delta, relation and adversary of the study ([0-9a-f]{16})…", _asked),
    ("the roster lists the study's silos, and as many compute nodes", _roster),
    ("the roster has the digest ([0-9a-f]{64}), which the study names", _digest),
    ("parties showed evidence in every session with an attempt", _every_session),
    (r"in the session ([0-9a-f]{16})… the evidence holds of every .*, verified at .*", _session),
)


def falsely_confirmed(true: TrueFile, content: Content, findings: list[Finding]) -> list[str]:
    """Claims that are called re-derived, and are not true."""
    return [
        one.claim
        for one in findings
        if one.verdict == "re-derived" and not is_true(true, content, one.claim)
    ]


def is_true(true: TrueFile, content: Content, claim: str) -> bool:
    for pattern, holds in TRUE_IF:
        if match := re.fullmatch(pattern, claim):
            try:
                return holds(true, content, *match.groups())
            except (HubbubError, LookupError, TypeError, ValueError, AttributeError):
                return False
    return False
