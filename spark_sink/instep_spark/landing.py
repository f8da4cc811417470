"""Lands batches in the tables, exactly once: what is durable, what comes next, what to do when
somebody else has committed. Synchronous; the sink calls it in its worker thread.

The table proves the position: the last application transaction of a consumer and stream is the
ordinal of its last row, and that row carries the position. A commit takes the next ordinals, so of
two commits that begin at one place, one fails as a whole, looks again, and is run anew or fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from instep.errors import FencedError, SinkError, StoreUnavailableError
from instep.position import Position
from instep.records import Batch, CommitResult, Kind, Record
from instep_spark import current
from instep_spark.landed import REMEMBERED_RECORDS, Landed, identity_of
from instep_spark.options import DeltaOptions
from instep_spark.quarantine import Quarantine
from instep_spark.rows import change_rows, sift
from instep_spark.writer import Conflict, Writer

__all__ = ["Landing", "StreamState"]

_RERUNS: Final = 6
_LAST: Final = """
    SELECT max(ordinal) AS ordinal FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream}
"""
_TAIL: Final = """
    SELECT ordinal, key, kind, token, partition, record_offset, appended_at, attempt, body, position
    FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ordinal > {after} ORDER BY ordinal
"""


class StreamState(msgspec.Struct):
    """Where a stream stands in the table."""

    ordinal: int
    """Of its last row; 0 for none."""
    position: Position
    landed: Landed


class _Prepared(msgspec.Struct, frozen=True):
    """A batch that is ready to be written."""

    batch: Batch
    state: StreamState
    rows: pa.Table
    records: Sequence[Record]
    unresolved_keys: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        return self.state.ordinal + len(self.rows)


class Landing:
    """The landing tables of one consumer."""

    def __init__(
        self, writer: Writer, options: DeltaOptions, consumer: str, clock_us: Callable[[], int]
    ) -> None:
        self._writer = writer
        self._options = options
        self._consumer = consumer
        self._clock_us = clock_us
        self._states: dict[str, StreamState] = {}
        self._quarantine = Quarantine(writer, options, consumer)
        self._commits = 0

    def state(self, stream: str) -> StreamState:
        """What the table proves of a stream. Raises `SinkError`."""
        found = self._states.get(stream)
        if found is None:
            found = self._states[stream] = self._read(stream)
        return found

    def forget(self) -> None:
        """Look at the table again before the next commit: the last one may be there or not."""
        self._states.clear()

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
            self.forget()
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
        records = state.landed.fresh(batch.records, state.position, position.attempt)

        def rows(records: Sequence[Record]) -> pa.Table:
            return change_rows(
                self._consumer,
                batch,
                records,
                first=state.ordinal + 1,
                attempt_opened=position.attempt != state.position.attempt,
                now_us=now_us,
            )

        unreadable = batch.unreadable
        try:
            table = rows(records)
        except (UnicodeError, pa.ArrowException):
            records, others = sift(records)
            unreadable = [*unreadable, *others]
            table = rows(records)
        if not again:
            # First, so that the position never covers a record that is kept nowhere.
            self._quarantine.keep(batch.stream, unreadable, now_us)
        unresolved = ()
        if batch.by_uuid:
            unresolved = current.unresolved(self._writer, self._consumer, batch.stream, records)
        return _Prepared(batch, state, table, records, unresolved)

    def _write(self, prepared: Sequence[_Prepared]) -> None:
        transactions = {self.application(one.batch.stream): one.last for one in prepared}
        self._writer.append(
            "changes", pa.concat_tables([one.rows for one in prepared]), transactions
        )

    def _look_again(self, prepared: Sequence[_Prepared]) -> dict[str, CommitResult | SinkError]:
        """After a conflict: the batches that are in the table all the same."""
        self.forget()
        return {
            one.batch.stream: _result(one)
            for one in prepared
            if self.state(one.batch.stream).position == one.batch.position
        }

    def _done(self, one: _Prepared) -> CommitResult:
        one.state.ordinal = one.last
        one.state.position = one.batch.position
        one.state.landed.landed(one.records, one.batch.position.attempt)
        return _result(one)

    def _tidy(self) -> None:
        self._commits += 1
        every = self._options.compact_every_commits
        if every and self._commits % every == 0:
            self._writer.tidy()

    def _read(self, stream: str) -> StreamState:
        writer = self._writer
        names = {"consumer": writer.text(self._consumer), "stream": writer.text(stream)}
        last = writer.committed(self.application(stream))
        if last is None:
            last = writer.query(_LAST.format_map(names))["ordinal"][0].as_py()
        if last is None:
            return StreamState(0, Position(), Landed())
        after = last - REMEMBERED_RECORDS
        rows = writer.query(_TAIL.format_map({**names, "after": after}))
        if len(rows) != min(last, REMEMBERED_RECORDS) or rows["ordinal"][-1].as_py() != last:
            raise SinkError(
                f"the last rows of stream {stream!r} are not there",
                where=self._options.location("changes"),
                hint="somebody removed rows of the table: restore it, or use another lake",
                ordinal=last,
            )
        tail = _with_us(rows).to_pylist()
        position = msgspec.json.decode(tail[-1]["position"], type=Position)
        newest = (
            identity_of(_record(row))
            for row in tail
            if row["token"] and row["attempt"] == position.attempt
        )
        return StreamState(last, position, Landed(position.attempt, newest))


def _with_us(rows: pa.Table) -> pa.Table:
    """The rows with append times as microseconds."""
    appended = rows["appended_at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return rows.set_column(rows.schema.get_field_index("appended_at"), "appended_at", appended)


def _record(row: dict[str, Any]) -> Record:
    return Record(
        "",
        row["key"],
        Kind[row["kind"]],
        row["token"],
        row["appended_at"],
        row["partition"],
        row["record_offset"],
        body=(row["body"] or "").encode(),
    )


def _result(one: _Prepared) -> CommitResult:
    """Counts of rows: what becomes of entities is decided behind the landing."""
    ends = sum(record.ends for record in one.records)
    return CommitResult(
        written=len(one.records) - ends,
        deleted=ends,
        sweep_done=one.batch.sweep is not None,
        unresolved_keys=one.unresolved_keys,
    )
