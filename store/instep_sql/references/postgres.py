"""The triggers of places and references in PostgreSQL: one run for all rows of a statement."""

from __future__ import annotations

from typing import Final

__all__ = ["CREATE", "DROP"]

# A row that another transaction has locked is being written: its time is about now anyway.
_LOST: Final = """
UPDATE {table} SET since_us = (
    SELECT max(s.updated_at_us) FROM removed JOIN instep_stream AS s ON s.id = removed.stream_no)
WHERE ({key}) IN (
    SELECT {held} FROM {table} AS held
    JOIN removed ON removed.uuid <> '' AND removed.uuid = held.uuid
    JOIN instep_stream AS s ON s.id = removed.stream_no
    JOIN instep_stream AS other ON other.id = held.stream_no AND other.consumer = s.consumer
    FOR UPDATE OF held SKIP LOCKED)
"""


def _lost(table: str, *key: str) -> str:
    held = ", ".join(f"held.{name}" for name in key)
    return _LOST.format(table=table, key=", ".join(key), held=held)


def _of(table: str) -> str:
    return f"DELETE FROM {table} WHERE entity_id IN (SELECT id FROM removed)"  # noqa: S608


def _trigger(done: str, event: str, tables: str, *statements: str) -> tuple[str, str]:
    name = f"instep_entity_{done}"
    body = ";\n".join(statements)
    return (
        f"""
        CREATE OR REPLACE FUNCTION {name}() RETURNS trigger
        LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        BEGIN
            {body};
            RETURN NULL;
        END $$
        """,
        f"""
        CREATE TRIGGER {name} AFTER {event} ON instep_entity
        REFERENCING {tables} FOR EACH STATEMENT EXECUTE FUNCTION {name}()
        """,
    )


# No join of the two tables of an update: without statistics it is planned as a nested loop.
CREATE: Final = (
    *_trigger(
        "inserted",
        "INSERT",
        "NEW TABLE AS added",
        """
        INSERT INTO instep_stale (stream_no, entity_id) SELECT stream_no, id FROM added
        ON CONFLICT DO NOTHING
        """,
    ),
    *_trigger(
        "updated",
        "UPDATE",
        "OLD TABLE AS former NEW TABLE AS changed",
        """
        INSERT INTO instep_stale (stream_no, entity_id)
        SELECT stream_no, id FROM (
            SELECT stream_no, id, uuid, envelope, body FROM changed
            EXCEPT SELECT stream_no, id, uuid, envelope, body FROM former) AS other
        ON CONFLICT DO NOTHING
        """,
    ),
    *_trigger(
        "deleted",
        "DELETE",
        "OLD TABLE AS removed",
        _of("instep_stated"),
        _of("instep_place"),
        _of("instep_reference"),
        _of("instep_stale"),
        _lost("instep_place", "entity_id", "place", "distance"),
        _lost("instep_reference", "entity_id", "role", "name", "uuid"),
    ),
)
DROP: Final = tuple(
    statement
    for done in ("inserted", "updated", "deleted")
    for statement in (
        f"DROP TRIGGER IF EXISTS instep_entity_{done} ON instep_entity",
        f"DROP FUNCTION IF EXISTS instep_entity_{done}()",
    )
)
