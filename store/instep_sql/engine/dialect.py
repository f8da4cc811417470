"""What the store needs from one kind of database: everything that differs between them is behind
this.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection, Engine

from instep.errors import SinkError
from instep_sql.options import SqlOptions

__all__ = [
    "AttemptMark",
    "ChangeRow",
    "Dialect",
    "EndRow",
    "EntityRow",
    "FailureKind",
    "UnstorableError",
    "json_array",
]


AttemptMark = tuple[int, int, int]
"""stream_no, lineage, attempt: the same for all that one commit writes."""


EntityRow = tuple[str, str, str, str, int, int, str, bytes | bytearray, bytes | bytearray]
"""key, class, token, partition, offset, appended_at_us, uuid, envelope, body."""


EndRow = tuple[int, str, int, int, str, int, int]
"""stream_no, key, lineage, offset, partition, offset again, appended_at_us."""


ChangeRow = (
    tuple[str, str, str, int, str, int]
    | tuple[str, str, str, int, str, int, bytes | bytearray, bytes | bytearray | None]
)
"""key, class, change, kind, token, appended_at_us; with bodies also body, previous."""


class UnstorableError(SinkError):
    """A text holds a character that the database has no place for."""


class FailureKind(Enum):
    """What an error of the driver says of the transaction it ended."""

    FINAL = "final"
    """Rolled back; it would fail again."""
    RERUN = "rerun"
    """Rolled back because of others; the same again may do (serialization failure, deadlock)."""
    LOST = "lost"
    """The connection is gone. Rolled back, unless it was committing: then nobody knows."""


class Dialect(Protocol):
    """One kind of database."""

    where: str
    """The database as errors name it; without a password."""
    in_memory: bool
    """The database lives in its connection: readers have to share the writer's."""
    errors: tuple[type[Exception], ...]
    """What the driver raises."""
    skip_locked: str
    """SQL after a subquery that picks rows to delete: passes over those that others hold."""

    def __init__(self, options: SqlOptions) -> None: ...

    def writer(self) -> Engine:
        """An engine of one connection whose transactions may write; creates the database if need
        be.
        """
        ...

    def reader(self) -> Engine:
        """An engine of one connection that cannot write. Raises `SinkError` where there is no
        database.
        """
        ...

    def translate(self, error: BaseException) -> SinkError:
        """A driver's error in instep's terms: what, where, what to do, and whether trying again
        can help.
        """
        ...

    def failure_kind(self, error: BaseException) -> FailureKind:
        """Whether a transaction that ended so can be run again."""
        ...

    def lock_for_migration(self, connection: Connection) -> None:
        """Keep others from migrating at the same time, until the transaction ends."""
        ...

    def end_silent_holder(self, connection: Connection, consumer: str, lease_s: float) -> None:
        """Before the lease is taken: end what a holder that has fallen silent left open, and do not
        wait long for one that has not.
        """
        ...

    def members(self, parameter: str) -> str:
        """SQL for the set of strings in the JSON array bound to `:parameter`."""
        ...

    def upsert_entities(
        self, connection: Connection, mark: AttemptMark, rows: Sequence[EntityRow]
    ) -> int:
        """Write and mark entities unless a newer record is stored (A3); how many
        were.
        """
        ...

    def end_entities(self, connection: Connection, rows: Sequence[EndRow]) -> int:
        """Remove entities unless a newer record is stored (A3 and A4); how many were."""
        ...

    def add_changes(
        self, connection: Connection, no: int, now_us: int, rows: Sequence[ChangeRow]
    ) -> None:
        """Append to the journal, in order; with bodies, if the rows have them."""
        ...

    def execute_many(
        self, connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Run one statement (parameters as `?`) for each row; how many rows it changed in all."""
        ...


def json_array(values: Collection[str]) -> str:
    """The JSON array that `Dialect.members` reads."""
    return msgspec.json.encode(sorted(values)).decode()
