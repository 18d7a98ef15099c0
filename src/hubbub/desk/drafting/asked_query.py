"""A query in place of files: what it gives at the silos whose databases are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.disk import read_text
from hubbub.core.errors import DataError, UserError
from hubbub.core.study.extract import SOURCES, home_of
from hubbub.desk.drafting.raw_table import raw_of
from hubbub.desk.drafting.survey import Survey, survey_of
from hubbub.site.sql.engines import silos_in
from hubbub.site.sql.sql_keys import check_query


@dataclass(frozen=True, kw_only=True)
class AskedQuery:
    """A query that a study is drafted from."""

    query: str  # one SELECT
    # that it reads, each with the column that says whose a row is
    tables: tuple[tuple[str, str], ...]
    patient: str  # the column of its result that is that key

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
        check_query(asked.query, asked.tables, (), patient)
        return asked

    def surveyed(self, folder: Path) -> Survey:
        """What the query gives at each silo that a folder's `sources.toml` names."""
        from hubbub.site.sql import source
        from hubbub.site.sql.owned_query import checked

        home = home_of(folder)
        silos = silos_in(folder)
        if not silos:
            raise DataError(
                f"expected a silo's database in {(home / SOURCES).resolve()}, found none; write "
                '[north] and url = "duckdb:///registry.duckdb" there'
            )
        query = checked(self.query, dict(self.tables), patient=self.patient)
        raw = [raw_of(source.stream_of(query, silo, home)) for silo in silos]
        return survey_of(raw, [Path(f"{silo}.csv") for silo in silos])
