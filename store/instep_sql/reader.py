"""Read access to a store: streams, entities, changes and quarantine, in pages of bounded memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, Unpack

import msgspec
from sqlalchemy import Connection, Row, text

from instep.conformance import ConformanceReport
from instep.coordination.lease import LeaseState
from instep.errors import JournalOffError, SinkError
from instep.model.entities import (
    Change,
    ChangeKind,
    EntityCount,
    JournalEnd,
    Quarantined,
    StoredEntity,
    StreamStatus,
)
from instep.model.freshness import Freshness
from instep.model.records import RecordChunk
from instep.model.streams import Retirement, SweepEstimate
from instep.ports.reader import Follower, LeaseReader, RetirementReader, StoreReader, SweepReader
from instep_sql import fencing
from instep_sql.derived.reading import pages_of
from instep_sql.engine import schema
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import json_array
from instep_sql.engine.registry import dialect_of
from instep_sql.entities import quarantine, streams, sweep_approvals
from instep_sql.entities.journal_epochs import JournalEpochs, read_epochs
from instep_sql.entities.uuid_case import spellings
from instep_sql.handlers.failed_changes import (
    FailedChange,
    HandlerStatus,
    drop,
    failed_changes,
    retry,
    statuses,
)
from instep_sql.journal_tail import JournalTail
from instep_sql.messages import reading
from instep_sql.messages.reading import MessageReading
from instep_sql.names import check_name
from instep_sql.options import SqlOptions
from instep_sql.proof_sql import IS_UNPROVEN, PROOF_COLUMNS, PROOF_JOIN
from instep_sql.status_rows import (
    CONFORMANCE,
    FOLLOWERS,
    SAMPLES,
    SCOPES,
    STREAMS,
    UNCOUNTED_STREAMS,
    stream_statuses,
)
from instep_sql.stored_changes import stored_change
from instep_sql.stored_entities import stored_entity

if TYPE_CHECKING:
    from instep.runtime.subscription import Subscription, SubscriptionOptions

__all__ = ["ProjectionError", "SqlReader", "now_us"]

T = TypeVar("T")

_decode_report: Final = msgspec.json.Decoder(ConformanceReport).decode
_PAGE_RECORDS: Final = 500
_FOLLOW_POLL_S: Final = 0.2
_SAFETY_POLL_S: Final = 1.0
"""The same where the database notifies of commits: a pooler may pass no notification on."""

_COUNTS: Final = text("""
    SELECT s.consumer, s.stream, e.class AS name, count(*) AS entities
    FROM instep_entity AS e JOIN instep_stream AS s ON s.id = e.stream_no
    WHERE :stream = '' OR s.stream = :stream
    GROUP BY s.consumer, s.stream, e.class ORDER BY s.consumer, s.stream, e.class
""")
_PAGE: Final = """
    SELECT t.*, {owner.consumer} AS consumer, {owner.stream} AS stream {owner.more}
    FROM {table} AS t {owner.join}
    WHERE t.{id} > :after {conditions} ORDER BY t.{id} LIMIT :size
"""


_PUBLISHED: Final = text("SELECT cursor, epoch FROM instep_publisher WHERE name = :name")
_KEEP_PUBLISHED: Final = text("""
    INSERT INTO instep_publisher VALUES (:name, :cursor, :epoch, :now_us)
    ON CONFLICT (name) DO UPDATE
    SET cursor = excluded.cursor, epoch = excluded.epoch, updated_at_us = excluded.updated_at_us
""")
_REFUSED: Final = text("""
    SELECT p.name, s.consumer, s.stream, e.key, e.class, p.reason, p.since_us
    FROM instep_projection_error AS p JOIN instep_entity AS e ON e.id = p.entity_id
    JOIN instep_stream AS s ON s.id = p.stream_no
    ORDER BY p.since_us DESC, p.entity_id LIMIT :limit
""")


class ProjectionError(msgspec.Struct, frozen=True):
    """A row that is missing in a projected table, because the table cannot hold it."""

    table: str
    consumer: str
    stream: str
    key: str
    entity_class: str
    reason: str
    since_us: int


class _Owner(NamedTuple):
    """SQL expressions for the owner of a row `t`: its consumer and its stream."""

    join: str
    consumer: str = "s.consumer"
    stream: str = "s.stream"
    more: str = ""
    """Further columns."""


_OF_STREAM: Final = _Owner("JOIN instep_stream AS s ON s.id = t.stream_no")
_OF_STREAM_WITH_PROOF: Final = _Owner(_OF_STREAM.join + PROOF_JOIN, more=f", {PROOF_COLUMNS}")
# The quarantine holds records of a stream and messages of a receiver; for messages, the scope is
# shown as the stream.
_OF_STREAM_OR_RECEIVER: Final = _Owner(
    """LEFT JOIN instep_stream AS s ON s.id = t.stream_no
       LEFT JOIN instep_receiver AS r ON r.id = t.receiver_no""",
    consumer="coalesce(s.consumer, r.consumer)",
    stream="coalesce(t.scope, s.stream)",
)


_KEPT: Final = text("""
    SELECT (SELECT min(cursor) FROM instep_change) AS oldest,
           NOT EXISTS (SELECT 1 FROM instep_stream WHERE kind = 'stream' AND journal <> 'off')
           AND (EXISTS (SELECT 1 FROM instep_stream WHERE kind = 'stream')
                OR EXISTS (SELECT 1 FROM instep_receiver)) AS off
""")


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000


class SqlReader(MessageReading, SweepReader, RetirementReader, LeaseReader, StoreReader):
    """Reads a store while its consumer writes; see `StoreReader`. Raises `SinkError`.

    It reads in pages, in the order of arrival. An entity that exists the whole time is shown once;
    an entity that is created or removed meanwhile may be shown or not. No page holds a transaction
    open.
    """

    def __init__(
        self,
        options: SqlOptions,
        *,
        clock_us: Callable[[], int],
        database: Database | None = None,
    ) -> None:
        self._options = options
        self._dialect = dialect_of(options)
        self._clock_us = clock_us
        self._shared = database is not None
        self.database = database or Database(self._dialect.reader, self._dialect, "reader")
        self._checked = False
        self._notifications = self._dialect.notifications()
        self._notified = -1
        self._tail = JournalTail(self.journal_end, self._changes_after, self._pause)
        self._follow_poll_s = _FOLLOW_POLL_S if self._notifications is None else _SAFETY_POLL_S

    async def streams(self) -> list[StreamStatus]:
        """The committed status of all streams of all consumers."""
        return await self._streams(STREAMS)

    async def freshness(self) -> list[Freshness]:
        """See `StoreReader`."""
        return [one.freshness for one in await self._streams(UNCOUNTED_STREAMS)]

    async def followers(self) -> dict[str, Follower]:
        """See `StoreReader`."""
        query = text(FOLLOWERS.format(now_us=self._dialect.now_us))
        rows = await self._fetch(lambda connection: connection.execute(query).all())
        return {
            row.consumer: Follower(max(0.0, row.silent_us / 1e6), row.stale_after_s) for row in rows
        }

    async def conformance(self) -> dict[str, ConformanceReport]:
        """See `StoreReader`."""
        rows = await self._fetch(lambda connection: connection.execute(text(CONFORMANCE)).all())
        return {row.consumer: _decode_report(row.report) for row in rows}

    async def _streams(self, query: str) -> list[StreamStatus]:
        queries = (query.format(now_us=self._dialect.now_us), SCOPES, SAMPLES)

        def find(connection: Connection) -> list[StreamStatus]:
            return stream_statuses(*(connection.execute(text(one)).all() for one in queries))

        return await self._fetch(find)

    async def entities(
        self,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        entity_class: str | None = None,
        key: str | None = None,
        unproven: bool = False,
    ) -> AsyncIterator[StoredEntity]:
        """Iterate over the entities, in the order of their first commit; only the `unproven`. A
        `key` that is a uuid may be in upper or lower case.
        """
        wanted = {
            "consumer": ("s.consumer", consumer),
            "stream": ("s.stream", stream),
            "class": ("t.class", entity_class),
            "key": ("t.key", None if key is None else spellings(key)),
        }
        owner, only = _OF_STREAM_WITH_PROOF, f" AND {IS_UNPROVEN}" if unproven else ""
        async for row in self._pages("instep_entity", "id", 0, wanted, owner, also=only):
            yield stored_entity(row)

    async def count_entities(self, *, stream: str | None = None) -> list[EntityCount]:
        """See `StoreReader`."""
        values = {"stream": stream or ""}
        rows = await self._fetch(lambda connection: connection.execute(_COUNTS, values).all())
        return [
            EntityCount(
                consumer=row.consumer,
                stream=row.stream,
                entity_class=row.name,
                entities=row.entities,
            )
            for row in rows
        ]

    async def changes(
        self,
        cursor: int = 0,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        entity_class: str | None = None,
        change: ChangeKind | None = None,
        follow: bool = False,
        epoch: str = "",
    ) -> AsyncIterator[Change]:
        """Iterate over the journal after `cursor`, in the order of the commits; 0 begins with the
        oldest change kept.

        With `follow` it waits for more changes and never ends by itself. Raises `JournalOffError`
        if no stream keeps a journal, `ChangesTrimmedError` if changes that are due are no longer
        kept, whenever retention passes the reader, and `JournalDivergedError` if the cursor is of
        another journal, whenever the database is restored or a lagging replica promoted: then read
        all entities again, and go on from a cursor taken before that.
        """
        wanted = {
            "consumer": ("s.consumer", consumer),
            "stream": ("s.stream", stream),
            "class": ("t.class", entity_class),
            "change": ("t.change", change and change.value),
        }
        chosen = any(value is not None for _, value in wanted.values())
        seen = -1
        at = JournalEnd(cursor, epoch)
        epochs = JournalEpochs(0, None, [], [])

        def check(connection: Connection, after: int) -> None:
            nonlocal epochs
            epochs = self._check_kept(connection, JournalEnd(after, at.epoch))

        while True:
            # What is left out moves the cursor, too: else it would be looked at again each time,
            # and fall behind what is kept.
            newest = await self.journal_end() if chosen else at
            async for row in self._pages("instep_change", "cursor", at.cursor, wanted, check=check):
                at = JournalEnd(row.cursor, epochs.of(row.cursor))
                yield stored_change(row, at.epoch)
            if newest.cursor > at.cursor:
                at = newest
            if not follow:
                return
            seen = await self.wait_for_change(seen, self._follow_poll_s)

    async def wait_for_change(self, seen: int, poll_s: float) -> int:
        """See `StoreReader`. All who wait share one look, and one notification."""
        return await self._tail.wait(seen, poll_s)

    async def join_followers(self) -> None:
        """See `StoreReader`. The first one begins to look; it and all others find the newest."""
        await self._tail.join()

    def recent_changes(self, at: JournalEnd) -> tuple[Sequence[Change], JournalEnd] | None:
        """See `StoreReader`."""
        return self._tail.after(at)

    def subscribe(
        self, cursor: int | str = 0, *, epoch: str = "", **chosen: Unpack[SubscriptionOptions]
    ) -> Subscription:
        """A `Subscription` to the changes after this cursor or place. All subscriptions of a reader
        share one look at the journal: a thousand that wait cost what one costs.
        """
        # Here: it imports what retries, and a command that reads once needs nothing of that.
        from instep.runtime.subscription import Subscription  # noqa: PLC0415 - see above

        return Subscription(self, cursor, epoch=epoch, **chosen)

    async def _changes_after(self, at: JournalEnd, most: int) -> Sequence[Change]:
        found: list[Change] = []
        async for change in self.changes(at.cursor, epoch=at.epoch):
            found.append(change)
            if len(found) == most:
                break
        return found

    async def _pause(self, poll_s: float) -> None:
        if self._notifications is None:
            await asyncio.sleep(poll_s)
        else:
            self._notified = await self._notifications.wait(self._notified, poll_s)

    async def newest_cursor(self) -> int:
        """See `StoreReader`."""
        return (await self.journal_end()).cursor

    async def journal_end(self) -> JournalEnd:
        """See `StoreReader`."""

        def end(connection: Connection) -> JournalEnd:
            epochs = self._check_kept(connection, JournalEnd(0))
            return JournalEnd(epochs.newest, epochs.of(epochs.newest))

        return await self._fetch(end)

    def _check_kept(self, connection: Connection, after: JournalEnd) -> JournalEpochs:
        """Raise unless all changes after this one are kept."""
        kept = connection.execute(_KEPT).one()
        if kept.oldest is None and kept.off:
            raise JournalOffError(
                "the store keeps no journal of changes",
                where=self._dialect.where,
                hint='set journal = "changes" (or "bodies", "previous") in the sink\'s options',
            )
        epochs = read_epochs(connection, self._dialect)
        epochs.check(after.cursor, after.epoch, self._dialect.where)
        return epochs

    async def derived(
        self, name: str, query: str = "", /, **filters: Any
    ) -> AsyncIterator[Mapping[str, Any]]:
        """See `StoreReader`."""
        pages = pages_of(name, query, filters, self._dialect.where)
        last = False
        while not last:
            rows = await self._fetch(pages.fetch)
            for row in rows:
                yield dict(row._mapping)  # noqa: SLF001 — SQLAlchemy's public name for it
            last = pages.is_last(rows)

    async def quarantine(
        self,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        id: int | None = None,
    ) -> AsyncIterator[Quarantined]:
        """Iterate over the quarantine, oldest entry first; `id` selects one entry."""
        owner = _OF_STREAM_OR_RECEIVER
        wanted = {
            "consumer": (owner.consumer, consumer),
            "stream": (owner.stream, stream),
            "id": ("t.id", id),
        }
        async for row in self._pages("instep_quarantine", "id", 0, wanted, owner):
            yield Quarantined(
                id=row.id,
                stream=row.stream,
                reason=row.reason,
                token=row.token,
                received_at_us=row.received_at_us,
                raw=row.raw,
                consumer=row.consumer,
                replayed_at_us=row.replayed_at_us,
                times=row.times,
                last_at_us=row.last_at_us or row.received_at_us,
                key=row.key,
                digest="" if row.digest is None else bytes(row.digest).hex(),
                accepted_at_us=row.accepted_at_us,
            )

    async def replay(self, id: int, chunk: RecordChunk) -> int:
        """Commit the records that a quarantined record was decoded to, by rule A3. Returns the
        number of entities changed.

        The consumer's position and ordinal do not change, so it may be running. Raises `SinkError`
        if there is no such entry, or if it still cannot be read.
        """
        from instep_sql.entities.replay import replay  # noqa: PLC0415 — reading writes nothing

        if chunk.unreadable:
            raise SinkError(
                f"record {id} still cannot be read: {chunk.unreadable[0].reason}",
                where=self._dialect.where,
            )

        def work(connection: Connection) -> int:
            schema.migrate(connection, self._dialect)
            records = chunk.decode().records
            return replay(connection, self._dialect, self._options, id, records, self._clock_us())

        return await self._write(work)

    async def projection_errors(self, limit: int = 1_000) -> list[ProjectionError]:
        """The rows that projected tables could not hold, the newest first."""

        def find(connection: Connection) -> list[ProjectionError]:
            rows = connection.execute(_REFUSED, {"limit": limit})
            return [ProjectionError(*row) for row in rows]

        return await self._fetch(find)

    async def published(self, name: str) -> JournalEnd | None:
        """See `StoreReader`."""
        row = await self._fetch(
            lambda connection: connection.execute(_PUBLISHED, {"name": name}).one_or_none()
        )
        return None if row is None else JournalEnd(row.cursor, row.epoch)

    async def keep_published(self, name: str, at: JournalEnd) -> None:
        """See `StoreReader`."""
        check_name(name, "a publisher", self._dialect.where, "name")
        values = {"name": name, "cursor": at.cursor, "epoch": at.epoch, "now_us": self._clock_us()}

        def keep(connection: Connection) -> None:
            connection.execute(_KEEP_PUBLISHED, values)

        await self._write(keep)

    async def handlers(self) -> list[HandlerStatus]:
        """How far the handlers of changes have come, by name and stream."""
        return await self._fetch(statuses)

    async def failed_changes(self) -> AsyncIterator[FailedChange]:
        """The changes that handlers could not handle, the oldest first."""
        after = 0
        while True:
            page = partial(failed_changes, after=after, limit=_PAGE_RECORDS)
            found = await self._fetch(page)
            for one in found:
                yield one
                after = one.id
            if len(found) < _PAGE_RECORDS:
                return

    async def retry_change(self, id: int) -> bool:
        """Let its handler try a failed change again, in the process that has the handler, now or
        later. False: there is no such change.
        """
        return await self._write(partial(retry, id=id))

    async def drop_change(self, id: int) -> bool:
        """Forget a failed change for good: its handler goes on with the stream where it was
        blocked. False: there is no such change.
        """
        return await self._write(partial(drop, id=id))

    async def drop(self, ids: Sequence[int] | None = None, *, stream: str | None = None) -> int:
        """Delete entries of the quarantine: these, or all (of a stream). Returns their number."""

        def work(connection: Connection) -> int:
            schema.migrate(connection, self._dialect)
            reading.give_up_messages(connection, self._dialect, ids, stream, self._clock_us())
            return quarantine.drop(connection, ids, stream)

        return await self._write(work)

    async def accept(self, consumer: str, digest: str) -> int:
        """See `StoreReader`."""

        def work(connection: Connection) -> int:
            schema.migrate(connection, self._dialect)
            return quarantine.accept(connection, consumer, digest, self._clock_us())

        return await self._write(work)

    async def estimate_sweep(self, consumer: str, stream: str, attempt: int) -> SweepEstimate:
        """See `SweepReader`."""
        from instep_sql.entities.sweep import estimate_sweep  # noqa: PLC0415 — as for a replay

        def count(connection: Connection) -> SweepEstimate:
            row = streams.find(connection, consumer, stream)
            return (
                SweepEstimate(0, 0) if row is None else estimate_sweep(connection, row.no, attempt)
            )

        return await self._fetch(count)

    async def release_sweep(self, consumer: str, stream: str, attempt: int) -> None:
        """See `SweepReader`."""

        def work(connection: Connection) -> int:
            row = streams.find(connection, consumer, stream)
            if row is not None:
                sweep_approvals.approve(connection, self._dialect, row.no, attempt)
            return 0

        await self._write(work)

    async def retire(self, consumer: str, stream: str) -> Retirement:
        """See `RetirementReader`."""
        from instep_sql.entities.retirement import retire  # noqa: PLC0415 — as for a replay

        def work(connection: Connection) -> Retirement:
            schema.migrate(connection, self._dialect)
            now_us = self._clock_us()
            return retire(connection, self._dialect, self._options, consumer, stream, None, now_us)

        return await self._write(work)

    async def leases(self) -> dict[str, LeaseState]:
        """See `LeaseReader`."""
        return await self._fetch(fencing.leases)

    async def ask_to_hand_over(self, consumer: str) -> LeaseState:
        """See `LeaseReader`."""
        where = self._dialect.where
        return await self._write(
            lambda connection: fencing.ask_to_hand_over(connection, consumer, where)
        )

    def _migrate(self, connection: Connection) -> None:
        schema.migrate(connection, self._dialect)

    async def _write(self, work: Callable[[Connection], T]) -> T:
        if self._shared:
            return await self.database.run(work)
        await self._fetch(lambda _: None)
        writing = Database(self._dialect.writer, self._dialect, "quarantine")
        try:
            return await writing.run(work)
        finally:
            await writing.close()

    async def _pages(
        self,
        table: str,
        order: str,
        after: int,
        wanted: dict[str, tuple[str, Any]],
        owner: _Owner = _OF_STREAM,
        check: Callable[[Connection, int], None] | None = None,
        also: str = "",
    ) -> AsyncIterator[Row[Any]]:
        given = {name: value for name, (_, value) in wanted.items() if value is not None}
        conditions = also
        for name, value in given.items():
            if isinstance(value, set):
                conditions += f" AND {wanted[name][0]} IN {self._dialect.members(name)}"
                given[name] = json_array(value)
            else:
                conditions += f" AND {wanted[name][0]} = :{name}"
        query = _PAGE.format(table=table, id=order, conditions=conditions, owner=owner)
        async for row in self._paged(query, order, after, given, check):
            yield row

    async def _paged(
        self,
        query: str,
        order: str,
        after: int,
        given: dict[str, Any],
        check: Callable[[Connection, int], None] | None = None,
    ) -> AsyncIterator[Row[Any]]:
        """`check` is called after each page with what it began after, in one transaction."""
        for key, value in given.items():
            if key in {"consumer", "stream"} and isinstance(value, str):
                check_name(value, f"a {key}", self._dialect.where, key)
        found = text(query)

        def page(connection: Connection) -> Sequence[Row[Any]]:
            rows = connection.execute(found, {"after": after, "size": _PAGE_RECORDS, **given}).all()
            if check is not None:
                check(connection, after)
            return rows

        while True:
            rows = await self._fetch(page)
            for row in rows:
                yield row
            if len(rows) < _PAGE_RECORDS:
                return
            after = getattr(rows[-1], order)

    async def _fetch(self, work: Callable[[Connection], T]) -> T:
        def checked(connection: Connection) -> T:
            if not self._checked:
                schema.check_version(connection, self._dialect)
                self._checked = True
            return work(connection)

        return await self.database.run(checked)

    async def close(self) -> None:
        """Disconnect. A store in memory continues to exist with its writer."""
        await self._tail.close()
        if self._notifications is not None:
            await self._notifications.close()
        if not self._shared:
            await self.database.close()
