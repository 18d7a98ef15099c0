"""A query in place of files: what it gives at the silos whose databases are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hubbub.core.disk import read_text
from hubbub.core.errors import DataError, UserError
from hubbub.core.study.data import Data
from hubbub.core.study.extract import SOURCES, home_of
from hubbub.core.study.parties import is_name, is_reserved
from hubbub.core.study.source import TableSource, table_source
from hubbub.desk.drafting.raw_table import raw_of
from hubbub.desk.drafting.survey import Survey, survey_of


@dataclass(frozen=True, kw_only=True)
class AskedQuery:
    """A query that a study is drafted from."""

    query: str  # one SELECT
    # those that it reads, each with its column that holds the person's key
    tables: tuple[tuple[str, str], ...]
    patient: str  # the column of its result that holds this key

    @classmethod
    def of(cls, path: Path, stated: Sequence[str], patient: str | None) -> AskedQuery:
        """The query in a file."""
        try:
            query = read_text(path)
        except (OSError, ValueError):
            query = ""
        if not query.strip():
            raise UserError(f"expected a query in {path}, found none; check the path")
        pairs = [pair.partition("=")[::2] for pair in stated]
        if not pairs or not patient or not all(table and key for table, key in pairs):
            raise UserError(
                "expected --patient and, for each table of --query, --person "
                "TABLE=COLUMN, got fewer; name the columns with the person's key"
            )
        asked = cls(query=query.strip(), tables=tuple(sorted(pairs)), patient=patient)
        _databases().columns(asked.data)
        return asked

    @property
    def data(self) -> Data:
        """What a study says of it."""
        settings = _databases().Settings
        assert settings is not None, "a query is asked by its keys"  # noqa: S101
        request = settings(query=self.query, tables=self.tables)
        return Data(source=_SQL, request=request, patient=self.patient)

    def surveyed(self, folder: Path) -> Survey:
        """What the query gives at each silo that a folder's `sources.toml` names.

        Raises:
            DataError: there is none, no study can have a silo of that name, or a database does not
                answer.
        """
        home, source = home_of(folder), _databases()
        silos, path = source.parties(folder), (home / SOURCES).resolve()
        if not silos:
            raise DataError(
                f"expected a silo's database in {path}, found none; write "
                '[north] and url = "duckdb:///registry.duckdb" there'
            )
        if odd := [name for name in silos if not is_name(name) or is_reserved(name)]:
            raise DataError(
                f"expected names of silos in {path} that a study can have, such as north or "
                f"clinic-2, got {', '.join(odd)}; rename these there"
            )
        raw = [raw_of(source.stream(self.data, silo, home)) for silo in silos]
        survey = survey_of(raw, [Path(f"{silo}.csv") for silo in silos])
        return replace(survey, silos=tuple(silos))  # as it is there that a run looks for them


_SQL = "sql"  # what a study calls databases


def _databases() -> TableSource:
    source = table_source(_SQL)
    if source is None:
        raise UserError("expected a package that reads databases, found none; install hubbub whole")
    return source
