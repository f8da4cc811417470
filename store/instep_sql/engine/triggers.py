"""What the database does by itself whenever rows of a table are written, whoever writes them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["Trigger", "TriggerEvent"]


class TriggerEvent(StrEnum):
    """What is done to rows."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Trigger(msgspec.Struct, frozen=True):
    """Statements that run after rows of a table are written: for each row, or once for all rows of
    the statement that wrote them, as the database does it best.
    """

    name: str
    table: str
    event: TriggerEvent
    columns: tuple[str, ...]
    """What `statements` may read of a row."""
    statements: tuple[str, ...]
    """SQL, each of one statement. In it `{new}` stands for a relation of the rows as they are now,
    `{old}` of them as they were. Of an INSERT there is no `{old}`, of a DELETE no `{new}`.
    """
    watched: tuple[str, ...] = ()
    """Of an UPDATE: a row counts only where one of these columns changes, none of which is NULL."""

    def filled(self, new: str, old: str) -> list[str]:
        """The statements with these relations."""
        return [one.replace("{new}", new).replace("{old}", old) for one in self.statements]
