"""What an adversary can compute from messages: linear algebra over the masks that it does not know.

Every message is known = value + sum of signed masks. A combination of messages is readable if all
unknown masks cancel in it. This file knows nothing of how masks are chosen: it watches `Masking`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from hubbub.core.protocol.agreement.key_agreement import Place, Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import unverified
from protocol.parties import World

Row = list[Fraction]


class Spy(MaskStream):
    """Masking that remembers which keys it was given, with their signs."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[tuple[bytes, int]] = []

    def add_all(self, vector: ring.Residues, masks: Sequence[tuple[bytes, bool]]) -> None:
        self.used += [(key, -1 if negative else 1) for key, negative in masks]
        super().add_all(vector, masks)

    def taken(self) -> list[tuple[bytes, int]]:
        """What was used since the last call."""
        used, self.used = self.used, []
        return used


class View:
    """The messages that the adversary holds."""

    def __init__(self, w: World, sessions: dict[int, Session]) -> None:
        self._w, self._sessions, self._spy = w, sessions, Spy()
        self._masking = {i: w.masking(sessions[i], self._spy) for i in w.roster.silos}
        self._nodes = {i: w.node(sessions[i], self._spy) for i in w.roster.nodes}
        self.messages: list[tuple[str, list[tuple[bytes, int]]]] = []
        self._uses: set[tuple[int, int, bytes]] = set()

    def ask_silo(
        self,
        silo: int,
        active: Sequence[int],
        round: int = 1,
        attempt: int = 0,
        value: float = 0.0,
    ) -> None:
        """An aggregator, perhaps malicious, shows one silo a MODEL, and keeps the answer."""
        model = self._w.model(active, round, attempt, value)
        self._uses.add((round, attempt, unverified(model).digest))
        masking = self._masking[silo]
        accepted = masking.accept(model)
        masking.masked(accepted, ring.zeros(self._w.round_parameters.dimension, 32))
        self.messages.append((f"{silo}@{round}.{attempt}", self._spy.taken()))

    def ask_node(
        self,
        node: int,
        silos: Sequence[int],
        round: int = 1,
        attempt: int = 0,
        value: float = 0.0,
    ) -> None:
        """The same for a compute node, which is told that all silos were active.

        Its fellows promise whatever it has promised: what rests on them is not looked at here.
        """
        model = unverified(self._w.model(self._w.roster.silos, round, attempt, value)).digest
        self._uses.add((round, attempt, model))
        self._w.total(self._nodes[node], self._w.request(node, silos, round, attempt, model))
        self.messages.append(("", self._spy.taken()))

    def readable(self, colluders: Iterable[int] = ()) -> list[dict[str, Fraction]]:
        """A basis of the combinations of silos' values that the adversary can compute.

        Args:
            colluders: parties whose secrets the adversary has; their own values are left out.
        """
        known = self._keys_of(set(colluders))
        own = {f"{index}@" for index in colluders}
        keys = sorted({key for _, used in self.messages for key, _ in used} - known)
        names = sorted({name for name, _ in self.messages if name})
        names = [name for name in names if name[: name.index("@") + 1] not in own]
        rows = []
        for name, used in self.messages:
            masks, values = [Fraction(0)] * len(keys), [Fraction(name == one) for one in names]
            for key, sign in used:
                if key not in known:
                    masks[keys.index(key)] += sign
            rows.append(masks + values)
        left = [row[len(keys) :] for row in _echelon(rows) if not any(row[: len(keys)])]
        return [
            {name: value for name, value in zip(names, row, strict=True) if value}
            for row in _echelon(left)
            if any(row)
        ]

    def _keys_of(self, colluders: set[int]) -> set[bytes]:
        """The mask keys that the colluders derive from their own secrets."""
        return {
            secret.mask_key(
                self._sessions[index].transcript, Place(round=r, attempt=a, model=model)
            )
            for index in colluders
            for secret in self._sessions[index].secrets.values()
            for r, a, model in self._uses
        }


def _echelon(rows: list[Row]) -> list[Row]:
    """Reduced row echelon form."""
    rows, pivot = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        found = next((r for r in range(pivot, len(rows)) if rows[r][column]), None)
        if found is None:
            continue
        rows[pivot], rows[found] = rows[found], rows[pivot]
        scale = rows[pivot][column]
        rows[pivot] = [value / scale for value in rows[pivot]]
        for other in range(len(rows)):
            factor = rows[other][column]
            if other != pivot and factor:
                rows[other] = [
                    a - factor * b for a, b in zip(rows[other], rows[pivot], strict=True)
                ]
        pivot += 1
    return rows
