"""Views for analysts: what derivations bring, and how sure intervals and episodes are.

A view is computed when it is read, from the tables of the pipeline. So it is never behind them, and
nothing has to be rebuilt when it changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from instep.ports.lake import LakeEntityTable, LakeView
from instep_spark.derivations import ENTITY_TABLES
from instep_spark.derivations import VIEWS as DERIVED_VIEWS
from instep_spark.lake.bitemporal import ENTITIES_AT, EPISODES, INTERVALS
from instep_spark.lake.sql.literals import text
from instep_spark.lake.tables.base import table_exists
from instep_spark.lake.tables.entities import DerivedTable
from instep_spark.lake.tables.schema import LAKE_TABLES
from instep_spark.lake.typed_views import typed_name, typed_reference, typed_view
from instep_spark.landing_schema import TABLES, comment_literal
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["VIEWS", "create_views", "views_reference"]

VIEWS: Final = {view.name: view for view in (INTERVALS, *EPISODES, *DERIVED_VIEWS)}
"""The views, each behind those that it reads."""
_AT: Final = """
    CREATE OR REPLACE TEMPORARY FUNCTION {name}_at(moment TIMESTAMP) RETURNS TABLE
    RETURN SELECT * FROM {name}_history
    WHERE valid_from <= moment AND (open OR valid_to > moment)
"""
_WORD: Final = re.compile(r"\w+")


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

    Functions of the session tell what was: `entities_at(moment)` and `topology_at(moment)` what
    existed then, `entities_at(moment, as_of)` as far as had landed here at `as_of`. The first takes
    times of the provider, the second one of ours. `topology_history` is a view of the session, too.

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
    for view in (*VIEWS.values(), *typed):
        words = {"entities"} if view.columns else set(_WORD.findall(view.sql))
        read = [name for name in (*TABLES, *LAKE_TABLES, *VIEWS) if name in words]
        if not known.keys() >= set(read):
            continue
        sources = ", ".join(f"{name} AS (SELECT * FROM {known[name]})" for name in read)
        known[view.name] = place.table(view.name) if database else view.name
        made = f"{'' if database else 'TEMPORARY'} VIEW {known[view.name]}"
        comment = comment_literal(view.meaning)
        query = f"WITH {sources} SELECT * FROM ({view.sql})"
        spark.sql(f"CREATE OR REPLACE {made} {_ddl(view)}COMMENT {comment} AS {query}")
    if "entity_history" in known:
        history = known["entity_history"]
        spark.sql(ENTITIES_AT.format(history=history, changes=known["changes"]))
        for derived in ENTITY_TABLES:
            _create_at(spark, place, history, derived)
    return list(known)


def _is_table(spark: SparkSession, place: LakePlace, name: str) -> bool:
    table = place.table(name)
    if not table_exists(spark, table):
        return False
    return not place.database or spark.catalog.getTable(table).tableType != "VIEW"


def _create_at(
    spark: SparkSession, place: LakePlace, history: str, derived: LakeEntityTable
) -> None:
    classes = ", ".join(map(text, derived.classes))
    rows = spark.sql(f"SELECT *, false AS ends FROM {history} WHERE class IN ({classes})")
    made = DerivedTable(derived, place).project(rows)
    made = made.select(
        *(column.name for column in LAKE_TABLES[derived.name].columns),
        *("valid_from", "valid_to", "valid_to_basis", "open"),
    )
    made.createOrReplaceTempView(f"{derived.name}_history")
    spark.sql(_AT.format(name=derived.name))


def _ddl(view: LakeView) -> str:
    """SQL: the columns with their comments, for `CREATE VIEW … (…)`."""
    named = (f"`{name}` COMMENT {comment_literal(meaning)}" for name, meaning in view.columns)
    return f"({', '.join(named)}) " if view.columns else ""


def views_reference() -> str:
    """The views as a table of the reference, in Markdown."""
    rows = "\n".join(f"| `{view.name}` | {view.meaning} |" for view in VIEWS.values())
    views = f"## Views\n\n| View | What it shows |\n| --- | --- |\n{rows}"
    return f"{views}\n\n{typed_reference()}"
