"""Answers with DuckDB: no Spark, no Java."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from instep.errors import ConfigurationError
from instep_spark.answers.definitions import TABLES, Answer, answers
from instep_spark.answers.dialects import DUCKDB

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["load_table", "open_lake", "statements"]

_COLUMNS: Final = {
    "changes": (
        *("consumer", "stream", "ordinal", "kind", "attempt", "key", "uuid"),
        *("lineage", "record_offset", "token", "appended_at", "committed_at"),
    ),
}
"""What answers read of a table; of the others all."""


def open_lake(
    url: str, *, storage_options: dict[str, str] | None = None, **config: Any
) -> DuckDBPyConnection:
    """A DuckDB database in memory with the tables of a lake, as they are now, and all answers, as
    tables and views, and as functions with times. Times are UTC, without a zone. Open it again to
    see what has landed since.

    `url`: of the lake, or its folder. `storage_options`: as `deltalake` takes them. `config`: of
    DuckDB. Raises `ConfigurationError` without DuckDB, and where there is no lake.
    """
    try:
        import duckdb  # noqa: PLC0415 - an answer by Spark needs none
    except ImportError as error:
        raise ConfigurationError("DuckDB is not installed", hint="pip install duckdb") from error
    tables = {}
    for name in TABLES:
        found = load_table(url, name, storage_options)
        if found is not None:
            tables[name] = found
    if not tables:
        raise ConfigurationError(
            f"there is no lake at {url}: none of its tables is there",
            hint="give the folder or URL that `instep lake run` fills",
        )
    lake = duckdb.connect(config=config)
    # What a question calls now is UTC, too.
    lake.execute("SET TimeZone = 'UTC'")
    for name, rows in tables.items():
        lake.register("rows_of_table", rows)
        lake.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_of_table")
        lake.unregister("rows_of_table")
    for statement in statements(set(tables)):
        lake.execute(statement)
    return lake


def load_table(
    url: str, name: str, storage_options: dict[str, str] | None = None
) -> pa.Table | None:
    """A table of a lake as it is now, its times without a zone; None where there is none."""
    where = f"{url.rstrip('/')}/{name}"
    if not DeltaTable.is_deltatable(where, storage_options):
        return None
    table = DeltaTable(where, storage_options=storage_options)
    columns = ", ".join(f'"{one}"' for one in _COLUMNS.get(name, ())) or "*"
    engine = QueryBuilder().register("asked", table)
    rows = pa.table(engine.execute(f"SELECT {columns} FROM asked"))
    return rows.cast(pa.schema([field.with_type(_plain(field.type)) for field in rows.schema]))


def statements(tables: set[str]) -> list[str]:
    """What makes the answers known in a database with these tables, statement by statement. An
    answer of which a table is not there is left out.
    """
    known = set(tables)
    made = []
    found = list(answers(DUCKDB))
    # What others build upon is computed once.
    shared = {name for one in found for name in one.reads}
    for one in found:
        if known.issuperset(one.reads):
            known.add(one.name)
            made.append(_statement(one, kept=one.reading or one.name in shared))
    return made


def _statement(one: Answer, *, kept: bool) -> str:
    if kept:
        return f"CREATE TABLE {one.name} AS {one.sql}"
    if not one.parameters:
        return f"CREATE VIEW {one.name} AS {one.sql}"
    declared = ", ".join(
        f"{name} := CAST(NULL AS TIMESTAMP)" if optional else name
        for name, optional in one.parameters
    )
    return f"CREATE MACRO {one.name}({declared}) AS TABLE {one.sql}"


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
