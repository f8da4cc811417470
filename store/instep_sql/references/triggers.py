"""The triggers of places and references, on the entities."""

from __future__ import annotations

from typing import Final

from instep_sql.engine.dialect import Dialect
from instep_sql.engine.triggers import Trigger, TriggerEvent

__all__ = ["triggers_of"]

_STALE: Final = """
INSERT INTO instep_stale (stream_no, entity_id)
SELECT stream_no, id FROM {new} AS e WHERE true ON CONFLICT DO NOTHING
"""
# A row that another transaction has locked is being written: its time is about now anyway.
_LOST: Final = """
UPDATE {table} SET since_us = (
    SELECT max(s.updated_at_us) FROM {{old}} AS e JOIN instep_stream AS s ON s.id = e.stream_no)
WHERE ({key}) IN (
    SELECT {key} FROM {table} WHERE (uuid, stream_no) IN (
        SELECT e.uuid, other.id FROM {{old}} AS e JOIN instep_stream AS s ON s.id = e.stream_no
        JOIN instep_stream AS other ON other.consumer = s.consumer WHERE e.uuid <> '')
    {skip_locked})
"""


def triggers_of(dialect: Dialect) -> tuple[Trigger, ...]:
    """What notes the entities that are written, and removes what one has stated that ended."""

    def entities(done: str, event: TriggerEvent, *statements: str) -> Trigger:
        columns = ("stream_no", "id", "uuid")
        watched = ("body", "envelope", "uuid")
        name = f"instep_entity_{done}"
        return Trigger(name, "instep_entity", event, columns, statements, watched)

    def lost(table: str, *key: str) -> str:
        return _LOST.format(table=table, key=", ".join(key), skip_locked=dialect.skip_locked)

    return (
        entities("inserted", TriggerEvent.INSERT, _STALE),
        entities("updated", TriggerEvent.UPDATE, _STALE),
        entities(
            "deleted",
            TriggerEvent.DELETE,
            *(
                f"DELETE FROM {table} WHERE entity_id IN (SELECT id FROM {{old}} AS e)"
                for table in ("instep_stated", "instep_place", "instep_reference")
            ),
            "DELETE FROM instep_stale WHERE (stream_no, entity_id) IN"
            " (SELECT stream_no, id FROM {old} AS e)",
            lost("instep_place", "entity_id", "place", "distance"),
            lost("instep_reference", "entity_id", "role", "name", "uuid"),
        ),
    )
