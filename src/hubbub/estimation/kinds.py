"""Which kinds of statistics there are, and how one is read from its table.

A kind is a class: its settings, its encoding with the bounds that privacy rests on, and its answer,
in one file. One from elsewhere is told to `register`, or found in an installed package that names
it under the entry point "hubbub.statistics" (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from hubbub.core.errors import StudyError
from hubbub.core.registered import loaded, registered
from hubbub.core.settings import (
    Key,
    Section,
    key_of,
    keys_of,
    later,
    listed,
    number,
    one_of,
    read_key,
    schema,
    section_of,
    settings,
    texts,
    whole,
)
from hubbub.core.study.data import Data, columns_of
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.core.tabular.target import COUNT
from hubbub.estimation.baseline_table import Table
from hubbub.estimation.centres import Centres
from hubbub.estimation.cox import Cox, cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.linear import Linear, log_linear
from hubbub.estimation.logistic_regression import Logistic, NewtonLogistic
from hubbub.estimation.model_regressions import NewtonMultinomial, NewtonPoisson
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.rates import EventRates
from hubbub.estimation.statistic import Iterated, OneSum, Statistic
from hubbub.estimation.statistic_keys import COMMON, StatisticKeys
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
    section = Section(path, table, ("kind", *COMMON, *kind.keys))
    return kind.read(StatisticKeys(section, columns))


def regression_of(data: Data, on: tuple[Levels | Column, ...]) -> OneSum | Iterated:
    """The regression on these covariates whose effects are those of a model of a study's target."""
    if data.outcome is None:
        classes = columns_of(data)[data.target]
        kind = NewtonMultinomial if len(classes.categories) > 2 else NewtonLogistic
        return kind(outcome=classes, on=on)
    own, *events = data.outcome.declared(data.target)
    if data.outcome.kind == COUNT:
        return NewtonPoisson(outcome=own, on=on)
    if events:
        (event,) = events
        return cox(own, event, (0.0, *data.outcome.grid), on)
    return (log_linear if data.outcome.is_log else Linear)(outcome=own, on=on)


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


# The table `[statistics]`: tables, curves, tests and regressions that a study asks for.
#
# What may be asked of which columns, each kind of statistic says itself (`hubbub.estimation`). This
# file knows that there are several, in so many sums, at a part of epsilon.

_MOST_STATISTICS, _MOST_LETTERS = 100, 100
Named = tuple[str, OneSum | Iterated]


@settings
class AskedStatistics:
    """All statistics of a study, each with its name in the order of the file: one release."""

    named: tuple[Named, ...]
    epsilon: Annotated[
        float,
        number(
            0.001,
            50,
            "The most these may spend of the study's epsilon when a model is trained "
            "too; required there.",
            default="either",
        ),
    ] = 0.0
    sums: Annotated[
        int,
        whole(
            1,
            16,
            "The number of sums. Two are as precise as one; if one is lost, the "
            "other remains, with √2 times the noise.",
        ),
    ] = 1
    holm: Annotated[
        tuple[str, ...],
        later(
            texts(
                "Statistics whose p-values form one family: each p-value is also "
                "given adjusted by Holm's method.",
                "list of names",
            )
        ),
    ] = ()

    @property
    def rounds(self) -> int:
        """How many sums over all records they take."""
        return max(self.sums, *(one.rounds for _, one in self.named))

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from."""
        part: dict[str, Any] = {"epsilon": self.epsilon} if self.epsilon else {}
        part |= {"sums": self.sums} if self.sums > 1 else {}
        part |= {"holm": list(self.holm)} if self.holm else {}
        return part | {name: one.to_table() for name, one in self.named}

    def canonical(self) -> dict[str, Any]:
        """What all parties agree on: every setting written out, in the order of the vector."""
        return {
            "epsilon": self.epsilon,
            "sums": self.sums,
            "statistics": [{"name": name, **one.to_table()} for name, one in self.named],
            **({"holm": list(self.holm)} if self.holm else {}),
        }


def statistics_from(
    table: Mapping[str, Any], columns: Mapping[str, Column], *, alone: bool
) -> AskedStatistics:
    """The statistics that the table `[statistics]` states, of these columns.

    Raises:
        StudyError: what is asked for is none, or not of these columns.
    """
    named = {name: one for name, one in table.items() if isinstance(one, dict)}
    plain = {key: value for key, value in table.items() if key not in named}
    section = section_of(AskedStatistics, "statistics", plain)
    if alone:
        section.absent(
            "epsilon", "where no model is trained: statistics then have all of the study's"
        )
    if not 0 < len(named) <= _MOST_STATISTICS:
        raise StudyError(
            f"expected 1 to {_MOST_STATISTICS} tables [statistics.NAME], got {len(named)}; add one "
            'such as [statistics.baseline] with kind = "table"'
        )
    for name in named:
        _check_name(name)
    part = read_key(AskedStatistics, section, "epsilon", required=True) if not alone else 0.0
    asked = tuple((name, statistic_from(name, one, columns)) for name, one in named.items())
    sums = read_key(AskedStatistics, section, "sums")
    if sums > 1 and any(one.rounds > 1 for _, one in asked):
        raise section.refusal(
            "sums", "1 beside a regression on numbers, which takes a few", "leave it out"
        )
    family = read_key(AskedStatistics, section, "holm")
    if set(family) - {name for name, _ in asked} or len(set(family)) < len(family):
        wanted = f"different statistics out of {', '.join(named)}"
        raise section.refusal("holm", wanted, "correct the list")
    return AskedStatistics(named=asked, epsilon=part, sums=sums, holm=family)


def statistic_keys(kind: str = "") -> dict[str, Key]:
    """The keys of one kind of statistic, or of all."""
    keys = {"kind": one_of(*KINDS, says="What is asked."), **COMMON}
    for one in [KINDS[kind]] if kind else KINDS.values():
        for name, key in one.keys.items():
            keys.setdefault(name, key)  # as the first kind that has it says
    return keys


def methods_of(kind: str) -> str:
    """What a paper says was done for answers of a kind, in a clause; empty if nothing."""
    kinds: list[type[Statistic]] = [*KINDS.values(), NewtonMultinomial, NewtonPoisson]
    return next((one.methods for one in kinds if one.kind == kind), "")


def statistics_schema() -> dict[str, Any]:
    """What is no key is a statistic; one of a kind that is not known here has any keys."""
    kinds = {kind: listed(statistic_keys(kind)) for kind in KINDS}
    each = [schema(keys, kind={"const": kind}) for kind, keys in kinds.items()]
    own = {"properties": {"kind": {"not": {"enum": list(kinds)}}}, "required": ["kind"]}
    whole_table = schema(keys_of(AskedStatistics))
    return whole_table | {"additionalProperties": {"type": "object", "anyOf": [*each, own]}}


def _check_name(name: str) -> None:
    """A statistic's name is in tables, figures and the names of files: a plain text it must be."""
    plain = name.isprintable() and not {*"/\\"} & {*name} and not name.startswith(".")
    if not (plain and 0 < len(name) <= _MOST_LETTERS):
        raise StudyError(
            f"expected the name of a statistic to be 1 to {_MOST_LETTERS} printable "
            "characters, without / and \\ and not starting with ., because files are "
            f"named after it, got {name[:_MOST_LETTERS]!r}; rename it"
        )
