"""Random projections as a mechanism has them: which matrices, what they cost, what must fit (P8).

A silo sends k numbers in the place of all. What that is charged as, what its finite precision adds
and how long a projected record may be is said here, and nowhere else in the plan; the matrices
themselves are in `protocol/projection/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil, log, sqrt
from typing import Any

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.privacy.dominating_pairs import Release, Step, with_slack
from hubbub.core.privacy.projected_step import (
    projection_factor,
    release_by_signs,
    release_projected,
)
from hubbub.core.protocol.projection import matrix
from hubbub.core.protocol.projection.projected_sum import LAYERS

_SPLITS = np.geomspace(1e-3, 0.5, 60)
# Standard deviations of a projected coordinate that must fit, as for the noise (P7).
_REACH = 12

# How a projection may be charged, as a reader of the plan sees it.
EXACT = "exact mixture over the norm of the public projection, P8 (1)"
LONGER = "mixture over norms no shorter than those of the public projection, P8 (7)"
BOUNDED = "one bound on the norm and a slack in every step, P8 (2)"
UNPROJECTED = "as without projection: records are clipped after it, P8 (6)"


@dataclass(frozen=True, kw_only=True)
class RandomProjection:
    """What a mechanism says of its projection, as a `Projection` of `projections.py`.

    Args:
        kind: of the matrices, "gaussian", "sign" or "layers".
        dimension: k, numbers that a silo sends per step.
    """

    kind: str
    dimension: int

    @property
    def clips_after(self) -> bool:
        """See `Projection`: where it goes layer by layer."""
        return self.kind == LAYERS

    @property
    def largest_coordinate(self) -> float:
        """Of what one record sends, in units of C: 12 deviations of C / sqrt(k), or all of it.

        Projected layer by layer, records are clipped afterwards: all of it may be in one place.
        """
        return 1.0 if self.clips_after else _REACH / sqrt(self.dimension)

    def check(self, parameters: int | None, clip: float, rows: int) -> None:
        """See `Projection`."""
        k = self.dimension
        if k == 1 or (parameters is not None and k > parameters):
            known = parameters is not None
            most = f"{parameters}, the model's parameters" if known else "10000000"
            raise StudyError(
                f"expected training.projection to be 0, for none, or from 2 to {most}, got {k}; "
                "choose one in that range"
            )
        if parameters and not self.clips_after:
            # P8 (8): the grid fits such batches, and what it rounds the quarter of the margin.
            matrix.Projection(
                kind=self.kind, parameters=parameters, dimension=k, clip=clip, records=rows
            )

    def entries_failure(self, parameters: int, steps: int) -> float:
        """Probability that a Gaussian matrix is further from an exact one than P8 (8) allows."""
        if self.kind != "gaussian":
            return 0.0
        blocks = parameters * ceil(self.dimension / 2)  # each makes two entries of a row
        return steps * (blocks * 2.0**-71 + 2.0**-100)

    def charged(self, sampling: str, relation: str, steps: int, delta: float) -> Projected:
        """See `Projection`; the table of `accounts.py`."""
        account = self._account(sampling, relation)
        if account is not None:
            return Projected(kind=self.kind, dimension=self.dimension, account=account)
        if sampling in ("poisson", "full-batch"):
            return Projected(kind=self.kind, dimension=self.dimension, account=LONGER)
        # P8 (2): in a joint batch both versions' distances to the record they displace count.
        events = 1 if relation == "add-remove" or sampling == "full-batch" else 3
        return self.bounded(events=events, steps=steps, delta=delta)

    def charged_again(self, sampling: str, relation: str, factor: float, slack: float) -> Projected:
        """See `Projection`. The bound for signs holds for Gaussian matrices too (P8)."""
        account = self._account(sampling, relation)
        if account is None:
            account = BOUNDED if slack and relation == "substitute" else LONGER
        bound = {"factor": factor, "slack": slack} if account == BOUNDED else {}
        return Projected(kind=self.kind, dimension=self.dimension, account=account, **bound)

    def _account(self, sampling: str, relation: str) -> str | None:
        """The account that costs nothing beyond what the projection may cost, if there is one."""
        if self.clips_after:
            return UNPROJECTED
        # P8 (1): the mixture over the norm is one where only one vector decides: the record, or the
        # difference of two that both take part.
        one_vector = sampling == "full-batch" or (
            sampling == "poisson" and relation == "add-remove"
        )
        return EXACT if self.kind == "gaussian" and one_vector else None

    def bounded(self, *, events: int, steps: int, delta: float) -> Projected:
        """P8 (2): C~ and the slack for it, S times the number of events times delta'.

        Any split of delta between the slack and the noise is sound. This one is near the best: the
        noise that is needed grows with C~ and roughly with sqrt(log 1 / remaining delta).

        Raises:
            StudyError: the slack is too small to be told from zero.
        """

        def needed(share: float) -> float:
            factor = projection_factor(self.dimension, share * delta / (events * steps), self.kind)
            return factor * sqrt(log(1 / ((1 - share) * delta)))

        share = float(min(_SPLITS, key=needed))
        slack = share * delta / steps
        return Projected(
            kind=self.kind,
            dimension=self.dimension,
            account=BOUNDED,
            # P8 (2): each event has its part of a step's slack.
            factor=projection_factor(self.dimension, slack / events, self.kind),
            slack=slack,
        )


@dataclass(frozen=True, kw_only=True)
class Projected:
    """How the random projection of a mechanism is charged, as a `Charged` of `projections.py`.

    Args:
        kind: of the matrices, "gaussian", "sign" or "layers".
        dimension: k, numbers that a silo sends per step.
        account: `EXACT`, `LONGER`, `BOUNDED` or `UNPROJECTED`.
        factor: C~ / C, the length that a record's projection is charged with if it is `BOUNDED`.
        slack: delta that every step spends on longer ones; 0 unless it is `BOUNDED`.
    """

    kind: str
    dimension: int
    account: str = EXACT
    factor: float = 1.0
    slack: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether nothing is charged for the projection beyond what it may cost."""
        return self.account in (EXACT, UNPROJECTED)

    @property
    def clips_after(self) -> bool:
        """See `Charged`."""
        return self.account == UNPROJECTED

    def release(
        self, noise: float, step: Step, relation: str, plain: Callable[[float], Release]
    ) -> Release:
        """See `Charged`."""
        if self.account == EXACT:
            # P8 (1); an exchange, where nothing is sampled, is one vector of twice the length.
            longest = 2 if relation == "substitute" else 1
            return release_projected(
                dimension=self.dimension,
                sample_rate=step.sample_rate,
                noise_multiplier=noise / longest,
                count=step.count,
            )
        if self.account == LONGER:
            # P8 (7): it uses the tail of the length alone, so it holds for Gaussian matrices too.
            return release_by_signs(step, relation, dimension=self.dimension)
        return self.lengthened(noise, plain)

    def lengthened(self, noise: float, plain: Callable[[float], Release]) -> Release:
        """See `Charged`."""
        noise_added = plain(noise / self.factor)
        return with_slack(noise_added, self.slack) if self.slack else noise_added

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "exact": self.exact}

    def rows(self) -> list[PlanRow]:
        """See `Charged`."""
        shown = [PlanRow("projection", self.dimension, "numbers that are sent for the parameters")]
        if self.account == EXACT:
            words = "over the law of the public matrix; costs no δ"
            return [*shown, PlanRow("its account", "exact", words)]
        shown.append(PlanRow("its account", self.kind, self.account))
        if self.slack:
            longest = "clipping norms that a projected record may have"
            shown.append(PlanRow("its longest", self.factor, longest))
            shown.append(PlanRow("slack for longer ones", self.slack, "of δ, paid in every step"))
        return shown
