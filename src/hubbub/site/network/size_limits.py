"""How large a message may be that somebody else sends: by what it asks or answers, from the plan.

A receiver knows this before the first piece comes, so that nobody has it keep more. The limits are
above what is sent, never below: what the frames hold is checked where they are read. This file
knows of each call which frames it has, and no content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES, OVERHEAD, SHARE_SEAL_BYTES
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.token_lists.list_context import ListContext
from hubbub.core.protocol.token_lists.publications import Publications
from hubbub.core.session.ask import Call
from hubbub.core.session.session_offer import LARGEST_OFFER
from hubbub.site.collected.seeds import SEALED_SEED_BYTES

_HEAD = 64  # of an envelope and of a part in it, generously
_WORDS = 1 << 12  # bytes of a READY, or of a refusal but for the names in it
_NAME = 70  # of somebody who is blamed
_SECRET = 1 << 11  # a secret, sealed for one party
_PROOF = 1 << 8  # what confirms a set-up
_EVIDENCE = 1 << 19  # of a machine, with its collateral
_COLLECT = LARGEST_OFFER >> 1  # so that some nine thousand deposits go beside it
_WITNESSED = 1 << 11  # a statement of a ledger, and its witness's signature
_SESSIONS = 1 << 20  # what is said of all sessions of a study, in hexadecimal


def _frames(count: int, payload: int) -> int:
    """Bytes of so many frames with payloads of so many bytes."""
    return count * (_HEAD + OVERHEAD + payload)


def word_limit(parties: int) -> int:
    """Bytes of any party's refusal or sign of life, of whatever plan."""
    return _HEAD + _frames(1, _WORDS + _NAME * parties)


# Bytes of what may be asked of a party at which no session is open.
OFFER_LIMIT = _HEAD + _frames(1, LARGEST_OFFER)


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """The limits of one session.

    Args:
        roster: everybody.
        round_parameters: the numbers of its rounds.
        counts: records of each silo, where shuffled token lists are made; else empty.
    """

    roster: Roster
    round_parameters: RoundParameters
    counts: Sequence[int] = ()

    def answer(self, call: Call) -> int:
        """Bytes of an answer to a call, or of a refusal."""
        return word_limit(self._everybody) + self._answers.get(call, 0)

    def request(self, call: Call) -> int:
        """Bytes of a request with a call."""
        return _HEAD + self._requests.get(call, _frames(self._everybody, DIGEST_BYTES))

    @cached_property
    def largest_request(self) -> int:
        """Bytes of a request: what is asked shows when all of it has come."""
        return max(map(self.request, Call))

    @cached_property
    def _requests(self) -> Mapping[Call, int]:
        """What is asked, by call; calls that are not here have a digest of everybody at most."""
        everybody, round_parameters, silos = (
            self._everybody,
            self.round_parameters,
            self.round_parameters.silos,
        )
        shares = _frames(silos, round_parameters.masked_bytes + SHARE_SEAL_BYTES)
        named = _frames(1, silos + DIGEST_BYTES)
        lists = (call for call in Call if Call.LIST <= call <= Call.JUDGE)
        deposits = _frames(silos, self._deposit)
        opened = _frames(1, _COLLECT) + _frames(round_parameters.nodes, _SECRET)
        summed = opened + deposits + _frames(1 + round_parameters.nodes, 33 * silos + 64)
        return {
            **dict.fromkeys(lists, self._list),
            Call.PING: 0,
            Call.OPEN: _frames(1, LARGEST_OFFER),
            Call.EVIDENCE: _frames(everybody, _EVIDENCE),
            Call.CONFIRM: _frames(everybody, DIGEST_BYTES) + _frames(everybody, _SECRET),
            Call.FINISH: _frames(2 * everybody, _PROOF),
            Call.MODEL: _frames(1, silos + self._model),
            Call.SHARES: named + shares,
            Call.PROMISE: named,
            Call.TOTAL: _frames(round_parameters.nodes, silos + DIGEST_BYTES),
            Call.CLOSE: _frames(1, _SESSIONS + silos * _WITNESSED) + _frames(1, self._model),
            Call.RESULT: _frames(1, self._model),
            Call.COLLECT_KEY: _frames(1, _COLLECT),
            Call.COLLECT_DEPOSIT: opened,
            Call.COLLECT_LOOK: summed,
            Call.COLLECT_PROMISE: summed,
            Call.COLLECT_TOTAL: summed,
            Call.COLLECT_REST: _WORDS,
        }

    @property
    def _deposit(self) -> int:
        """Of a DEPOSIT: two digests, and a sealed seed for each node."""
        return 2 * DIGEST_BYTES + SEALED_SEED_BYTES * self.round_parameters.nodes

    @property
    def _everybody(self) -> int:
        return len(self.roster.parties)

    @property
    def _model(self) -> int:
        """Of a model in full, and the number of an attempt."""
        return 4 * max(self.round_parameters.parameters, self.round_parameters.dimension) + 4

    @cached_property
    def _answers(self) -> Mapping[Call, int]:
        """What an answer has that is no refusal, by call; calls that are not here have a word."""
        everybody, round_parameters, nodes = (
            self._everybody,
            self.round_parameters,
            self.round_parameters.nodes,
        )
        shares = (
            _frames(nodes, round_parameters.masked_bytes + SHARE_SEAL_BYTES)
            if round_parameters.full_shares
            else 0
        )
        masked = _frames(1, round_parameters.masked_bytes + DIGEST_BYTES) + shares
        return {
            Call.OPEN: _frames(2, DIGEST_BYTES),
            Call.ATTEST: _frames(1, _EVIDENCE),
            Call.CONTRIBUTE: _frames(everybody, _SECRET),
            Call.CONFIRM: _frames(1 + everybody, _PROOF),
            Call.MODEL: masked,
            Call.SEED: masked,
            Call.PROMISE: _frames(1, round_parameters.silos + DIGEST_BYTES),
            Call.TOTAL: _frames(1, round_parameters.masked_bytes),
            Call.SHARES: _frames(1, round_parameters.silos + DIGEST_BYTES),
            Call.CLOSE: _frames(1, _SESSIONS),
            Call.RESULT: _frames(1, DIGEST_BYTES),
            Call.COLLECT_KEY: _frames(1, _SECRET),
            Call.COLLECT_DEPOSIT: _frames(1, self._deposit)
            + _frames(1, round_parameters.masked_bytes)
            + _frames(1, _SESSIONS),
            Call.COLLECT_LOOK: _frames(1, round_parameters.silos + DIGEST_BYTES),
            Call.COLLECT_PROMISE: _frames(1, DIGEST_BYTES),
            Call.COLLECT_TOTAL: _frames(1, round_parameters.masked_bytes + DIGEST_BYTES),
            **self._mixed,
        }

    # Shuffled token lists ----------------------------------------------------------------------

    @property
    def _rules(self) -> Publications:
        """What knows the lengths of all that is published about a list."""
        context = ListContext(roster=self.roster, study=bytes(32), session=bytes(16), number=1)
        return Publications(context, dict(zip(self.roster.silos, self.counts, strict=True)))

    def _steps(self, size: Callable[[int], Mapping[int, int]]) -> list[int]:
        """Of each step the largest payload that somebody publishes."""
        return [max(size(step).values()) for step in range(len(self.counts) + 1)]

    @cached_property
    def _mixed(self) -> Mapping[Call, int]:
        """What the phases of a list have, with a complaint where there may be one."""
        if not self.counts:
            return {}
        rules = self._rules
        published = max(self._steps(rules.names_bytes)) + max(self._steps(rules.forms_bytes))
        said = 2 * max(self._steps(rules.seen_bytes))
        commit = max(rules.commit_bytes.values())
        sizes = {Call.LIST: 0, Call.WRAP: commit, Call.SHOW: published, Call.MIX: published}
        sizes |= {Call.LOOK: said, Call.TAKE: 0, Call.GIVE_UP: 0}
        return {call: _frames(3, said + size) for call, size in sizes.items()}

    @cached_property
    def _list(self) -> int:
        """Everything that is published about a list, which a JUDGE has."""
        if not self.counts:
            return 0
        silos, rules = len(self.counts), self._rules
        names = sum(self._steps(rules.names_bytes)[1:]) + sum(rules.names_bytes(0).values())
        forms = sum(self._steps(rules.forms_bytes)[1:]) + sum(rules.forms_bytes(0).values())
        said = max(*self._steps(rules.seen_bytes), *rules.commit_bytes.values())
        return names + forms + _frames(9 * silos + 9, said)
