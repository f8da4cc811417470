"""Notes which stored entities have changed since something was derived of them.

Triggers see every way in which an entity is written: a commit, a sweep, a replay, a repair. They
also remove the rows of one that has ended. Without a follower there is none, and nobody pays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep_sql.engine.bulk_writes import quoted
from instep_sql.engine.definitions import define, definitions
from instep_sql.engine.dialect import Dialect
from instep_sql.engine.triggers import Trigger, TriggerEvent

__all__ = [
    "STATED",
    "Follower",
    "ReferenceColumn",
    "has_all_triggers",
    "mark_all_changed",
    "set_followers",
    "streams_behind",
]

STATED: Final = "instep_derived_digest"
"""What an entity stated when its rows were last derived, as a digest."""
_VERSION: Final = "4"
"""Of the triggers: a store that has those of another version gets these when it is opened."""
_TRIGGERS: Final = "triggers of followers"
_FOLLOWER: Final = "follower:"
_WATCHED: Final = ("uuid", "envelope", "body")
_BEHIND: Final = text("SELECT DISTINCT stream_no FROM instep_unprojected WHERE name = :name")
_FORGET: Final = tuple(
    text(f"DELETE FROM {table} WHERE name = :name")
    for table in ("instep_unprojected", "instep_projection_error")
)


class ReferenceColumn(msgspec.Struct, frozen=True):
    """A table with uuids of other entities."""

    table: str
    key: tuple[str, ...]
    column: str


class Follower(msgspec.Struct, frozen=True):
    """Whoever derives rows from the entities of some classes."""

    name: str
    classes: tuple[str, ...]
    """Empty: all."""
    tables: tuple[str, ...]
    """With the rows of an entity, which go with it."""
    targets: tuple[ReferenceColumn, ...] = ()


_decode: Final = msgspec.json.Decoder(Follower).decode


def has_all_triggers(connection: Connection) -> bool:
    """Whether the triggers are those of this version."""
    return definitions(connection).get(_TRIGGERS) == _VERSION


def set_followers(
    connection: Connection, dialect: Dialect, added: Sequence[Follower], removed: Collection[str]
) -> None:
    """Let these follow the entities from now on, and those no longer. Their tables exist; all
    entities count as changed for what is added.
    """
    for name in (*removed, *(one.name for one in added)):
        define(connection, _FOLLOWER + name, None)
        for forget in _FORGET:
            connection.execute(forget, {"name": name})
    for one in added:
        define(connection, _FOLLOWER + one.name, msgspec.json.encode(one).decode())
    found = definitions(connection)
    followers = [_decode(found[name]) for name in sorted(found) if name.startswith(_FOLLOWER)]
    triggers = _triggers(followers, dialect)
    # Those of before delete from tables that may be gone.
    dialect.drop_triggers(connection, triggers)
    if followers:
        dialect.create_triggers(connection, [one for one in triggers if one.statements])
    define(connection, _TRIGGERS, _VERSION)
    # Nothing is written between the triggers and this: they lock the entities.
    for one in added:
        mark_all_changed(connection, one)


def mark_all_changed(connection: Connection, follower: Follower) -> None:
    """Let all entities of its classes count as changed."""
    connection.exec_driver_sql(_note(follower, "instep_entity"))


def streams_behind(connection: Connection, name: str) -> Sequence[int]:
    """The streams with entities of which nothing was derived since they changed."""
    return connection.execute(_BEHIND, {"name": name}).scalars().all()


def _triggers(followers: Sequence[Follower], dialect: Dialect) -> list[Trigger]:
    noted = ("stream_no", "id", "class")
    gone = ("stream_no", "id", "uuid")
    removed_from = ["instep_projection_error", "instep_unprojected"]
    removed_from += [table for one in followers for table in one.tables]
    removals = [
        f"DELETE FROM {quoted(table)} WHERE entity_id IN (SELECT o.id FROM {{old}} AS o)"
        for table in removed_from
    ]
    lost = [_reset(target, dialect) for one in followers for target in one.targets]
    of_class = [one for one in followers if one.classes]
    return [
        Trigger(
            "instep_followed_inserted",
            "instep_entity",
            TriggerEvent.INSERT,
            noted,
            tuple(_note(one, "{new}") for one in followers),
        ),
        Trigger(
            "instep_followed_updated",
            "instep_entity",
            TriggerEvent.UPDATE,
            noted,
            tuple(_note(one, "{new}") for one in followers),
            _WATCHED,
        ),
        # The rows of the class that an entity no longer has go with it.
        Trigger(
            "instep_followed_renamed",
            "instep_entity",
            TriggerEvent.UPDATE,
            noted,
            tuple(_note(one, rows) for one in of_class for rows in ("{new}", "{old}")),
            ("class",),
        ),
        Trigger(
            "instep_followed_deleted",
            "instep_entity",
            TriggerEvent.DELETE,
            gone,
            (*removals, *lost),
        ),
    ]


def _note(follower: Follower, rows: str) -> str:
    """Its classes are constants: to look them up for each row costs as much as to write the row,
    and SQLite makes a list of `IN` anew for each.
    """
    classes = " OR ".join(f"n.class = {_literal(one)}" for one in sorted(follower.classes))
    return (
        "INSERT INTO instep_unprojected (stream_no, name, entity_id) "
        f"SELECT n.stream_no, {_literal(follower.name)}, n.id FROM {rows} AS n "
        f"WHERE {classes or '1 = 1'} ON CONFLICT DO NOTHING"
    )


def _reset(target: ReferenceColumn, dialect: Dialect) -> str:
    """Rows whose target has gone are without it since then. Those that another transaction has
    locked are being written: their time is about now anyway.
    """
    key = ", ".join(map(quoted, target.key))
    unlocked = dialect.skip_locked.replace("UPDATE", "UPDATE OF held")
    held = ", ".join(f"held.{quoted(name)}" for name in target.key)
    return f"""
        UPDATE {quoted(target.table)} SET since_us = (
            SELECT max(s.updated_at_us) FROM {{old}} AS o
            JOIN instep_stream AS s ON s.id = o.stream_no)
        WHERE ({key}) IN (
            SELECT {held} FROM {quoted(target.table)} AS held
            JOIN {{old}} AS o ON o.uuid <> '' AND o.uuid = held.{quoted(target.column)}
            JOIN instep_stream AS s ON s.id = o.stream_no
            JOIN instep_stream AS other
              ON other.id = held.stream_no AND other.consumer = s.consumer
            {unlocked})
    """


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))
