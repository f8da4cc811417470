"""Lands batches in the tables exactly once: looks up what is durable, numbers what comes next, and
handles commits of others. Synchronous; the sink calls it in its worker thread.

The table proves the position: the last row of a consumer and stream carries it. The version of a
commit's application transaction is the ordinal of its first row. So of two commits that begin at
one place only one succeeds, however many rows they have. The other fails as a whole; it then reads
the table again, and is repeated or fenced. The same version makes the last row cheap to find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from instep.alignment.change_only import stated_uuid
from instep.alignment.unknown_entities import changes_met, quarantine_entry
from instep.errors import FencedError, SinkError, StoreUnavailableError
from instep.model.batches import Batch, CommitResult
from instep.model.position import Position
from instep.model.records import Record
from instep_spark.landing import live_view
from instep_spark.landing.arrow_rows import change_rows, split_storable
from instep_spark.landing.durable_state import DurableState, read_durable_state
from instep_spark.landing.living_entities import LivingEntities
from instep_spark.landing.quarantine import Quarantine
from instep_spark.landing.writers.base import Conflict, Transaction, Writer
from instep_spark.options import DeltaOptions

__all__ = ["LandingTables"]

_RERUNS: Final = 6


class _Prepared(msgspec.Struct, frozen=True):
    """A batch that is ready to be written."""

    batch: Batch
    position: Position
    state: DurableState
    rows: pa.Table
    records: Sequence[Record]
    now_us: int
    unresolved_keys: tuple[str, ...] = ()
    gave_way: int = 0
    unknown: dict[str, str] = {}
    """See `CommitResult.unknown_entities`."""


class LandingTables:
    """The landing tables of one consumer."""

    def __init__(
        self, writer: Writer, options: DeltaOptions, consumer: str, clock_us: Callable[[], int]
    ) -> None:
        self._writer = writer
        self._options = options
        self._consumer = consumer
        self._clock_us = clock_us
        self._states: dict[str, DurableState] = {}
        self._quarantine = Quarantine(writer, options, consumer)
        self._living = LivingEntities(writer, consumer)
        self._commits = 0

    def state(self, stream: str) -> DurableState:
        """Return the durable state of a stream, read from the table. Raises `SinkError`."""
        found = self._states.get(stream)
        if found is None:
            where = self._options.location("changes")
            found = self._states[stream] = read_durable_state(
                self._writer, self._consumer, stream, self.application(stream), where
            )
        return found

    def forget(self, *streams: str) -> None:
        """Read the table again before the next commit of these streams: whether the last one
        succeeded is unknown.
        """
        for stream in streams:
            self._states.pop(stream, None)
            self._living.forget(stream)

    def application(self, stream: str) -> str:
        """The name of a stream's application transaction."""
        return f"instep/{self._consumer}/{stream}"

    def commit(self, batches: Sequence[Batch]) -> list[CommitResult | SinkError]:
        """Land the batches of different streams in one commit, each whole or not at all.

        An answer for each: one that is fenced does not hold the others back. Raises `SinkError`
        where nothing was landed, or where that is not known.
        """
        try:
            return self._commit(batches)
        except BaseException:
            self.forget(*[batch.stream for batch in batches])
            raise

    def _commit(self, batches: Sequence[Batch]) -> list[CommitResult | SinkError]:
        answers: dict[str, CommitResult | SinkError] = {}
        waiting = list(batches)
        for run in range(_RERUNS):
            prepared: list[_Prepared] = []
            for batch in waiting:
                try:
                    prepared.append(self._prepare(batch, again=run > 0))
                except FencedError as error:
                    answers[batch.stream] = error
            if not prepared:
                break
            try:
                self._write(prepared)
            except Conflict:
                answers |= self._look_again(prepared)
                waiting = [one.batch for one in prepared if one.batch.stream not in answers]
                continue
            for one in prepared:
                answers[one.batch.stream] = self._done(one)
            break
        else:
            raise StoreUnavailableError(
                f"others keep committing to the table: {_RERUNS} commits in a row were refused",
                where=self._options.location("changes"),
                hint="the batch is tried again",
            )
        self._tidy()
        return [answers[batch.stream] for batch in batches]

    def _prepare(self, batch: Batch, *, again: bool) -> _Prepared:
        state, position, now_us = self.state(batch.stream), batch.position, self._clock_us()
        if position.ordinal <= batch.expects_ordinal:
            raise ValueError(
                f"a commit leads beyond ordinal {batch.expects_ordinal}, not to {position.ordinal}"
            )
        if state.position.ordinal != batch.expects_ordinal:
            raise FencedError(
                f"another process has committed on stream {batch.stream!r}",
                where=self._options.location("changes"),
                hint="only one process may consume a stream under one name; end one of them",
                stream=batch.stream,
                expected=batch.expects_ordinal,
            )
        records = state.window.without_repeats(batch.records, state.position, position.attempt)
        unresolved: tuple[str, ...] = ()
        if batch.by_uuid:
            unresolved = live_view.unresolved(self._writer, self._consumer, batch.stream, records)
            owes = position.baseline_pending or bool(unresolved)
            position = msgspec.structs.replace(position, baseline_pending=owes)
        unreadable = batch.unreadable
        unknown: dict[str, str] = {}
        if changes := self._living.unknown(batch.stream, records, position.attempt):
            # Not landed: no reader may take one for an entity.
            left_out = set(map(id, changes))
            records = [one for one in records if id(one) not in left_out]
            unreadable = [*unreadable, *map(quarantine_entry, changes)]
            unknown = {one.key: stated_uuid(one) for one in changes}
            position = changes_met(position, unknown)

        def rows(records: Sequence[Record]) -> pa.Table:
            return change_rows(
                self._consumer,
                batch,
                position,
                records,
                first=state.ordinal + 1,
                attempt_opened=position.attempt != state.position.attempt,
                now_us=now_us,
            )

        try:
            table = rows(records)
        except (UnicodeError, pa.ArrowException):
            records, others = split_storable(records)
            unreadable = [*unreadable, *others]
            table = rows(records)
        gave_way = 0
        if not again:
            # First, so that the position never covers a record that is kept nowhere.
            gave_way = self._quarantine.keep(batch.stream, unreadable, now_us)
        return _Prepared(
            batch, position, state, table, records, now_us, unresolved, gave_way, unknown
        )

    def _write(self, prepared: Sequence[_Prepared]) -> None:
        transactions = [
            Transaction(
                self.application(one.batch.stream), one.state.version, one.state.ordinal + 1
            )
            for one in prepared
        ]
        rows = pa.concat_tables([one.rows for one in prepared])
        self._writer.append("changes", rows, transactions)

    def _look_again(self, prepared: Sequence[_Prepared]) -> dict[str, CommitResult | SinkError]:
        """Read the table after a conflict. Returns the batches that are in it all the same."""
        self.forget(*[one.batch.stream for one in prepared])
        found: dict[str, CommitResult | SinkError] = {}
        for one in prepared:
            state = self.state(one.batch.stream)
            if (state.position, state.committed_at_us) == (one.position, one.now_us):
                found[one.batch.stream] = _result(one)
        return found

    def _done(self, one: _Prepared) -> CommitResult:
        state, position = one.state, one.position
        state.version = state.ordinal + 1
        state.ordinal += len(one.rows)
        state.committed_at_us = one.now_us
        state.position = position
        state.window.remember(one.records, position.attempt)
        swept = one.batch.sweep is not None
        self._living.landed(one.batch.stream, one.records, swept=swept)
        return _result(one)

    def _tidy(self) -> None:
        self._commits += 1
        every = self._options.compact_every_commits
        if every and self._commits % every == 0:
            self._writer.tidy()


def _result(one: _Prepared) -> CommitResult:
    """Return the counts of rows. What becomes of entities, the pipeline decides later."""
    ends = sum(record.ends for record in one.records)
    return CommitResult(
        written=len(one.records) - ends,
        deleted=ends,
        sweep_done=one.batch.sweep is not None,
        gave_way=one.gave_way,
        unresolved_keys=one.unresolved_keys,
        unknown_entities=one.unknown,
    )
