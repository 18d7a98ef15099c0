"""Kinds of places that records come from, found by entry points; none is named here.

A study names a kind in `data.source`, by its name alone or before a colon. A package registers its
own under the entry point `hubbub.sources`; from then on a study may name it like any other.

A function of one's own is "python:module:function". A study is read before anyone has approved it,
so nothing that it names is imported here: reading it must not run it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hubbub.core.registered import loaded, registered, remembered
from hubbub.core.settings import Keys, Section, keys_of, read, stated
from hubbub.core.study.cell_stream import CellStream
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import Records

if TYPE_CHECKING:
    from hubbub.core.study.data import Data


ENTRY_POINTS = "hubbub.sources"
OWN = "python:"  # what a study writes before code that is not part of hubbub
IN_MEMORY = "in-memory"  # what a study calls records or a model that `hubbub.fit` is handed


class TableSource(ABC):
    """A place with cells, such as a database: the study declares columns, and whose a row is.

    A silo reads it once, piece by piece, and keeps what it read (docs/privacy.md P31).
    """

    # The class of its own keys of `[data]`; None: it has none.
    Settings: ClassVar[type | None] = None
    # Of those, the keys whose texts may be long, and how many letters they may have.
    long_texts: ClassVar[Mapping[str, int]] = {}

    def own_keys(self) -> Keys:
        """Its own keys of `[data]`."""
        return {} if self.Settings is None else keys_of(self.Settings)

    def inner_keys(self) -> dict[str, Keys]:
        """The keys of tables within `[data]` that are its own, by dotted name."""
        return {}

    def inner_schemas(self) -> dict[str, Any]:
        """The JSON schemas of its own keys of `[data]` that are tables."""
        return {}

    def completed(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        """The table `[data]` with what a study of this source need not say."""
        return table

    def read(self, section: Section) -> Any:
        """What the study asks of the source: its own keys of `[data]` as settings."""
        if self.Settings is None:
            return None
        content = {key: value for key, value in section.content.items() if key in self.own_keys()}
        return read(self.Settings, section.name, content, **self.readers())

    def readers(self) -> Mapping[str, Callable[[Section], Any]]:
        """For keys that depend on others: what reads them."""
        return {}

    def written(self, request: Any) -> dict[str, Any]:
        """The keys as a file has them."""
        return {} if request is None else stated(request)

    def order(self, request: Any) -> str:
        """The column by which a patient's first records are told; empty: any are."""
        return ""

    def parties(self, folder: Path) -> list[str]:
        """The silos for which a folder says where their cells are."""
        return []

    def meanings(self, request: Any) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """By column its unit and the ids of its concepts, where the source knows them."""
        return {}

    @abstractmethod
    def columns(self, data: Data) -> Sequence[str]:
        """The names of the columns that it gives.

        Raises:
            StudyError: what the study asks of it cannot be asked.
        """

    @abstractmethod
    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        """A silo's cells, as its own folder says.

        Raises:
            UserError, DataError: nothing there says where they are.
        """


class SetSource(ABC):
    """Public data sets of a package, by their names; reading a study may look at what they are."""

    @abstractmethod
    def function(self, name: str) -> Callable[..., Records] | None:
        """What gives a party's records, or the test set; None: there is no such set."""

    @abstractmethod
    def encoding(self, name: str) -> tuple[tuple[Column, ...], str]:
        """How a table of new records becomes features: the columns, and the target's name."""

    @abstractmethod
    def columns(self, name: str) -> Sequence[Column]:
        """The columns that statistics may be about; none: the set has no table."""

    @abstractmethod
    def cells(self, name: str) -> Callable[..., Mapping[str, Sequence[str]]]:
        """What gives a party's cells of these columns, taking the options of a study."""


Source = TableSource | SetSource


@remembered
def sources() -> Mapping[str, Source]:
    """All kinds that are installed, by name."""
    return {name: loaded(point, call) for name, point in registered(ENTRY_POINTS).items()}


def table_sources() -> list[TableSource]:
    """Those with cells."""
    return [source for source in sources().values() if isinstance(source, TableSource)]


def set_sources() -> list[str]:
    """The names of those with public data sets."""
    return [name for name, source in sources().items() if isinstance(source, SetSource)]


def table_source(place: object) -> TableSource | None:
    """The kind with cells that `data.source` names."""
    source = sources().get(place) if isinstance(place, str) else None
    return source if isinstance(source, TableSource) else None


def set_source(place: object) -> tuple[SetSource, str] | None:
    """The kind of public data sets that `data.source` names, and which set."""
    name, _, which = place.partition(":") if isinstance(place, str) else ("", "", "")
    source = sources().get(name)
    public = which.isidentifier() and not which.startswith("_")
    return (source, which) if public and isinstance(source, SetSource) else None


def is_own(text: str) -> bool:
    """Whether a text is "python:module:name"."""
    module, _, name = text.removeprefix(OWN).partition(":")
    parts = (*module.split("."), name)
    return text.startswith(OWN) and all(part.isidentifier() for part in parts)
