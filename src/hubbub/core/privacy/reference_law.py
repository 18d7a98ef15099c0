"""A law that a cap keeps room for, so that studies it dominates cost nothing for being chosen late.

The rule and its proof are docs/privacy.md P24. This file knows no cap and no ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments, dominating_pairs
from hubbub.core.privacy.dominating_pairs import Release, Step
from hubbub.core.privacy.laws import ExchangedRecord, Law, Removal, Reversed

_ROOM = 1e-5  # of its noise: what ends a calibration on other digits is still covered


@dataclass(frozen=True, kw_only=True)
class ReferenceLaw:
    """So many Poisson steps: what later studies are expected to be, at their dearest.

    Args:
        noise_multiplier: sigma / C, the least that such a study leaves; no unit, from 0.03.
        sample_rate: the largest of such a study; a probability below 1.
        steps: of all such studies together, 1 to 10,000,000.

    Raises:
        StudyError: a value is out of its range.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int

    def __post_init__(self) -> None:
        least = dominating_pairs.LEAST_SAMPLED_NOISE
        noise = arguments.within(
            "noise_multiplier", self.noise_multiplier, least=1.01 * least, most=1e6
        )
        rate = arguments.rate(self.sample_rate)
        if rate == 1:
            raise StudyError(
                "expected a reference law with sample_rate below 1, got 1; studies that are not "
                "sampled cost nothing for being chosen late without one"
            )
        steps = arguments.whole("steps", self.steps, least=1, most=arguments.MOST_STEPS)
        for name, value in {"noise_multiplier": noise, "sample_rate": rate, "steps": steps}.items():
            object.__setattr__(self, name, value)

    def release(self, relation: str) -> Release:
        """All of its steps."""
        return dominating_pairs.release(
            Step(
                noise_multiplier=self.noise_multiplier * (1 - _ROOM),
                sample_rate=self.sample_rate,
                count=self.steps,
            ),
            relation,
        )

    def split(
        self, releases: Iterable[Release], relation: str, left: int
    ) -> tuple[list[Release], int]:
        """What of a study it does not dominate, and how many of its steps the rest takes.

        No more than `left` of them are left.
        """
        laws, rest, before = self.release(relation).laws, [], left
        for one in releases:
            covered = min(one.count, left) if _dominates(laws, one) else 0
            left -= covered
            if one.count > covered:
                rest.append(replace(one, count=one.count - covered))
        return rest, before - left


def _dominates(laws: tuple[Law, ...], one: Release) -> bool:
    """Whether one step is sampled and dominated in every direction (P24, the order of laws)."""
    if one.gaussian is not None or len(one.laws) != len(laws):
        return False
    return all(_is_below(mine, its) for mine, its in zip(laws, one.laws, strict=True))


def _is_below(mine: Law, its: Law) -> bool:
    """Whether a Poisson law has a rate and a shift no larger than those of another such."""
    if isinstance(mine, Reversed) and isinstance(its, Reversed):
        return _is_below(mine.law, its.law)
    for kind in (Removal, ExchangedRecord):
        if isinstance(mine, kind) and isinstance(its, kind):
            exact = its.atom == 0 and its.missing == 0
            return exact and its.rate <= mine.rate and its.shift <= mine.shift
    return False
