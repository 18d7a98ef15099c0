"""Which kinds of statistics there are, and how one is read from its table.

A kind is a class: its settings, its encoding with the bounds that privacy rests on, and its answer,
in one file. One from elsewhere is told to `register`, or found in an installed package that names
it under the entry point "hubbub.statistics" (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from hubbub.core.errors import StudyError
from hubbub.core.registered import loaded, registered
from hubbub.core.section import Section, key_of
from hubbub.core.tabular.column import Column
from hubbub.estimation.asked_keys import StatisticKeys
from hubbub.estimation.baseline_table import Table
from hubbub.estimation.centres import Centres
from hubbub.estimation.cox_cells import Cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.key_notes import COMMON
from hubbub.estimation.linear import Linear
from hubbub.estimation.logistic_regression import Logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.rates import EventRates
from hubbub.estimation.statistic import Iterated, OneSum, Statistic
from hubbub.estimation.survival import Survival

KINDS: dict[str, type[Statistic]] = {
    one.kind: one
    for one in (
        *(Table, Histogram, Quantiles, Crosstab, Survival, Logistic, Linear, Cox),
        *(Incidence, EventRates, Centres),
    )
}
_ENTRY_POINTS = "hubbub.statistics"
S = TypeVar("S", bound=type[Statistic])


def register(kind: S) -> S:
    """Have studies of this process ask for a statistic of your own; a decorator of its class.

    Its `sensitivity` and `diameter` bound what privacy rests on: a class whose blocks are longer
    breaks the promise of every study that asks for it (docs/privacy.md P23). Every party needs it,
    and whoever verifies the run.

    Args:
        kind: a subclass of `OneSum` or `Iterated`.

    Returns:
        The class.

    Raises:
        StudyError: there is another statistic of that kind.
    """
    if KINDS.setdefault(kind.kind, kind) is not kind:
        raise StudyError(
            f'expected a kind of statistics of a name of its own, got "{kind.kind}", which there '
            "is; call it something else"
        )
    return kind


def statistic_from(
    name: str, table: Mapping[str, Any], columns: Mapping[str, Column]
) -> OneSum | Iterated:
    """The statistic that a table `[statistics.NAME]` asks for.

    Raises:
        StudyError: it asks for none, or not of these columns.
    """
    path = f"statistics.{key_of(name)}"
    stated = {key: table[key] for key in ("kind",) if key in table}
    kind = _kind(Section(path, stated, ("kind",)))
    known = dict.fromkeys(key for one in KINDS.values() for key in one.keys)
    section = Section(path, table, ("kind", *COMMON, *known))
    for key in known.keys() - set(kind.keys):
        section.absent(key, f'for kind = "{kind.kind}"')
    return kind.read(StatisticKeys(section, columns))


def _kind(section: Section) -> type[Statistic]:
    """The class that the key `kind` names."""
    name = section.content.get("kind")
    if (
        isinstance(name, str)
        and name not in KINDS
        and (point := registered(_ENTRY_POINTS).get(name))
    ):
        register(loaded(point))
    return KINDS[section.text("kind", None, options=tuple(KINDS))]
