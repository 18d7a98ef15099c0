"""What goes down for a query, made again: before its first sum, after each sum, in the end.

A state is believed only if it was computed here, from the study and from sums that were made again
(docs/evidence.md). Where one could not be, as the first weights of a model that only the study's
own code makes, the MODEL that was sent is taken instead, so that what follows can still be found to
contradict it; but nothing that rests on what was taken is proven. All sessions of a query are one
course: none goes back behind a sum that was made, and none leaves a round out. This file takes
steps and knows no messages.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, QueryState, SteppedQuery
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.verification.evidence.evidence_file import Finding, judged, not_verifiable


def digest_of(parameters: Parameters | None) -> bytes:
    """SHA-256 of what goes down; nothing where that is not known."""
    if parameters is None:
        return b""
    return hashlib.sha256(np.ascontiguousarray(parameters).data).digest()


class Course:
    """The course of one query over all sessions of a run.

    Args:
        planned: the query.
        begin: what goes down for its first sum; None if that could not be made.
        proven: whether that was made of nothing that was taken.
        model: numbers of the model that the query is asked at; None if it is asked at none.
        keeps_states: whether `states_after` is going to be asked for, which costs a hash a step.
    """

    def __init__(
        self,
        planned: PlannedQuery[SteppedQuery],
        begin: Parameters | None,
        *,
        proven: bool = True,
        model: int | None = None,
        keeps_states: bool = True,
    ) -> None:
        self._query, self._stepper = planned.query, planned.query.stepper(planned)
        self._divisor = planned.mechanism.divisor
        self._begin = self._next = begin
        self._model = model
        # Nothing that rests on what is taken is proven: a MODEL is, where there was no beginning or
        # a sum was lost.
        self._proven, self._lost = proven and begin is not None, False
        self._begun = self._summed = self._sums = self._attempts = 0
        self._missing = ""
        self._keeps_states = keeps_states
        self._after = {0: digest_of(begin)}  # by round, of what went down after it

    def begin_at(self, result: bytes) -> None:
        """The model was shown, as RESULT, that the first sum of this query is asked at.

        Raises:
            ProtocolError: it is not the one that the main query has led to, as far as that is
                known.
        """
        is_model = self._model is not None and len(result) == 4 * self._model
        shown = np.frombuffer(result if is_model else b"", dtype="<f4")
        if not is_model or not np.isfinite(shown).all():
            raise ProtocolError("expected a RESULT of a model that is asked at, found another")
        begin = self._query.start(shown)
        if self._begin is None:
            self._begin = begin
            self._next = begin if self._begun == 0 else self._next
        elif begin is None or begin.tobytes() != self._begin.tobytes():
            raise ProtocolError(
                "expected the RESULT that the training has led to, or that was shown before, found "
                "another"
            )

    def reach(self, round: int) -> None:
        """An attempt at a round was begun.

        Raises:
            ProtocolError: a sum that was made is dropped, or there is no trace of a round between.
        """
        if round > self._begun + 1:
            raise ProtocolError(
                f"expected round {self._begun + 1} next, found round {round}: of the rounds "
                "between, which are written down before they are asked, nothing was kept"
            )
        if round <= self._summed and not self._lost:
            raise ProtocolError(
                f"expected to go on from the sum of round {self._summed}, found round {round} "
                "again: a sum that is kept counts, also where a run was interrupted"
            )
        if round <= self._summed:
            # Whose last states a crash has lost goes back behind them, and behind a MODEL that was
            # shown for the round after them.
            self._summed, self._next = round - 1, None
        self._begun, self._attempts = max(self._begun, round), self._attempts + 1

    def expect(self, sent: Parameters, round_parameters: RoundParameters) -> None:
        """Compare a MODEL with what was made; where nothing could be made, it is taken."""
        if self._next is None:
            if why := self._query.misfit(sent, self._begin, self._sums):
                raise ProtocolError(f"expected a state that {self._sums} sums can lead to: {why}")
            self._begin = sent if self._begin is None and not self._sums else self._begin
            # A model that was shortened on its way is not what the next step starts from.
            self._next = None if round_parameters.short_models else sent
            return
        made = round_parameters.sent(self._next)
        if sent.tobytes() != made.tobytes():
            apart = np.count_nonzero(sent.view(np.uint32) != made.view(np.uint32))
            raise ProtocolError(
                f"expected the model that follows from what was sent before, found {apart} of "
                f"{sent.size} parameters to differ: the aggregator did not take that step"
            )

    def step(self, round: int, gradient: NDArray[np.float64] | None) -> None:
        """Take a step; None: it cannot be taken here, nor any after it."""
        self._summed, self._sums = round, self._sums + 1
        # Once lost it stays so: a MODEL that is taken later is not what the sums have led to.
        if gradient is None or self._lost or self._next is None:
            self._next, self._lost = None, True
        else:
            self._next = self._stepper.step(self._next, gradient, self._divisor)
        if self._keeps_states:
            self._after[round] = digest_of(self._next)

    def states_after(self, round: int) -> set[bytes]:
        """Digests of what the sums up to a round led to: one, or two at the end; none if unknown.

        What was asked beside the last round was asked at the query's result.
        """
        end = self.led if round >= self._begun else None
        ends = set() if end is None else {digest_of(end.parameters)}
        while round not in self._after:  # a round without a sum leads nowhere
            round -= 1
        return (ends | {self._after[round]}) - {b""}

    @property
    def led(self) -> QueryState | None:
        """Where all sums have led; None if one of them could not be made again."""
        if self._lost or self._next is None:
            return None
        optimizer = self._stepper.state()
        state = QueryState(step=self._summed, parameters=self._next, optimizer=optimizer)
        return replace(state, parameters=self._query.result(state))

    @property
    def is_proven(self) -> bool:
        """Whether all that led there was computed here, and nothing is missing."""
        return self._proven and not self._lost and not self._missing

    def miss(self, begun: int, most: int) -> None:
        """All sessions were played; so many attempts of those that the study asks for are there.

        A run asks until they are used up. Whoever shows fewer may have chosen among sums.
        """
        if begun < most:
            self._missing = f"the transcripts have {begun} attempts, of {most} requested"

    def judged(self, claim: str, why: object) -> Finding:
        """How a claim stands that follows from where the sums have led.

        Where attempts gave none it says so: whether an answer was missing, or thrown away so that
        there would be none, nobody but the aggregator knows.
        """
        if self._sums < self._attempts:
            claim += f", of the {self._sums} sums that {self._attempts} attempts gave"
        if why or self.is_proven:
            return judged(claim, why)
        doubt = self._missing or (
            "it begins with a state that was sent and could not be recomputed here"
            if self.led
            else "not every sum and step could be recomputed"
        )
        return not_verifiable(f"that {claim}: {doubt}")
