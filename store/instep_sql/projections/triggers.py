"""The triggers that note each entity to be projected anew, and remove the rows of one that ended.

They see every way in which an entity is written: a commit, a sweep, a replay, a repair.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from instep_sql.engine.bulk_writes import quoted
from instep_sql.engine.triggers import Trigger, TriggerEvent

__all__ = ["VERSION", "triggers_of"]

VERSION: Final = "3"
"""Of the triggers: a store that has those of another version gets these when it is opened."""

_REMOVED_FROM: Final = ("instep_projection_error", "instep_unprojected")


def triggers_of(projected: Mapping[str, Collection[str]]) -> tuple[Trigger, ...]:
    """The triggers for the classes of each projected table."""

    def entities(done: str, event: TriggerEvent, *statements: str) -> Trigger:
        columns = ("stream_no", "id", "class")
        watched = ("body", "envelope", "uuid", "class")
        name = f"instep_projected_{done}"
        return Trigger(name, "instep_entity", event, columns, statements, watched)

    tables = [*_REMOVED_FROM, *map(quoted, projected)]
    return (
        entities("inserted", TriggerEvent.INSERT, *_noted(projected, "{new}")),
        entities("updated", TriggerEvent.UPDATE, *_noted(projected, "{new}", "{old}")),
        entities(
            "deleted",
            TriggerEvent.DELETE,
            *(
                f"DELETE FROM {table} WHERE entity_id IN (SELECT id FROM {{old}} AS e)"
                for table in tables
            ),
        ),
    )


def _noted(projected: Mapping[str, Collection[str]], *relations: str) -> list[str]:
    """One statement for all projections, or none. Their classes are constants: to look them up for
    each row costs as much as to write the row, and SQLite makes a list of `IN` anew for each.
    """
    chosen = []
    for name, classes in sorted(projected.items()):
        concerned = " OR ".join(f"e.class = {_literal(one)}" for one in sorted(classes))
        chosen += [
            f"SELECT e.stream_no, {_literal(name)}, e.id FROM {rows} AS e WHERE {concerned}"
            for rows in relations
        ]
    if not chosen:
        return []
    into = "INSERT INTO instep_unprojected (stream_no, name, entity_id)"
    return [f"{into} {' UNION ALL '.join(chosen)} ON CONFLICT DO NOTHING"]


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))
