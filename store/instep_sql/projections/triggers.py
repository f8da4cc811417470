"""The triggers that note each entity to be projected anew, and remove the rows of one that ended.

They see every way in which an entity is written: a commit, a sweep, a replay, a repair.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Dialect

__all__ = ["VERSION", "create", "drop"]

VERSION: Final = "2"
"""Of the triggers: a store that has those of another version gets these when it is opened."""

_EVENTS: Final = ("inserted", "updated", "deleted")
_REMOVED_FROM: Final = ("instep_projection_error", "instep_unprojected")

_NOTED: Final = """
INSERT INTO instep_unprojected (stream_no, name, entity_id)
SELECT NEW.stream_no, {name}, NEW.id WHERE {concerned} ON CONFLICT DO NOTHING
"""
# The rows of a statement, joined with the projections of their classes.
_ALL_NOTED: Final = """
INSERT INTO instep_unprojected (stream_no, name, entity_id)
SELECT {no}, p.name, {id} FROM {rows} instep_projected_class AS p
WHERE p.class IN ({classes}) ON CONFLICT DO NOTHING
"""


def create(dialect: Dialect, projected: Mapping[str, Collection[str]]) -> list[str]:
    """The statements that create the triggers, for the classes of each projected table."""
    quote = dialect.identifier_preparer.quote
    removed_from = [*_REMOVED_FROM, *map(quote, projected)]
    if dialect.name == "sqlite":
        inserted = _noted(projected, "NEW")
        updated = _noted(projected, "NEW", "OLD")
        removals = [f"DELETE FROM {table} WHERE entity_id = OLD.id" for table in removed_from]  # noqa: S608
        return [
            _sqlite("inserted", "INSERT", "", *inserted),
            _sqlite(
                "updated",
                "UPDATE OF class, uuid, envelope, body",
                "WHEN OLD.body <> NEW.body OR OLD.envelope <> NEW.envelope"
                " OR OLD.uuid <> NEW.uuid OR OLD.class <> NEW.class",
                *updated,
            ),
            _sqlite("deleted", "DELETE", "", *removals),
        ]
    added = _ALL_NOTED.format(no="e.stream_no", id="e.id", rows="added AS e,", classes="e.class")
    # No join of the two tables of an update: without statistics it is planned as a nested loop.
    changed = _ALL_NOTED.format(
        no="e.stream_no",
        id="e.id",
        rows="""
        (SELECT stream_no, id, class, uuid, envelope, body FROM changed
         EXCEPT SELECT stream_no, id, class, uuid, envelope, body FROM former
         UNION ALL
         (SELECT stream_no, id, class, uuid, envelope, body FROM former
          EXCEPT SELECT stream_no, id, class, uuid, envelope, body FROM changed)) AS e,
        """,
        classes="e.class",
    )
    removals = [
        f"DELETE FROM {table} WHERE entity_id IN (SELECT id FROM removed)"  # noqa: S608
        for table in removed_from
    ]
    return [
        *_postgres("inserted", "INSERT", "NEW TABLE AS added", added),
        *_postgres("updated", "UPDATE", "OLD TABLE AS former NEW TABLE AS changed", changed),
        *_postgres("deleted", "DELETE", "OLD TABLE AS removed", *removals),
    ]


def drop(dialect: Dialect) -> list[str]:
    """The statements that drop them, if they exist."""
    if dialect.name == "sqlite":
        return [f"DROP TRIGGER IF EXISTS {_name(event)}" for event in _EVENTS]
    return [
        statement
        for event in _EVENTS
        for statement in (
            f"DROP TRIGGER IF EXISTS {_name(event)} ON instep_entity",
            f"DROP FUNCTION IF EXISTS {_name(event)}()",
        )
    ]


def _name(event: str) -> str:
    return f"instep_projected_{event}"


def _noted(projected: Mapping[str, Collection[str]], *rows: str) -> list[str]:
    """A statement for each projection. Its classes are constants: to look them up for each row
    costs as much as to write the row, and SQLite makes a list of `IN` anew for each.
    """
    return [
        _NOTED.format(
            name=_literal(name),
            concerned=" OR ".join(
                f"{row}.class = {_literal(one)}" for row in rows for one in sorted(classes)
            ),
        )
        for name, classes in sorted(projected.items())
    ]


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _sqlite(event: str, after: str, when: str, *statements: str) -> str:
    body = "; ".join(statements)
    return f"CREATE TRIGGER {_name(event)} AFTER {after} ON instep_entity {when} BEGIN {body}; END"


def _postgres(event: str, after: str, tables: str, *statements: str) -> tuple[str, str]:
    body = "; ".join(statements)
    return (
        f"""
        CREATE OR REPLACE FUNCTION {_name(event)}() RETURNS trigger
        LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN {body}; RETURN NULL; END $$
        """,
        f"""
        CREATE TRIGGER {_name(event)} AFTER {after} ON instep_entity
        REFERENCING {tables} FOR EACH STATEMENT EXECUTE FUNCTION {_name(event)}()
        """,
    )
