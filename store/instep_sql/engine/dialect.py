"""The interface between the store and one kind of database. Everything that differs between
databases is behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Protocol, overload

import msgspec
from sqlalchemy import Connection, Engine, text

from instep.errors import SinkError
from instep.model.records import RecordHeader
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.triggers import Trigger
from instep_sql.options import Journal, SqlOptions

__all__ = [
    "AttemptMark",
    "ChangeRow",
    "ColumnRows",
    "CommitNotifications",
    "Dialect",
    "EndRow",
    "EntityRow",
    "FailureKind",
    "StatedRow",
    "StoredRow",
    "UnstorableError",
    "UpdateRow",
    "Updates",
    "columns_of",
    "execute_parsed",
    "json_array",
    "shared_values",
]


AttemptMark = tuple[int, int, int]
"""stream_no, lineage, attempt: the same for all rows of one commit."""


EntityRow = tuple[str, str, str, str, int, int, str, bytes | bytearray, bytes | bytearray]
"""key, class, token, partition, offset, appended_at_us, uuid, envelope, body."""


class ColumnRows(Sequence[Any]):
    """Rows that are held column by column. Who iterates over them once makes no tuple that stays:
    to make 20,000 and collect them again costs a tenth of a commit.
    """

    def __init__(self, *columns: Sequence[Any]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> ColumnRows: ...
    def __getitem__(self, index: int | slice) -> tuple[Any, ...] | ColumnRows:
        if isinstance(index, slice):
            return ColumnRows(*[column[index] for column in self.columns])
        return tuple([column[index] for column in self.columns])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.columns, strict=True)


def columns_of(rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """The columns of these rows, at least one."""
    if isinstance(rows, ColumnRows):
        return rows.columns
    # `zip(*rows)` makes an iterator for each row, and the garbage collector runs twice as often.
    return [list(map(itemgetter(at), rows)) for at in range(len(rows[0]))]


_SHARED_COLUMNS: Final = frozenset({"class", "partition", "uuid", "change", "kind"})
"""These columns nearly always have one value in all rows of a batch."""


def shared_values(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The value of each of `_SHARED_COLUMNS` that has one in all rows: it can be sent once."""
    return {
        name: column[0]
        for name, column in columns.items()
        if name in _SHARED_COLUMNS and column.count(column[0]) == len(column)
    }


EndRow = tuple[int, str, int, int, str, int, int]
"""stream_no, key, lineage, offset, partition, offset again, appended_at_us."""


ChangeRow = (
    tuple[str, str, str, int, str, int, bytes | bytearray]
    | tuple[
        str, str, str, int, str, int, bytes | bytearray, bytes | bytearray, bytes | bytearray | None
    ]
)
"""key, class, change, kind, token, appended_at_us, envelope; with bodies also body, previous."""


StatedRow = tuple[str, bytes | bytearray, bytes | bytearray]
"""key, envelope, body."""


UpdateRow = tuple[str, str, str, int, int, bytes | bytearray, bytes | bytearray]
"""key, class, token, offset, appended_at_us, envelope, body."""


class Updates(msgspec.Struct, frozen=True):
    """Updates of one lineage and partition, of which no key has two."""

    stream_no: int
    lineage: int
    partition: str
    event_classes: Collection[str]
    rows: Sequence[UpdateRow]


class StoredRow(RecordHeader, frozen=True, gc=False, array_like=True):
    """A stored entity beside what is stated of it."""

    entity_class: str = ""
    lineage: int = 0
    same_envelope: bool = False
    same_body: bool = False


class UnstorableError(SinkError):
    """A text contains a character that the database cannot store."""


class FailureKind(Enum):
    """What an error of the driver means for the transaction that it ended."""

    FINAL = "final"
    """Rolled back; a second run would fail too."""
    RERUN = "rerun"
    """Rolled back because of a concurrent transaction; a second run may succeed (serialization
    failure, deadlock).
    """
    LOST = "lost"
    """The connection is lost. Rolled back, unless the COMMIT was under way: then the outcome is
    unknown.
    """
    UNANSWERED = "unanswered"
    """As `LOST`, and found by waiting: a second run would wait as long before anybody is told."""

    @property
    def is_disconnect(self) -> bool:
        """Whether the connection is of no use any more."""
        return self in {FailureKind.LOST, FailureKind.UNANSWERED}


class CommitNotifications(Protocol):
    """Tells who follows the journal that there may be more of it."""

    async def wait(self, seen: int, within_s: float) -> int:
        """Wait until there were more notifications than `seen`, at most so many seconds. Returns
        their number.
        """

    async def close(self) -> None:
        """Disconnect."""


class Dialect(Protocol):
    """One kind of database."""

    where: str
    """The name of the database in errors, without a password."""
    in_memory: bool
    """The database exists only in its connection, so readers must share the writer's connection."""
    errors: tuple[type[Exception], ...]
    """The exceptions that the driver raises."""
    for_update: str
    """SQL that ends a query of rows which the transaction writes next."""
    newest_cursor: str
    """SQL for the newest cursor that was ever given to a change, also if that was trimmed."""
    now_us: str
    """SQL for the time of the database, in microseconds since 1970."""
    short_integers: bool
    """Whether a column of type INTEGER has 32 bits."""
    skip_locked: str
    """SQL that ends a subquery which selects rows to delete: it skips rows that others
    have locked.
    """

    def __init__(self, options: SqlOptions) -> None: ...

    def writer(self) -> Engine:
        """An engine of one connection that may write; creates the database if it does not exist."""
        ...

    def reader(self) -> Engine:
        """An engine of one connection that cannot write. Raises `SinkError` if there is no
        database.
        """
        ...

    def begin(self, connection: Connection) -> Callable[[], None]:
        """Begin a transaction. Returns what commits it."""
        ...

    def notifications(self) -> CommitNotifications | None:
        """What tells of commits by other processes; None where the database cannot."""
        ...

    def translate(self, error: BaseException, failure_kind: FailureKind) -> SinkError:
        """Translate a driver's error of this kind: what failed, where, what to do, and whether a
        retry can help.
        """
        ...

    def failure_kind(self, error: BaseException, connection: Connection | None) -> FailureKind:
        """Whether the transaction that ended with this error can be run again. `connection`: the
        one that it ran on, not closed yet; None: none could be made.
        """
        ...

    def no_store_hint(self, connection: Connection) -> str:
        """What to look at where a database holds no store."""
        ...

    def cannot_mean(self, error: BaseException) -> bool:
        """Whether no run of the statement can succeed: a name that is too long or taken, a type
        that does not exist, too many columns.
        """
        ...

    def lock_for_migration(self, connection: Connection) -> None:
        """Lock out concurrent migrations until the transaction ends."""
        ...

    def end_silent_holder(self, connection: Connection, consumer: str, lease_s: float) -> None:
        """Before the lease is taken: end a transaction that a silent holder has left open, and
        bound the wait for a holder that is still active (`lease_s` in seconds).
        """
        ...

    def members(self, parameter: str) -> str:
        """SQL for the set of strings in the JSON array bound to `:parameter`."""
        ...

    def shown(self, expression: str, shown_as: str) -> str:
        """SQL for a value as a view shows it (`ViewColumn.shown_as`)."""
        ...

    def begins_with(self, column: str, parameter: str) -> str:
        """SQL for whether a text begins with the one bound to `:parameter`, character by
        character.
        """
        ...

    def update_statistics(self, connection: Connection, table: str) -> None:
        """Tell the planner that the table has grown, where it would not see it by itself."""
        ...

    def grant_reading(
        self, connection: Connection, roles: Sequence[str], tables: Sequence[str]
    ) -> None:
        """Let these roles read these tables and views; does nothing where a database has no roles.
        Raises `ConfigurationError` for a role that does not exist.
        """
        ...

    def create_triggers(self, connection: Connection, triggers: Sequence[Trigger]) -> None:
        """Create them; none of their names is taken."""
        ...

    def drop_triggers(self, connection: Connection, triggers: Sequence[Trigger]) -> None:
        """Drop those that exist, by their names and tables."""
        ...

    def insert_rows(
        self,
        connection: Connection,
        table: StoredTable,
        rows: Sequence[tuple[Any, ...]],
        *,
        ignore_existing: bool = False,
    ) -> int:
        """Insert the rows, in order. `ignore_existing`: a row whose key is stored, or is that of a
        row before it, is left out. Returns how many were inserted.
        """
        ...

    def upsert_rows(
        self, connection: Connection, table: StoredTable, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Insert the rows, in order, and update those whose key is stored; no key may be there
        twice. Returns how many were written: see `StoredTable.updated`.
        """
        ...

    def delete_rows(
        self,
        connection: Connection,
        table: StoredTable,
        rows: Sequence[tuple[Any, ...]],
        columns: Sequence[str] = (),
    ) -> int:
        """Delete what equals one of the rows in these columns (by default, in those of the key),
        none of which is None. Returns how many were deleted.
        """
        ...

    def upsert_entities(
        self,
        connection: Connection,
        mark: AttemptMark,
        rows: Sequence[EntityRow],
        *,
        keys_are_uuids: bool = False,
        of_class: bool = False,
    ) -> int:
        """Write and mark the entities for which no newer record is stored (A3). Returns how many
        were written. `keys_are_uuids`: the uuid of a stored row never changes. `of_class`: a row
        of another class stays as it is (A13).
        """
        ...

    def end_entities(self, connection: Connection, rows: Sequence[EndRow]) -> int:
        """Remove the entities for which no newer record is stored (A3, A4). Returns how many were
        removed.
        """
        ...

    def compare(
        self, connection: Connection, no: int, rows: Sequence[StatedRow]
    ) -> Sequence[StoredRow]:
        """What is stored of the entities with these keys, beside what is stated of them. No body
        leaves the database. A key that is not stored has no row.
        """
        ...

    def add_changes(
        self, connection: Connection, no: int, now_us: int, rows: Sequence[ChangeRow]
    ) -> None:
        """Append the rows to the journal, in order; with bodies if the rows have them."""
        ...

    def add_differing(
        self, connection: Connection, updates: Updates, now_us: int, mode: Journal
    ) -> int:
        """Compare the updates with what is stored, and append those that are changes to the
        journal, in order. Returns how many: see `append_sql` for what is passed over.
        """
        ...

    def execute(
        self, connection: Connection, statement: str, values: Mapping[str, Any]
    ) -> Sequence[Sequence[Any]]:
        """Run a statement of the hot path (parameters as `:name`); the rows that it returns."""
        ...

    def execute_many(
        self, connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Run one statement (parameters as `?`) for each row. Returns how many rows were changed in
        all.
        """
        ...


_parsed: Final = lru_cache(maxsize=256)(text)


def execute_parsed(
    connection: Connection, statement: str, values: Mapping[str, Any]
) -> Sequence[Sequence[Any]]:
    """`Dialect.execute` by SQLAlchemy, which reads the text of a statement once."""
    result = connection.execute(_parsed(statement), values)
    return result.all() if result.returns_rows else ()


def json_array(values: Collection[str]) -> str:
    """The JSON array that `Dialect.members` reads."""
    return msgspec.json.encode(sorted(values)).decode()
