"""The model of a run, made again: its first weights, what it must be before each round, its last.

A run that was resumed has several sessions, each of which goes on from a round that an earlier one
came to, as its checkpoint has it; so the states before those rounds are kept. Where a sum could not
be made again, the model that was sent next is believed, which a finding states. A model that only
the study's own code or data can make is not made: they may come from anybody. This file takes steps
and knows no messages.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

import hubbub.learning as learning
from hubbub.errors import HubbubError, ProtocolError
from hubbub.planning import Plan, PlannedQuery, SteppedQuery, Stepper, told_shape
from hubbub.protocol import LAYERS, Lift, Parameters, RoundParameters
from hubbub.study.training import learning_of
from hubbub.verification.evidence import Finding, check_ordinary, judged, not_verifiable, wrong
from hubbub.verification.replay.integrity_check import RESTORE


@dataclass(frozen=True, kw_only=True)
class _State:
    """The model before a round, and the optimizer; what is None could not be made again."""

    parameters: Parameters | None = field(repr=False)
    optimizer: Mapping[str, NDArray[Any]] | None = field(repr=False)


class Course:
    """The course of the model over all sessions of a run, which begin with the rounds `starts`.

    The `initial` model is None if it cannot be rebuilt here; sums are divided by `divisor`.
    """

    def __init__(
        self,
        initial: Parameters | None,
        optimizer: Stepper,
        *,
        divisor: float,
        starts: Iterable[int],
    ) -> None:
        self._optimizer, self._divisor = optimizer, divisor
        self._starts = frozenset(starts)
        self._lost = False
        self.parameters = initial
        self.before = initial  # the model before the last step
        self._states = {1: self._state()}

    def begin_at(self, ends: tuple[Parameters | None, Parameters | None]) -> None:
        """Begin where another course has ended, or one step before if an interruption lost that.

        Where it may be either, or could not be made, the first MODEL is believed.
        """
        made, before = ends
        self.parameters = made if before is None else None
        self.before = self.parameters
        self._states = {1: self._state()}

    def go_back(self, round: int) -> None:
        """Begin a session at a round; what was made of it and of later ones before is dropped."""
        if round not in self._states:
            raise ProtocolError(
                "expected the session to begin where an earlier one came to, found it beginning "
                f"with round {round}"
            )
        state = self._states[round]
        self.parameters, self._lost = state.parameters, state.optimizer is None
        if state.optimizer is not None:
            self._optimizer.load_state(copy.deepcopy(state.optimizer))
        self._states = {at: one for at, one in self._states.items() if at <= round}
        self.before = self.made

    def arrive(self, round: int) -> None:
        """Remember the state before a round from which another session goes on."""
        if round in self._starts:
            self._states[round] = self._state()

    def expect(self, sent: Parameters, round_parameters: RoundParameters) -> None:
        """Compare a MODEL with what was made; where nothing could be made, it is believed.

        One that was shortened on its way is not what the next step starts from.
        """
        if self.parameters is None:
            self.parameters = None if round_parameters.short_models else sent
            return
        made = round_parameters.sent(self.parameters)
        if sent.tobytes() != made.tobytes():
            apart = np.count_nonzero(sent.view(np.uint32) != made.view(np.uint32))
            raise ProtocolError(
                f"expected the model that follows from what was sent before, found {apart} of "
                f"{sent.size} parameters to differ: the aggregator did not take that step"
            )

    def step(self, gradient: NDArray[np.float64] | None) -> None:
        """Take a step; None: it cannot be taken here, nor any after it."""
        self.before = self.made
        if gradient is None or self._lost or self.parameters is None:
            self.parameters, self._lost = None, True
        else:
            self.parameters = learning.stepped(
                self._optimizer, self.parameters, gradient, self._divisor
            )

    @property
    def made(self) -> Parameters | None:
        """Where the steps have led; None if one could not be taken: what is sent is no proof."""
        return None if self._lost else self.parameters

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        """What the stepper remembers besides the parameters."""
        return self._optimizer.state()

    def _state(self) -> _State:
        return _State(
            parameters=self.parameters,
            optimizer=None if self._lost else copy.deepcopy(self._optimizer.state()),
        )


def initial_of(plan: Plan) -> Parameters | None:
    """The model before round 1; None if only code that the study names can make it."""
    model = _built(plan)
    return None if model is None else learning.parameters_vector(model)


def course_of(
    planned: PlannedQuery[SteppedQuery], initial: Parameters | None, starts: Iterable[int]
) -> Course:
    """The course of what goes down for a query, over sessions that begin with these rounds."""
    stepper, divisor = planned.query.stepper(planned), planned.mechanism.divisor
    return Course(initial, stepper, divisor=divisor, starts=starts)


def _built(plan: Plan, *, flattened: bool = False) -> Any:
    """The study's model with its first weights; None if its own code or data must say how large.

    Neither is looked at. Where the shape of a record is not stated, the weights are right all the
    same, but have the names of a model whose records are rows, or, `flattened`, made into rows.
    """
    if plan.study.model is None:
        return None
    shape = told_shape(plan.study, plan.dimension)
    if shape is None or not learning_of(plan.study)[0].is_built_in:
        return None
    return learning.model_of(plan.study, (1, *shape) if flattened else shape)


def lift_for(round_parameters: RoundParameters, plan: Plan) -> tuple[Lift | None, bool]:
    """From projected sums to whole ones, if they are projected; and whether that can be done."""
    model = _built(plan) if round_parameters.projection == LAYERS else None
    if round_parameters.projection == LAYERS and model is None:
        return None, False
    return learning.lift_of(round_parameters, model), True


def last_model(
    path: Path, plan: Plan, parameters: Parameters | None, before: Parameters | None
) -> Finding:
    """The model is what the last step gave.

    If the run was interrupted between the last sum that it could pay for and the step along it, the
    model is the one `before`: the sum is paid for, and the step is lost.
    """
    claim = f"{path} holds the model that the last step gave"
    if _built(plan) is None:
        claim = (
            f"{path} contains the numbers that the last step gave, in the order that it states; "
            "what others are for, only the study's own code or data say"
        )
    if parameters is None:
        return not_verifiable(f"that {claim}: the last step could not be made again")
    try:
        check_ordinary(path)
        stored = _stored(path, plan, parameters.size)
    except (HubbubError, SafetensorError, OSError) as error:
        return wrong(claim, error)
    if stored is None:
        return not_verifiable(f"that {claim}: it states none")
    if stored.tobytes() == parameters.tobytes():
        return judged(claim, "")
    if before is not None and stored.tobytes() == before.tobytes():
        return judged(f"{claim} that an interruption has left", "")
    return judged(claim, f"it holds another; {RESTORE}")


def _stored(path: Path, plan: Plan, size: int) -> Parameters | None:
    """The parameters in a file as one vector; None if nothing says in which order.

    A model of the study's own making is not built here, so the file itself has to say it.
    """
    model = _built(plan)
    if model is None:
        return learning.stored_parameters(path, size)
    if not learning_of(plan.study)[0].inputs and not _is_named(path, model):
        model = _built(plan, flattened=True)
    learning.load_model(path, model)
    return learning.parameters_vector(model)


def _is_named(path: Path, model: Any) -> bool:
    """Whether the tensors of a file have the names of the model's."""
    with safe_open(path, framework="np") as file:
        return set(file.keys()) == set(model.state_dict())
