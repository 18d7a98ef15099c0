"""Kinds of things that a study may ask of its silos, found by entry points; none is named here.

An `Ask` owns one or more tables of a study's file. It reads and checks them, writes them into the
canonical form, and says which queries follow. A package registers its own under the entry point
`hubbub.asks`; from then on its tables are keys of a study like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import call
from typing import TYPE_CHECKING, Any, ClassVar

from hubbub.core.errors import UserError
from hubbub.core.registered import loaded, registered, remembered
from hubbub.core.settings import Keys, Section, schema
from hubbub.core.study.data import Data, columns_of
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.core.planning.query import Query, SteppedQuery
    from hubbub.core.study.study import Study

ENTRY_POINTS = "hubbub.asks"


@dataclass(frozen=True)
class Surroundings:
    """What an ask may look at while its tables are read."""

    data: Data
    is_main: bool  # whether the ask has what all others leave of the study's epsilon
    trains: bool  # whether the study trains a model

    @property
    def columns(self) -> Mapping[str, Column]:
        """By name the columns whose cells may be asked of; StudyError if none are declared."""
        return columns_of(self.data)


class Ask(ABC):
    """One kind of thing that a study may ask."""

    # The tables of a study's file that are its own, the first one present with it.
    tables: ClassVar[tuple[str, ...]]
    # Where its tables stand in a file, and its queries among those of one turn.
    rank: ClassVar[int]
    # The ask with the largest is the main one, with what others leave of epsilon; 0: it never is.
    precedence: ClassVar[int] = 0
    # Whether it trains a model, so that records have a target.
    trains: ClassVar[bool] = False
    # Whether the canonical form names its tables where they are absent, too: hubbub's first alone.
    is_pinned: ClassVar[bool] = False
    # Of a run's folder, that hold what its sums gave: evidence has digests of them.
    files: ClassVar[tuple[str, ...]] = ()
    # Patterns of further files that say the same: evidence has digests of them, too.
    copies: ClassVar[tuple[str, ...]] = ()
    # The one of `files` that the page reads answers from; empty if none does.
    answers: ClassVar[str] = ""

    @abstractmethod
    def keys(self) -> dict[str, Keys]:
        """The keys of its tables, and of tables within them, by dotted name."""

    def schemas(self) -> dict[str, Any]:
        """The JSON schema of each of its tables."""
        keys = self.keys()
        within = {
            table: {
                name.partition(".")[2]: schema(keys[name])
                for name in keys
                if name.startswith(f"{table}.")
            }
            for table in self.tables
        }
        return {table: schema(keys[table], **inner) for table, inner in within.items()}

    @abstractmethod
    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        """What its tables say, by table; each answers `to_table` or is settings.

        Raises:
            StudyError: a key is unknown or missing, or a value is out of its range.
        """

    def check(self, study: Study) -> None:  # noqa: B027 (most have nothing to say)
        """Refuse what contradicts other tables of a study that asks for it.

        Raises:
            StudyError: naming the keys.
        """

    def written(self, study: Study) -> dict[str, Any]:
        """Its tables as a file has them."""
        return {key: getattr(study, key).to_table() for key in self.tables}

    def canonical(self, study: Study) -> dict[str, Any]:
        """Its tables as all parties agree on them, every default written out."""
        return self.written(study)

    def parts(self, study: Study) -> dict[str, float]:
        """What its queries take of the study's epsilon, by the key that says so."""
        return {}

    def dimension(self, study: Study) -> int | None:
        """How many parameters a model has that it trains, if that is public."""
        return None

    def is_dimension(self, study: Study, dimension: int) -> bool:
        """Whether a sum of the main query may have so many numbers; nothing is opened for it."""
        return self.query(study).numbers == dimension

    def is_planned(self, study: Study, dimension: int) -> bool:
        """Whether a plan follows from the study and so many numbers, with nothing opened."""
        return True

    @abstractmethod
    def query(self, study: Study, dimension: int | None = None) -> SteppedQuery:
        """What it asks; of the main ask, a query without an epsilon of its own.

        Nothing is opened for it: who checks a study of somebody else must not read what it names.
        """

    def extras(self, study: Study, dimension: int | None) -> Sequence[Query]:
        """What has to be asked besides."""
        return ()

    def foreseen(self, plan: Plan) -> dict[str, Any]:
        """What a plan says of it besides, as plain values, which `plan of TABLE` renders."""
        return {}

    def is_telling(self, study: Study) -> bool:
        """Whether its answer will stand out from the noise, as far as public numbers say."""
        return True

    def own_code(self, study: Study) -> list[str]:
        """Names of functions that it calls, of hubbub or not."""
        return []

    def shared_code(self, study: Study) -> list[str]:
        """Of these, whose sources the study must state where parties run apart."""
        return []

    def cells(self, study: Study) -> Mapping[str, Column] | None:
        """The columns whose cells it reads as they are; None: it reads none."""
        return None

    def subgroups(self, study: Study) -> tuple[Levels, ...]:
        """Classes of columns that silos note of each record beside its features."""
        return ()

    def held_back_share(self, study: Study) -> float:
        """Share of each silo's records that is kept from the training, to be asked of by it."""
        return 0.0

    def usual(self, study: Study) -> dict[str, dict[str, Any]]:
        """Keys of tables that follow a rule, where a program states a study without them."""
        return {}

    def shows_counts(self, study: Study) -> bool:
        """Whether its batches make every silo's number of records public."""
        return False


@remembered
def asks() -> tuple[Ask, ...]:
    """All kinds that are installed, by rank.

    Raises:
        UserError: one of another package is pinned: every study would have another id with it.
    """
    installed = [loaded(point, call) for point in registered(ENTRY_POINTS).values()]
    for ask in installed:
        module = type(ask).__module__
        if ask.is_pinned and not module.startswith("hubbub."):
            raise UserError(
                f"expected {module} not to pin {', '.join(ask.tables)}, which studies had no word "
                "of when their ids were pinned, found is_pinned; bring the package up to date or "
                "uninstall it"
            )
    return tuple(sorted(installed, key=lambda ask: ask.rank))
