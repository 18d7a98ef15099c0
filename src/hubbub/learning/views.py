"""Views of a record: crops and mirror images of it, or what a study's own function makes of it.

Theory of operation (docs/privacy.md P21). K views of a record are K rows of one unit, each of
weight 1/K, so that the mean of their gradients is clipped, once, as a record's is. A view is a
function of its record and of numbers that follow from the seed of the piece, the row and public
sizes alone: so views of one record say nothing of another, and neighbours' differ in one unit.

This file knows no model and no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from hubbub.core.errors import ModelError, StudyError
from hubbub.core.study.silo_records import attempted, named_object
from hubbub.learning.study.training import CROP_FLIP, Augment
from hubbub.learning.torch_settings import seeded

_MARGIN = 8  # an eighth of an image's side is how far a crop may move
_SEEDS = 2**62


@dataclass(frozen=True, kw_only=True)
class Views:
    """How many views of a record there are, and what makes them."""

    count: int  # K, public
    # From records (n, ...) to (n, K, ...), by the generators as they are seeded.
    make: Callable[[torch.Tensor, int], torch.Tensor]

    def of(
        self, inputs: torch.Tensor, targets: list[torch.Tensor], places: int
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Units (n, K, ...) of views, with [targets, weights] of the same.

        Args:
            inputs: records (n, ...), or units of `places` records, (n, places, ...).
            targets: (n, ...); of units (n, places, ...), and the weights (n, places).
            places: of a unit; 0 where each record is one.
        """
        rows = inputs.flatten(0, 1) if places else inputs
        units = self.make(rows, self.count).reshape(len(inputs), -1, *rows.shape[1:])
        if not places:
            targets = [targets[0][:, None], inputs.new_ones(len(inputs), 1)]
        labels, weights = (values.repeat_interleave(self.count, 1) for values in targets)
        return units, [labels, weights / self.count]


def views_of(augment: Augment | None, shape: tuple[int, ...]) -> Views | None:
    """The views that a study asks for, tried on a record of zeros; None: it asks for none."""
    if augment is None:
        return None
    if augment.kind == CROP_FLIP:
        if len(shape) != 3 or min(shape[1:]) < _MARGIN:
            raise StudyError(
                f"expected records (channels, height, width) of at least {_MARGIN} pixels for "
                f'training.augment.kind = "{CROP_FLIP}", found {shape}; name a function of your own'
            )
        return Views(count=augment.views, make=crop_flip)
    view = named_object(augment.kind, "training.augment.kind")
    views = Views(count=augment.views, make=partial(by_function, view))
    _, raised = attempted(lambda: views.make(torch.zeros(1, *shape), 1), quotes=True)
    if raised:
        raise ModelError(
            f'expected "{augment.kind}" to give a view of a record of shape {shape}, of the same '
            f"shape, found that it raised {raised} on zeros; correct it"
        )
    return views


def crop_flip(images: torch.Tensor, views: int) -> torch.Tensor:
    """Crops of images with reflected borders, half of them mirrored: (n, views, channels, ...).

    What a view shows is gathered from its own image alone. Places follow from torch's generator
    and the number of images.
    """
    records, channels, *sides = images.shape
    margins = [side // _MARGIN for side in sides]
    framed = functional.pad(images, [margins[1]] * 2 + [margins[0]] * 2, mode="reflect")
    many = (records, views)
    tops, lefts = (torch.randint(2 * margin + 1, many) for margin in margins)
    mirrored = torch.randint(2, many).bool()
    rows = tops[..., None] + torch.arange(sides[0])
    columns = torch.arange(sides[1]).expand(*many, -1)
    columns = lefts[..., None] + torch.where(mirrored[..., None], columns.flip(-1), columns)
    place = (
        torch.arange(records)[:, None, None, None, None],
        torch.arange(channels)[:, None, None],
        rows[:, :, None, :, None],
        columns[:, :, None, None, :],
    )
    return framed[tuple(index.to(images.device) for index in place)]


def by_function(
    view: Callable[[torch.Tensor], Any], records: torch.Tensor, views: int
) -> torch.Tensor:
    """What a function makes of each record by itself, of generators seeded for each view anew.

    However much one view draws, the next ones are drawn the same: (n, views, ...).
    """
    seeds = torch.randint(_SEEDS, (len(records), views)).tolist()
    all_views = torch.empty(len(records), views, *records.shape[1:], device=records.device)
    for number, record in enumerate(records):
        for place, seed in enumerate(seeds[number]):
            with seeded(seed, records.device), torch.no_grad():
                shown = view(record.clone())
            if not isinstance(shown, torch.Tensor) or shown.shape != record.shape:
                raise ModelError("expected a view of the record's shape, found another")
            all_views[number, place] = shown
    return all_views
