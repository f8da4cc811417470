"""What a store keeps besides the entities (what is derived, a user's own tables), by its name,
with the definition that it was built from.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

__all__ = [
    "define",
    "definition_of",
    "definitions",
    "is_kept",
]

_ALL: Final = text("SELECT name, definition FROM instep_projection")
_ONE: Final = text("SELECT definition FROM instep_projection WHERE name = :name")
_DEFINE: Final = text(
    "INSERT INTO instep_projection (name, definition) VALUES (:name, :definition)"
)
_FORGET: Final = text("DELETE FROM instep_projection WHERE name = :name")


def definition_of(connection: Connection, name: str) -> str | None:
    """What it was built from; None where the store does not keep it."""
    definition: str | None = connection.execute(_ONE, {"name": name}).scalar()
    return definition


def is_kept(connection: Connection, name: str) -> bool:
    """Whether the store keeps it."""
    return definition_of(connection, name) is not None


def definitions(connection: Connection) -> dict[str, str]:
    """The definition of all that is kept, by its name."""
    return {row.name: row.definition for row in connection.execute(_ALL)}


def define(connection: Connection, name: str, definition: str | None) -> None:
    """It is built from this definition from now on; None: it is no longer kept."""
    connection.execute(_FORGET, {"name": name})
    if definition is not None:
        connection.execute(_DEFINE, {"name": name, "definition": definition})
