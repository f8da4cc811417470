"""Views for analysts: what derivations bring, and how sure intervals and episodes are.

A view is computed when it is read, from the tables of the pipeline. So it is never behind them, and
nothing has to be rebuilt when it changes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from instep.ports.lake import LakeView
from instep_spark.answers.definitions import Answer, answers
from instep_spark.answers.dialects import SPARK
from instep_spark.lake.tables.base import table_exists
from instep_spark.lake.tables.schema import LAKE_TABLES
from instep_spark.lake.typed_views import typed_name, typed_reference, typed_view
from instep_spark.landing_schema import TABLES, comment_literal
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FUNCTIONS", "VIEWS", "create_views", "views_reference"]

_ANSWERS: Final = tuple(answers(SPARK))
VIEWS: Final = {one.name: one for one in _ANSWERS if not one.parameters}
"""The views, each behind those that it reads."""
FUNCTIONS: Final = {one.name: one for one in _ANSWERS if one.parameters}
"""The functions, which read tables and views."""


def create_views(
    spark: SparkSession,
    url: str,
    *,
    database: str = "",
    managed: bool = False,
    classes: Collection[str] = (),
) -> list[str]:
    """Make the tables of a lake and its views known by their names, and return these names.
    `classes`: those that get a typed view, too (`typed_node` of NODE), or the typed table if there
    is one; making a view takes a while.

    They are temporary views of the session. With `database`, the views are made in it, beside its
    tables, and stay. A view of which a table is not there is left out.

    Functions of the session tell of a time: `entities_at(moment)` and `topology_at(moment)` what
    existed then, `entities_at(moment, as_of)` as far as had landed here at `as_of`, and
    `availability_between(start, end)`. The first time of `entities_at` is one of the provider, the
    second one of ours.

    Raises `ConfigurationError` for a class whose members no derivation knows.
    """
    place = LakePlace(url, database, managed)
    known = {
        name: place.table(name)
        for name in (*TABLES, *LAKE_TABLES, *map(typed_name, classes))
        if _is_table(spark, place, name)
    }
    typed = [typed_view(one) for one in classes if typed_name(one) not in known]
    if not database:
        for name, table in known.items():
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM {table}")
    for view in typed:
        known[view.name] = place.table(view.name) if database else view.name
        _create(spark, known, Answer(view.name, view.meaning, view.sql, ("entities",)), view, place)
    for one in _ANSWERS:
        if known.keys() >= set(one.reads):
            # Spark 4.0 calls no table function of a database.
            own = database and not one.parameters
            known[one.name] = place.table(one.name) if own else one.name
            _create(spark, known, one, None, place)
    return [name for name in known if name not in FUNCTIONS]


def _is_table(spark: SparkSession, place: LakePlace, name: str) -> bool:
    table = place.table(name)
    if not table_exists(spark, table):
        return False
    return not place.database or spark.catalog.getTable(table).tableType != "VIEW"


def _create(
    spark: SparkSession,
    known: dict[str, str],
    one: Answer,
    typed: LakeView | None,
    place: LakePlace,
) -> None:
    """Make a view or a function, of the session or of the database. `known`: SQL by name."""
    sources = ", ".join(f"{name} AS (SELECT * FROM {known[name]})" for name in one.reads)
    query = f"WITH {sources} SELECT * FROM ({one.sql})"
    kept = "" if place.database and not one.parameters else "TEMPORARY "
    comment = f"COMMENT {comment_literal(one.meaning)}"
    made = f"CREATE OR REPLACE {kept}{{}} {known[one.name]}"
    if one.parameters:
        optional = " DEFAULT CAST(NULL AS TIMESTAMP)"
        declared = ", ".join(
            f"{name} TIMESTAMP{optional if may_be_left_out else ''}"
            for name, may_be_left_out in one.parameters
        )
        made = made.format("FUNCTION")
        spark.sql(f"{made}({declared}) RETURNS TABLE {comment} RETURN {query}")
        return
    columns = _ddl(typed) if typed is not None else ""
    spark.sql(f"{made.format('VIEW')} {columns}{comment} AS {query}")


def _ddl(view: LakeView) -> str:
    """SQL: the columns with their comments, for `CREATE VIEW … (…)`."""
    named = (f"`{name}` COMMENT {comment_literal(meaning)}" for name, meaning in view.columns)
    return f"({', '.join(named)}) "


def views_reference() -> str:
    """The views as a table of the reference, in Markdown."""
    rows = "\n".join(f"| `{view.name}` | {view.meaning} |" for view in VIEWS.values())
    views = f"## Views\n\n| View | What it shows |\n| --- | --- |\n{rows}"
    rows = "\n".join(
        f"| `{one.name}({', '.join(name for name, _ in one.parameters)})` | {one.meaning} |"
        for one in FUNCTIONS.values()
    )
    functions = f"## Functions\n\n| Function | What it tells |\n| --- | --- |\n{rows}"
    return f"{views}\n\n{functions}\n\n{typed_reference()}"
