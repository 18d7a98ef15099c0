"""How well several arrangements of a study did: what "Is joining worth it?" is answered from.

An arrangement is hubbub or one of its baselines. Plain values, which go to JSON and back; who has
trained what, and on which splits, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

_LEVEL = 0.95
# What people must know of scores that stand beside an epsilon: said wherever a table is shown.
_RELEASE = (
    "calculated from everybody's records: to publish one of them, or a mean that it is in, is a "
    "release of its own, which no epsilon shown here counts."
)
UNCHARGED_REPEATS = (
    f"Of these runs hubbub's first one alone was charged to ledgers; all others were {_RELEASE}"
)
UNCHARGED_BASELINE = f"No ledger counts this run: a baseline is {_RELEASE}"
UNCHARGED_BASELINES = (
    f"Of these runs only hubbub's were charged to ledgers; those of baselines were {_RELEASE}"
)


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """How well one way of training did.

    Args:
        name: "federated", a baseline's name, or any short text for people.
        mean: of the metric over all repeats, in the metric's unit.
        low, high: ends of the 95 % interval of the mean; None where there was one run only.
        epsilon: at most, at the study's delta; None if nothing is promised.
        adversary: against whom epsilon holds, as in the plan or in a few words; None likewise.

    Raises:
        ValueError: the mean or an end is not finite, or the mean is not between the ends.
    """

    name: str
    mean: float
    low: float | None = None
    high: float | None = None
    epsilon: float | None = None
    adversary: str | None = None

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.mean, self.high) if end is not None]
        texts = (self.name, self.adversary or "")
        if not all(map(isfinite, [*ends, self.epsilon or 0.0])) or ends != sorted(ends):
            raise ValueError("expected low <= mean <= high")
        if len(ends) == 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError("expected both ends of an interval or none, and texts for names")


@dataclass(frozen=True, kw_only=True)
class ArrangementTable:
    """Several arrangements of one study, scored alike.

    Args:
        metric: the key that it has in the rows of the metrics, such as "auc".
        arrangements: in the order in which they are shown.
        how: one sentence on how often and on what they were scored, for people.
        note: which of the runs no ledger counts, for people.
    """

    metric: str
    arrangements: tuple[Arrangement, ...]
    how: str = ""
    note: str = UNCHARGED_REPEATS

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ArrangementTable:
        """From what `to_dict` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        found = tuple(Arrangement(**arrangement) for arrangement in content["arrangements"])
        note = content.get("note", UNCHARGED_REPEATS)
        texts = (content["how"], content["metric"], note)
        if not all(isinstance(text, str) for text in texts) or not content["metric"].isidentifier():
            raise ValueError("expected the name of a metric, and a text")
        return cls(metric=content["metric"], arrangements=found, how=content["how"], note=note)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The 95 % interval of the mean of repeats, by Student's t; (None, None) of fewer than two.

    Requires: repeats that are independent of each other. Splits of the same records are not quite:
    their intervals are too short.

    Example:
        >>> low, high = interval([0.8, 0.9, 0.85])
        >>> round(low, 3), round(high, 3)
        (0.726, 0.974)
    """
    from scipy.special import stdtrit  # which takes long to import

    count = len(values)
    if count < 2:
        return None, None
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    reach = float(stdtrit(count - 1, (1 + _LEVEL) / 2)) * deviation / sqrt(count)
    return mean - reach, mean + reach
