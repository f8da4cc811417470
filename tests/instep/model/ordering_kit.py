"""All pairs of places that rule A3 distinguishes, and the result of the rule for each: written from
the rule, and shared by the tests of its Python and SQL forms.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

from instep.model.ordering import Place, PlaceColumns, supersedes_sql


class Case(NamedTuple):
    """Where a statement stands."""

    lineage: int
    partition: str
    offset: int
    appended_at_us: int


CASES: Final = [Case(*place) for place in product((1, 2), ("", "0", "1"), range(-1, 3), range(3))]


def newer(stored: Case, incoming: Case) -> bool:
    """The result of A3 within one log: by offsets, or by time where these do not compare."""
    if stored.lineage != incoming.lineage:
        return False
    if stored.partition == incoming.partition and min(stored.offset, incoming.offset) > -1:
        return stored.offset > incoming.offset
    return stored.appended_at_us > incoming.appended_at_us


NEWER: Final = {
    (one, other)
    for (one, stored), (other, incoming) in product(enumerate(CASES), repeat=2)
    if newer(stored, incoming)
}
"""The pairs, by their places in `CASES`, of which the first is newer than the second."""

_SQL: Final = PlaceColumns("lineage", "part", "place", "at_us")


def pairs_query() -> str:
    """One statement, in the SQL of all engines: the pairs of `NEWER`, as the SQL form sees them."""
    values = ", ".join(
        f"({number}, {case.lineage}, '{case.partition}', {case.offset}, {case.appended_at_us})"
        for number, case in enumerate(CASES)
    )
    stored, incoming = Place.of("stored", _SQL), Place.of("incoming", _SQL)
    return f"""
        WITH places (number, lineage, part, place, at_us) AS (VALUES {values})
        SELECT stored.number AS stored, incoming.number AS incoming
        FROM places AS stored CROSS JOIN places AS incoming
        WHERE {supersedes_sql(stored, incoming)}
    """


def null_query() -> str:
    """One row: 0 and 1, since a statement that is not there is newer than nothing."""
    nothing = Place(*["CAST(NULL AS INTEGER)"] * 4)
    one = Place("1", "1", "1", "1")
    newer_than = supersedes_sql(nothing, one, nullable=True)
    lineage = supersedes_sql(nothing._replace(lineage="1"), one, nullable=True)
    return f"""
        SELECT CASE WHEN {newer_than} OR {lineage} THEN 1 ELSE 0 END AS newer,
               CASE WHEN NOT {newer_than} AND NOT {lineage} THEN 1 ELSE 0 END AS not_newer
    """
