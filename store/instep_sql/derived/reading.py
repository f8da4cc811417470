"""Reads what is derived, by the queries that a derivation states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, TextClause, text

from instep.config.derivations import Derived, table_derivations
from instep.errors import ConfigurationError, DerivationOffError
from instep.ports.derivation import EntityDerivation, Query
from instep_sql.engine.definitions import is_kept

__all__ = ["PAGE_RECORDS", "DerivedPages", "pages_of"]

PAGE_RECORDS: Final = 500
_PARAMETER: Final = re.compile(r":(\w+)")
# A process that runs since before something was turned on does not derive it yet. All is derived at
# the end of every commit of another.
_BEHIND: Final = text("""
    SELECT s.consumer FROM instep_unprojected AS c JOIN instep_stream AS s ON s.id = c.stream_no
    WHERE c.name = :name LIMIT 1
""")


class DerivedPages(NamedTuple):
    """The pages of one query. Its values are set to the last row of a page before the next."""

    derivation: Derived
    query: Query
    statement: TextClause
    values: dict[str, Any]
    where: str

    def fetch(self, connection: Connection) -> list[Row[Any]]:
        """The next page. Raises `DerivationOffError`."""
        name, words = self.derivation.name, self.derivation.words
        if not is_kept(connection, name):
            raise DerivationOffError(
                f"the store keeps no {words}",
                where=self.where,
                hint=f"set {name} = true in the sink's options",
            )
        if isinstance(self.derivation, EntityDerivation):
            waits = connection.execute(_BEHIND, {"name": name}).scalar()
            if waits is not None:
                raise DerivationOffError(
                    f"the {words} were turned on, but not all are derived yet",
                    where=self.where,
                    hint=f"the process of consumer {waits!r} began before that: start it again",
                )
        return list(connection.execute(self.statement, self.values))

    def is_last(self, rows: list[Row[Any]]) -> bool:
        """Whether nothing comes after this page; else the next one begins after it."""
        if len(rows) < PAGE_RECORDS or not self.query.order:
            return True
        last = rows[-1]._mapping  # noqa: SLF001 — SQLAlchemy's public name for it
        self.values.update({f"after_{name}": last[name] for name in self.query.order})
        return False


def pages_of(name: str, query: str, filters: Mapping[str, Any], where: str) -> DerivedPages:
    """The pages of a query of a derivation. Raises `ConfigurationError` where there is none."""
    derivation = next((one for one in table_derivations() if one.name == name), None)
    if derivation is None or query not in derivation.queries:
        raise ConfigurationError(
            f"there is no derivation {name!r} with a query {query!r}",
            where=where,
            hint="look at the entry points of instep.derivations",
        )
    stated = derivation.queries[query]
    given = {name: one for name, one in filters.items() if one is not None}
    unknown = given.keys() - stated.filters.keys()
    if unknown:
        raise ConfigurationError(
            f"the query has no filter {min(unknown)!r}",
            where=where,
            hint=f"it has {', '.join(sorted(stated.filters))}",
        )
    sql = _sql(name, query, frozenset(given))
    after = {f"after_{column}": first for column, (_, first) in stated.order.items()}
    values = {"size": PAGE_RECORDS, **after, **given}
    named = set(_PARAMETER.findall(sql))
    bound = {name: one for name, one in values.items() if name in named}
    return DerivedPages(derivation, stated, text(sql), bound, where)


@lru_cache(maxsize=256)
def _sql(name: str, query: str, given: frozenset[str]) -> str:
    (derivation,) = (one for one in table_derivations() if one.name == name)
    stated = derivation.queries[query]
    conditions = [condition for one in sorted(given) if (condition := stated.filters[one])]
    page = ""
    if stated.order:
        expressions = [expression for expression, _ in stated.order.values()]
        marks = [f":after_{column}" for column in stated.order]
        # The first by itself, so that an index of it alone serves, too.
        conditions.append(f"{expressions[0]} >= {marks[0]}")
        conditions.append(f"({', '.join(expressions)}) > ({', '.join(marks)})")
        page = f" ORDER BY {', '.join(expressions)} LIMIT :size"
    return stated.sql.format(more=" AND ".join(conditions) or "1 = 1") + page
