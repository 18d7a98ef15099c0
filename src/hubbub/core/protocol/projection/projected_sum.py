"""Projections in a round: which matrix an attempt has, and a silo's sum through it (P8).

The matrix follows from the joint seed and the model, so everybody makes the same one and nobody
could have known it when the model was fixed.
"""

from __future__ import annotations

from typing import Protocol, cast

from hubbub.core.protocol.projection.matrix import Array, Projection
from hubbub.core.protocol.projection.product import project
from hubbub.core.protocol.round.batches import Rows
from hubbub.core.protocol.round.draw import Draw
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters

LAYERS = "layers"  # the kind that is made layer by layer, before records are clipped


class ProjectingTask(LocalTask, Protocol):
    """The same where gradients can be projected layer by layer."""

    def projected_sum(
        self, parameters: Parameters, rows: Rows, dimension: int, draw_key: bytes
    ) -> Array:
        """Sum over the rows' records of projected gradients, clipped to norm C after it (P8)."""


def projection_of(round_parameters: RoundParameters, rows: int = 0) -> Projection:
    """The projection of the whole vector that the round parameters state.

    Args:
        round_parameters: of the round.
        rows: of a silo's batches, a public number; its sums are put on a grid that fits them all.

    Raises:
        StudyError: so many records are too many for the model's size.
    """
    return Projection(
        kind=round_parameters.projection,
        parameters=round_parameters.parameters,
        dimension=round_parameters.dimension,
        clip=round_parameters.clip,
        # P19: without a public number of records the plan assumes one. A silo's rows may be more.
        records=max(round_parameters.most_records, rows),
    )


def check_rows(round_parameters: RoundParameters, rows: int) -> None:
    """Refuse, before any record is read, batches of more rows than a projection's grid can hold.

    Raises:
        StudyError: they have more.
    """
    if round_parameters.projection not in ("", LAYERS):
        projection_of(round_parameters, rows)


def draw_key(round_parameters: RoundParameters, draw: Draw) -> bytes:
    """The public key from which the matrices of a projection layer by layer are made."""
    return draw.key_of(LAYERS, round_parameters.parameters, round_parameters.dimension)


def clipped_sum(
    round_parameters: RoundParameters,
    task: LocalTask,
    parameters: Parameters,
    rows: Rows,
    draw: Draw | None,
) -> Array:
    """A silo's clipped sum, (dimension,): each record within C, projected if the rounds are.

    Args:
        round_parameters: of the round.
        task: the silo's records.
        parameters: the model.
        rows: the records in the batch, in their rows.
        draw: the matrix of the attempt, where there is a projection.
    """
    if draw is None or not round_parameters.projection:
        return task.clipped_sum(parameters, rows)
    # P8 (6): records are clipped after the projection, so C bounds each whatever the matrix is.
    if round_parameters.projection == LAYERS:
        projecting = cast(ProjectingTask, task)
        key = draw_key(round_parameters, draw)
        return projecting.projected_sum(parameters, rows, round_parameters.dimension, key)
    # P8: a projection is linear, so the sum of clipped records is projected, once. How much longer
    # a record may have become is charged.
    # P8 (8): on a grid that follows from public rows, so neighbours' sums are rounded alike.
    projection = projection_of(round_parameters, rows.size)
    return project(task.clipped_sum(parameters, rows), projection, draw)
