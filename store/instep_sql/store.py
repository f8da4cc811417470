"""The SQL sink: entities and the position they came from, in one transaction."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Self

import msgspec
from sqlalchemy import Connection, text

from instep.alignment.unknown_entities import changes_met
from instep.conformance import ConformanceReport
from instep.errors import SinkError
from instep.model.batches import Batch, CommitResult
from instep.model.entities import Change, ChangeKind
from instep.model.freshness import StreamReport
from instep.model.position import Position
from instep.model.streams import Retirement, StreamInfo, SweepEstimate
from instep.ports.sink import Sink
from instep_sql import fencing
from instep_sql.audit.marks import SqlAuditMarks
from instep_sql.derived import keeper
from instep_sql.engine import access, schema
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import UnstorableError
from instep_sql.engine.registry import dialect_of
from instep_sql.entities import commit, retirement, streams, sweep_approvals, unproven
from instep_sql.entities.journal import append_stored
from instep_sql.entities.lookups import SqlEntityRows
from instep_sql.entities.quarantine import split_storable
from instep_sql.entities.shared_keys import SharedKeyError
from instep_sql.entities.streams import StreamRow, StreamTransaction
from instep_sql.entities.sweep import estimate_sweep
from instep_sql.fencing import SqlLease
from instep_sql.freshness_rows import FreshnessReporter
from instep_sql.handlers.handler import ChangeHandler
from instep_sql.handlers.runner import HandlerRunner
from instep_sql.messages.message_store import SqlMessageStore
from instep_sql.names import LONGEST_CONSUMER_BYTES, LONGEST_STREAM_BYTES, check_name
from instep_sql.options import Journal, SqlOptions
from instep_sql.projections import maintenance as projected
from instep_sql.projections.foreign_keys import in_order
from instep_sql.projections.projection import Projection
from instep_sql.projections.ready import ready_projection
from instep_sql.reader import SqlReader, now_us

__all__ = ["SqlStore"]

_CONFORMANCE: Final = text("""
    INSERT INTO instep_conformance VALUES (:consumer, :report)
    ON CONFLICT (consumer) DO UPDATE SET report = excluded.report
""")


class SqlStore(Sink):
    """A sink that stores in a SQL database; implements `instep.ports.sink.Sink`.

    Promised:

    - A commit is atomic, whatever is cancelled or killed, and the position is never ahead of the
      entities (A1).
    - Rule A3 holds for each entity.
    - If two processes commit on one stream of one consumer, one of them gets `FencedError`. With
      `lease_s`, a process without the lease gets `LeaseLostError` for every write.
    - Several consumers, streams and processes may share a database.

    Not promised: order between streams; that a reader sees the whole store in one snapshot.

    The keyword arguments are those of `SqlOptions` and of each derivation; `projections` are tables
    of the user, or names of ready ones; `handlers` are given each change in the transaction that
    commits it. Raises `ConfigurationError` for wrong options.
    """

    def __init__(
        self,
        url: str,
        *,
        clock_us: Callable[[], int] = now_us,
        projections: Sequence[Projection | str] = (),
        handlers: Sequence[ChangeHandler] = (),
        **options: Any,
    ) -> None:
        named = [one for one in projections if isinstance(one, str)]
        self.options = SqlOptions.read({"url": url, "projections": named, **options}, "SqlStore")
        self._projections = in_order(
            ready_projection(one) if isinstance(one, str) else one for one in projections
        )
        self._beside_others = bool(self._projections or handlers)
        self._dialect = dialect_of(self.options)
        self._clock_us = clock_us
        self._consumer: str | None = None
        self._streams: dict[str, StreamRow] = {}
        self._database = Database(self._dialect.writer, self._dialect, "writer")
        self._handlers = HandlerRunner(
            handlers, self._database, self._dialect, self.options, clock_us, random.Random()
        )
        self._reader: SqlReader | None = None
        self._lease: SqlLease | None = None
        self._kept = keeper.EnabledDerivations()
        self._freshness_reporter = FreshnessReporter()
        if self.options.lease_s is not None:
            self._lease = SqlLease(
                self._database,
                lambda: self.reader.database,
                self._dialect,
                consumer=lambda: self._name,
                clock_us=clock_us,
                lease_s=self.options.lease_s,
                holder=self.options.holder,
            )

    @property
    def reader(self) -> SqlReader:
        """A reader of the store: with a connection of its own, or in a store in memory with the
        only one.
        """
        if self._reader is None:
            shared = self._database if self._dialect.in_memory else None
            self._reader = SqlReader(self.options, clock_us=self._clock_us, database=shared)
        return self._reader

    def changes(
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
        """The journal after `cursor`; see `SqlReader.changes`."""
        return self.reader.changes(
            cursor,
            consumer=consumer,
            stream=stream,
            entity_class=entity_class,
            change=change,
            follow=follow,
            epoch=epoch,
        )

    @property
    def latest_only(self) -> bool:
        """See `Sink`: only the journal and what is derived from statements need every record."""
        return self.options.journal is Journal.OFF and not self._kept.statements

    @property
    def marks_keys(self) -> bool:
        """See `Sink`."""
        return True

    @property
    def several_processes(self) -> bool:
        """See `Sink`: they share a file or a server, but no memory."""
        return not self._dialect.in_memory

    @property
    def lease(self) -> SqlLease | None:
        """See `Sink`. With `lease_s`, a process that does not hold the lease cannot write."""
        return self._lease

    async def open(self, consumer: str) -> None:
        """Connect, create or upgrade the schema. Raises `SinkError` (`StoreVersionError` for a
        newer one), and `ConfigurationError` for a name that no database keeps.
        """
        check_name(consumer, "a consumer", self._dialect.where, "name", LONGEST_CONSUMER_BYTES)
        self._consumer = consumer
        self._streams.clear()
        self._freshness_reporter.forget()

        def work(connection: Connection) -> None:
            schema.migrate(connection, self._dialect, beside_others=self._beside_others)
            now_us = self._clock_us()
            keeper.keep_derivations(connection, self._dialect, self.options, consumer, now_us)
            self._kept = keeper.enabled_derivations(connection, consumer)
            projected.keep(connection, self._dialect, self._projections, now_us)
            if self.options.class_index is not None:
                access.keep_class_index(connection, wanted=self.options.class_index)
            if self.options.readers:
                tables = [projection.name for projection in self._projections]
                tables += keeper.public_views(connection)
                readable = (*access.PUBLIC_VIEWS, *tables)
                self._dialect.grant_reading(connection, self.options.readers, readable)

        await self._database.run(work, guarded=False)
        self._handlers.open(consumer)

    async def rebuild_projections(self) -> dict[str, int]:
        """Fill the tables of all declared projections again from the stored entities, in one
        transaction. It is never needed, but after someone else has written into them. Returns the
        number of rows of each, by its name.
        """

        def work(connection: Connection) -> dict[str, int]:
            now_us = self._clock_us()
            return projected.rebuild(connection, self._dialect, self._projections, now_us)

        # No entity is written: whoever has the lease may go on beside it.
        return await self._database.run(work, guarded=False)

    async def known_streams(self) -> list[StreamInfo]:
        """See `Sink`."""
        return await self._database.run(lambda connection: streams.known(connection, self._name))

    async def position(self, stream: StreamInfo) -> Position:
        """The committed position of the stream. Stores the stream's description for readers.
        Raises `ConfigurationError` for an id that no database keeps.
        """
        self._check_stream(stream.id)
        return await self._database.run(lambda connection: self._enter(connection, stream))

    async def identities(self, stream: str) -> frozenset[int]:
        """See `Sink`."""
        return await self.reader.database.run(
            lambda connection: retirement.identities(connection, self._name, stream)
        )

    async def mark_offered(self, stream: str, *, offered: bool) -> None:
        """See `Sink`."""

        def mark(connection: Connection) -> None:
            fencing.lock_stream(connection, self._name, stream)
            row = streams.find(connection, self._name, stream)
            now_us = self._clock_us()
            if row is not None and bool(row.not_offered_since_us) is offered:
                streams.mark_offered(connection, row.no, 0 if offered else now_us)
                self._note_offered(connection, row, now_us, offered=offered)

        await self._database.run(mark)

    def _note_offered(
        self, connection: Connection, row: StreamRow, now_us: int, *, offered: bool
    ) -> None:
        tx = StreamTransaction(connection, self._dialect, row.no, now_us, self.options, row)
        unproven.note_offered(tx, offered=offered)

    async def retire(self, stream: str, *, proven_by: Collection[str] | None = None) -> Retirement:
        """See `Sink`."""

        def work(connection: Connection) -> Retirement:
            done = retirement.retire(
                connection,
                self._dialect,
                self.options,
                self._name,
                stream,
                proven_by,
                self._clock_us(),
                self._projections,
            )
            row = self._streams.get(stream)
            if row is not None:
                self._handlers.deliver(connection, row.no, self._clock_us())
            return done

        done = await self._database.run(work)
        self._streams.pop(stream, None)
        return done

    def _enter(self, connection: Connection, stream: StreamInfo) -> Position:
        info, journal = streams.dump_info(stream), self.options.journal
        now = self._clock_us()
        fencing.lock_stream(connection, self._name, stream.id)
        row = streams.find(connection, self._name, stream.id)
        if row is None:
            row = streams.insert(connection, self._name, stream.id, info, journal, now)
        elif row.info != info or row.journal != journal:
            streams.save_info(connection, row, info, journal, now)
            if row.not_offered_since_us:
                self._note_offered(connection, row, now, offered=True)
            kept_before = row.journal
            row = streams.find(connection, self._name, stream.id)
            assert row is not None
            if journal.keeps_more_than(kept_before):
                # What was not kept before cannot be found in the journal.
                tx = StreamTransaction(connection, self._dialect, row.no, now, self.options, row)
                append_stored(tx)
                unproven.tell_all(tx)
        self._streams[stream.id] = row
        return row.position

    async def commit(self, batch: Batch) -> CommitResult:
        """Commit the batch in one transaction, whole or not at all. Raises `SinkError`.

        After a cancellation, the batch is committed or not; `position` shows which. The same holds
        for a `StoreUnavailableError` of a server that was lost during the COMMIT.
        """
        now_us = self._clock_us()
        separate = False

        def work(connection: Connection) -> CommitResult:
            row = self._streams.get(batch.stream) or self._row(connection, batch.stream)
            tx = StreamTransaction(connection, self._dialect, row.no, now_us, self.options, row)
            deliver = partial(self._handlers.deliver, connection, row.no, now_us)
            handle = deliver if self._handlers.handlers else None
            return commit.commit(tx, batch, self._projections, handle, separate=separate)

        def committed(connection: Connection) -> bool:
            fencing.lock_stream(connection, self._name, batch.stream)
            no = self._row(connection, batch.stream).no
            return fencing.stream_is_at(connection, no, batch.position, now_us)

        while True:
            try:
                result = await self._database.run(work, committed=committed)
            except SharedKeyError:
                if separate:
                    raise
                # Seldom, and once a stream: so no commit looks for it beforehand.
                separate = True
            except UnstorableError:
                storable = split_storable(batch)
                if len(storable.records) == len(batch.records):
                    raise
                batch = storable
            else:
                stored = batch.position
                if result.unknown_entities:
                    stored = changes_met(stored, result.unknown_entities)
                if (row := self._streams.get(batch.stream)) is not None:
                    row.unknown = set(stored.unknown)
                return result

    async def report(self, reports: Sequence[StreamReport], stale_after_s: float) -> None:
        """See `Sink`."""
        reporter, consumer = self._freshness_reporter, self._name

        def work(connection: Connection) -> None:
            reporter.write(connection, self._dialect, consumer, reports, stale_after_s)

        try:
            await self._database.run(work)
        except BaseException:
            reporter.forget()
            raise
        reporter.note_written(reports)

    async def report_conformance(self, report: ConformanceReport) -> None:
        """See `Sink`."""
        row = {"consumer": self._name, "report": msgspec.json.encode(report).decode()}
        await self._database.run(lambda connection: connection.execute(_CONFORMANCE, row))

    def _row(self, connection: Connection, stream: str) -> StreamRow:
        row = self._streams.get(stream)
        if row is None:
            self._check_stream(stream)
            row = streams.find(connection, self._name, stream)
            if row is None:
                # Not cached: the transaction that inserts it may still fail.
                return streams.insert(
                    connection, self._name, stream, "{}", self.options.journal, self._clock_us()
                )
            self._streams[stream] = row
        return row

    def _check_stream(self, stream: str) -> None:
        check_name(stream, "a stream", self._dialect.where, "streams", LONGEST_STREAM_BYTES)

    def messages(self) -> SqlMessageStore:
        """See `Sink`."""
        return SqlMessageStore(
            self._database, self._dialect, self.options, lambda: self._name, self._clock_us
        )

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        """Count the entities, and those last marked by an attempt before `attempt` (A6)."""

        def count(connection: Connection) -> SweepEstimate:
            row = streams.find(connection, self._name, stream)
            return (
                SweepEstimate(0, 0) if row is None else estimate_sweep(connection, row.no, attempt)
            )

        # It reads every entity: a connection of its own keeps commits from waiting.
        return await self.reader.database.run(count)

    async def is_sweep_released(self, stream: str, attempt: int) -> bool:
        """See `Sink`."""

        def ask(connection: Connection) -> bool:
            row = streams.find(connection, self._name, stream)
            return row is not None and sweep_approvals.is_approved(connection, row.no, attempt)

        return await self.reader.database.run(ask)

    @asynccontextmanager
    async def audit(self, stream: StreamInfo) -> AsyncIterator[SqlAuditMarks]:
        """See `Sink`."""
        marks = SqlAuditMarks(
            self._database,
            self._dialect,
            self.options,
            self._name,
            stream,
            self._clock_us,
            self._projections,
        )
        await marks.open()
        try:
            yield marks
        finally:
            await marks.close()

    def entity_rows(self, stream: StreamInfo) -> SqlEntityRows:
        """See `Sink`."""
        return SqlEntityRows(self.reader.database, self._dialect, self._name, stream.id)

    async def close(self) -> None:
        """Wait for the commit under way, then disconnect."""
        await self._handlers.close()
        if self._reader is not None:
            await self._reader.close()
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _name(self) -> str:
        if self._consumer is None:
            raise SinkError(
                "the store is not open", where=self._dialect.where, hint="call open(consumer) first"
            )
        return self._consumer

    def __repr__(self) -> str:
        return f"<SqlStore {self._dialect.where} consumer={self._consumer!r}>"
