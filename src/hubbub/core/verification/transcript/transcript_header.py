"""What a transcript says of its session before the first frame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hubbub.core.disk import json_value
from hubbub.core.protocol.primitives.identity import Roster, identity_of, plain_identity
from hubbub.core.protocol.round.round_parameters import RoundParameters


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says of its session before the first frame; `study` and `session` are ids."""

    study: bytes
    session: bytes
    purpose: str  # only "training" makes steps of the model
    number: int  # of the run's sessions before
    roster: Roster = field(repr=False)
    round_parameters: RoundParameters | None = None


def plain_roster(roster: Roster) -> list[dict[str, str]]:
    """Everybody's public half as JSON knows it, in the roster's order."""
    return [plain_identity(party) for party in roster.parties]


def roster_of(plain: list[Mapping[str, str]]) -> Roster:
    """The roster that `plain_roster` wrote."""
    return Roster(parties=tuple(identity_of(one) for one in plain))


def written(header: Header) -> bytes:
    """The header as JSON."""
    plain = {
        "study": header.study.hex(),
        "session": header.session.hex(),
        "purpose": header.purpose,
        "number": header.number,
        "terms": None if header.round_parameters is None else header.round_parameters.to_dict(),
        "roster": plain_roster(header.roster),
    }
    return json.dumps(plain, separators=(",", ":")).encode()


@lru_cache(maxsize=8)  # a thousand keys take a while to check, and are asked for more than once
def parsed(text: bytes) -> Header:
    """The header that `written` wrote; ValueError, KeyError or TypeError if it is none."""
    plain: Mapping[str, Any] = json_value(text)
    return Header(
        study=bytes.fromhex(plain["study"]),
        session=bytes.fromhex(plain["session"]),
        purpose=str(plain["purpose"]),
        number=int(plain["number"]),
        roster=roster_of(plain["roster"]),
        round_parameters=None if plain["terms"] is None else RoundParameters(**plain["terms"]),
    )
