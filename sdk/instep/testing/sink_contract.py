"""Whether a sink keeps the promises of `instep.ports.Sink`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from instep.errors import ConfigurationError, FencedError
from instep.model.batches import Batch, CommitResult, SweepStep
from instep.model.columns import HeaderArrays, RecordColumns
from instep.model.position import Position
from instep.model.records import DecodedRecords, Record, RecordType, Unreadable
from instep.model.streams import Mode, StreamInfo
from instep.ports.sink import Sink
from instep.testing.promises import Contract, require

__all__ = ["SINK_PROMISES", "check_sink"]

MakeSink = Callable[[str], Sink]
ReadEntities = Callable[[Sink, str], Awaitable[Mapping[str, bytes]]]

_STREAM: Final = StreamInfo(id="letters", origin="a check", kind="check")
_OTHER: Final = StreamInfo(id="digits", origin="a check", kind="check")
_T0_US: Final = 1_700_000_000_000_000
_YIELDS: Final = 12
"""Steps of the loop after which a commit is cancelled, from 0 up to this."""


class _Log:
    """A stream of a sink; batches are committed to it step by step, as an alignment does."""

    def __init__(self, sink: Sink, info: StreamInfo, position: Position) -> None:
        self.sink, self.info, self.position = sink, info, position
        self.attempt = self.lineage = 1

    def batch(self, *records: Record, **changes: Any) -> Batch:
        """The batch from the log's position to the one after these records."""
        tokens = [record.token for record in records if record.token]
        offsets = {record.partition: record.offset for record in records if record.offset >= 0}
        position = Position(
            token=tokens[-1] if tokens else self.position.token,
            offsets=self.position.offsets | offsets,
            ordinal=self.position.ordinal + 1,
            records=self.position.records + len(records),
            attempt=self.attempt,
            lineage=self.lineage,
        )
        given: dict[str, Any] = {"position": position, "expects_ordinal": self.position.ordinal}
        return Batch(self.info.id, **given | {"records": list(records)} | changes)

    async def commit(self, *records: Record, **changes: Any) -> CommitResult:
        batch = self.batch(*records, **changes)
        result = await self.sink.commit(batch)
        self.position = batch.position
        return result

    async def count(self, attempt: int = 0) -> tuple[int, int]:
        """The counts of all entities, and of those not marked by this attempt or a later one."""
        found = await self.sink.estimate_sweep(self.info.id, attempt)
        return found.total, found.unmarked

    async def expect(self, total: int, unmarked: int = 0, *, attempt: int, after: str) -> None:
        found = await self.count(attempt)
        require(
            found == (total, unmarked),
            f"after {after} there are {found[0]} entities, {found[1]} of them not marked by attempt"
            f" {attempt}; expected {total} and {unmarked}",
        )

    async def sweep(self, expected: int, *, limit_records: int = 2_000, **step: Any) -> None:
        """Sweep to the end and check the number swept; a sink that sweeps later counts none."""
        cursor = swept = 0
        for _ in range(100):
            sweep = SweepStep(self.attempt, cursor, limit_records, **step)
            result = await self.commit(sweep=sweep)
            swept, cursor = swept + result.swept, result.sweep_cursor
            if result.sweep_done:
                found = f"{expected} entities were not marked, and {swept} are said to be swept"
                return require(swept in (0, expected), found)
        return require(kept=False, found="the sweep of a few entities is not done after 100 steps")


class _Subject:
    """Makes sinks over one store, which is empty at first."""

    def __init__(self, make: MakeSink, entities: ReadEntities | None, name: str) -> None:
        self._make, self._name = make, name
        self.read_entities = entities
        self._sinks: list[Sink] = []

    async def sink(self) -> Sink:
        """A sink of its own, as another process would open it."""
        sink = self._make(self._name)
        self._sinks.append(sink)
        await sink.open(self._name)
        return sink

    async def log(self, info: StreamInfo = _STREAM, sink: Sink | None = None) -> _Log:
        sink = sink or await self.sink()
        return _Log(sink, info, await sink.position(info))

    async def close(self) -> None:
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            await sink.close()


def _state(key: str, at: int, **changes: Any) -> Record:
    """A statement at this offset of partition 0, appended as many seconds after T0."""
    given: dict[str, Any] = {
        "stream": _STREAM.id,
        "key": key,
        "kind": RecordType.CREATE_UPDATE,
        "token": f"t{at}",
        "appended_at_us": _T0_US + at * 1_000_000,
        "partition": "0",
        "offset": at,
        "entity_class": "NODE",
        "body": b'{"at":%d}' % at,
    }
    return Record(**given | changes)


def _end(key: str, at: int, **changes: Any) -> Record:
    given: dict[str, Any] = {"kind": RecordType.DELETE, "body": b""}
    return _state(key, at, entity_class="", **given | changes)


def _columns(records: Sequence[Record]) -> RecordColumns:
    """The same records in columns, as a source of many gives them."""
    names = ("key", "offset", "appended_at_us", "kind", "token")
    more = ("entity_class", "body", "envelope", "ends", "uuid")
    columns: list[Any] = [[getattr(one, name) for one in records] for name in (*names, *more)]
    headers = HeaderArrays(_STREAM.id, "0", *columns[: len(names)])
    return RecordColumns(headers, *columns[len(names) :], whole=True)


_CONTRACT: Final[Contract[_Subject]] = Contract("instep.ports.Sink")
_promise = _CONTRACT.promise


@_promise("the position of a stream never seen is Position()")
async def _a_new_stream_begins_at_the_beginning(at: _Subject) -> None:
    log = await at.log()
    require(log.position == Position(), f"it is {log.position}")
    await log.expect(0, attempt=1, after="opening an empty store")


@_promise("the position is stored with what it covers, whole and unchanged", "A1")
async def _the_position_is_kept_as_it_was_committed(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 1), _state("b", 2))
    await log.commit()
    found = await log.sink.position(_STREAM)
    require(found == log.position, f"committed was {log.position}, kept is {found}")
    await log.expect(2, attempt=1, after="committing two")


@_promise("what was committed is durable: another sink over the same store finds it", "A1")
async def _a_commit_outlives_the_sink(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 1))
    await at.close()
    again = await at.log()
    require(again.position == log.position, f"after opening it anew it stands at {again.position}")
    await again.expect(1, attempt=1, after="opening the store anew")


@_promise("a batch that does not begin where the store stands raises FencedError", "A1")
async def _a_batch_from_elsewhere_changes_nothing(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 1))
    stands = log.position
    for ordinal in (stands.ordinal - 1, stands.ordinal + 7):
        position = msgspec.structs.replace(log.batch().position, ordinal=ordinal + 1)
        batch = log.batch(_state("b", 2), expects_ordinal=ordinal, position=position)
        refused = False
        with suppress(FencedError):
            await log.sink.commit(batch)
            refused = True
        require(not refused, f"a batch that expects ordinal {ordinal} was taken at {stands}")
        found = await log.sink.position(_STREAM)
        require(found == stands, f"a refused batch left the position {found}")
    await log.expect(1, attempt=1, after="a refused batch")


@_promise("of two processes that commit on one stream, one gets FencedError")
async def _the_second_writer_is_fenced(at: _Subject) -> None:
    one, other = await at.log(), await at.log()
    await one.commit(_state("a", 1))
    with suppress(FencedError):
        await other.commit(_state("b", 1))
        require(kept=False, found="both commits were taken")
    await one.expect(1, attempt=1, after="the second writer was refused")


@_promise("a commit that is cancelled is whole, or not there", "A1")
async def _cancelling_tears_nothing(at: _Subject) -> None:
    log = await at.log()
    for yields in range(_YIELDS):
        before, (entities, _) = log.position, await log.count()
        batch = log.batch(_state(f"k{yields}", yields + 1))
        task = asyncio.ensure_future(log.sink.commit(batch))
        for _ in range(yields):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        log.position = await log.sink.position(_STREAM)
        whole = log.position == batch.position
        require(
            whole or log.position == before,
            f"the position is {log.position}, neither {before} nor {batch.position}",
        )
        found, _ = await log.count()
        require(
            found == entities + whole,
            f"the position is {'the new' if whole else 'the old'} one, and there are {found} "
            f"entities; before there were {entities}",
        )


@_promise("a record older than the stored one of its lineage is ignored and not marked", "A3")
async def _an_older_record_is_ignored(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 5))
    log.attempt = 2
    await log.commit(_state("a", 3))
    await log.expect(1, 1, attempt=2, after="an older record")
    await log.commit(_end("a", 4))
    await log.expect(1, 1, attempt=2, after="an older end")


@_promise("a record as new as the stored one, or newer, is written and marked", "A3")
async def _a_record_that_is_not_older_is_marked(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 5), _state("b", 6))
    log.attempt = 2
    await log.commit(_state("a", 5))
    await log.expect(2, 1, attempt=2, after="the same record again")
    await log.commit(_state("b", 7))
    await log.expect(2, 0, attempt=2, after="a newer record")


@_promise("a record of another lineage is written and marked, whatever its time", "A3")
async def _another_lineage_is_not_compared(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 5))
    log.attempt = log.lineage = 2
    await log.commit(_state("a", 1))
    await log.expect(1, 0, attempt=2, after="an older record of another lineage")


@_promise("within a partition offsets decide what is newer, else append times do", "A3")
async def _offsets_decide_before_append_times(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 5), _state("b", 5, partition="1"), _state("c", 5, offset=-1))
    log.attempt = 2
    late, early = _T0_US + 9_000_000, _T0_US + 1_000_000
    await log.commit(_state("a", 4, appended_at_us=late))
    await log.expect(3, 3, attempt=2, after="a lower offset with a later append time")
    await log.commit(_state("a", 6, appended_at_us=early))
    await log.expect(3, 2, attempt=2, after="a higher offset with an earlier append time")
    await log.commit(_state("b", 9, appended_at_us=early), _state("c", 9, appended_at_us=early))
    await log.expect(3, 2, attempt=2, after="earlier append times of other partitions")
    await log.commit(_state("b", 1, appended_at_us=late), _state("c", 1, appended_at_us=late))
    await log.expect(3, 0, attempt=2, after="later append times of other partitions")


@_promise("a record that ends removes its entity; a second end is no error", "A4")
async def _an_end_removes_its_entity(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 1), _state("b", 2))
    await log.commit(_end("a", 3))
    await log.expect(1, attempt=1, after="an end")
    await log.commit(_end("a", 3, kind=RecordType.TOMBSTONE), _end("never", 4))
    await log.expect(1, attempt=1, after="a second end")
    await log.commit(_state("a", 5))
    await log.expect(2, attempt=1, after="a statement after the end")


@_promise("what is gone is gone: a DELETE, a TOMBSTONE and a CLEAR leave no entity", "A4")
async def _what_is_gone_is_gone(at: _Subject) -> None:
    log = await at.log()
    # A CREATE_UPDATE that ends is the CLEAR of an alarm, which has a body; a DELETE may have one.
    kinds = {f"{kind.name}{body!r}": (kind, body) for kind in RecordType for body in (b"", b"{}")}
    stated = [_state(key, n) for n, key in enumerate(kinds, 1)]
    ends = [
        _end(key, n, kind=kind, body=body, ends=True)
        for n, (key, (kind, body)) in enumerate(kinds.items(), 20)
    ]
    for attempt, columns in enumerate((False, True), 1):
        log.attempt = attempt
        for records in ([*stated, _state("z", 9)], ends):
            given = {"records": _columns(records)} if columns else {}
            await log.commit(*records, **given)
        found = " once more, in columns" if columns else ""
        await log.expect(1, attempt=attempt, after=f"the ends of all entities but one{found}")
    if at.read_entities is not None:
        read = dict(await at.read_entities(log.sink, _STREAM.id))
        require(read == {"z": b'{"at":9}'}, f"read was {read}, and all but 'z' has ended")


@_promise("records of one batch count in their order, as if committed one by one", "A3")
async def _a_batch_is_its_records_in_order(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 1), _end("a", 2), _state("b", 3), _end("b", 4), _state("b", 5))
    await log.expect(1, attempt=1, after="a statement and an end, and one that comes again")
    await log.commit(_end("c", 6), _state("c", 7), _state("d", 9), _state("d", 8))
    await log.expect(3, attempt=1, after="an end and a statement")
    log.attempt = 2
    await log.commit(_state("d", 8))
    await log.expect(3, 3, attempt=2, after="a record older than one of an earlier batch")


@_promise("an entity's body is the one that its newest record stated")
async def _the_newest_body_is_kept(at: _Subject) -> None:
    if at.read_entities is None:
        return
    log = await at.log()
    text = '{"name":"Zürich \\u2014 \'q\' \\"d\\" % ; -- 🚆"}'.encode()
    await log.commit(_state("a", 1), _state("b/'\"%🚆", 2, body=text), _state("a", 4))
    await log.commit(_state("a", 3), _state("c", 5), _end("c", 6))
    found = dict(await at.read_entities(log.sink, _STREAM.id))
    expected = {"a": b'{"at":4}', "b/'\"%🚆": text}
    require(found == expected, f"read was {found}, stated {expected}")


@_promise("records are decoded when they are asked for, and none is left out")
async def _records_opened_late_are_written(at: _Subject) -> None:
    log = await at.log()
    records = [_state(f"k{n}", n) for n in range(1, 2_501)]
    plain = log.batch(*records)
    late = Batch(
        plain.stream, plain.position, plain.expects_ordinal, content=lambda: DecodedRecords(records)
    )
    await log.sink.commit(late)
    log.position = late.position
    await log.expect(len(records), attempt=1, after="a batch that is decoded late")


@_promise("what cannot be read is kept with the position, and is no error", "A11")
async def _what_cannot_be_read_does_not_stop_the_stream(at: _Subject) -> None:
    log = await at.log()
    bad = Unreadable(_STREAM.id, b'{"a\xff\x00', "no JSON", "t9")
    await log.commit(_state("a", 1), unreadable=[bad, bad], deviations={"odd": 2})
    found = await log.sink.position(_STREAM)
    require(found == log.position, f"the position is {found} instead of {log.position}")


@_promise("a sweep removes what its attempt has not marked, and nothing else", "A5")
async def _a_sweep_removes_the_unmarked_alone(at: _Subject) -> None:
    log = await at.log()
    other = await at.log(_OTHER, log.sink)
    await other.commit(_state("a", 1, stream=_OTHER.id))
    await log.commit(_state("a", 1), _state("b", 2), _state("c", 3))
    log.attempt = 2
    await log.commit(_state("b", 2), _state("d", 4))
    await log.sweep(2)
    await log.expect(2, attempt=2, after="the sweep")
    await other.expect(1, attempt=1, after="the sweep of another stream")


@_promise("steps of a sweep come to an end together, each no more than its limit", "A5")
async def _a_sweep_in_steps_removes_as_much(at: _Subject) -> None:
    log = await at.log()
    await log.commit(*[_state(f"k{n}", n) for n in range(1, 10)])
    log.attempt = 2
    await log.commit(_state("k3", 11), _state("k7", 12))
    await log.sweep(7, limit_records=2)
    await log.expect(2, attempt=2, after="the sweep")


@_promise("a sweep after a baseline removes only what the baseline can prove absent", "A5")
async def _a_baseline_proves_no_class_that_it_does_not_show(at: _Subject) -> None:
    info = msgspec.structs.replace(
        _STREAM, mode=Mode.BASELINE, classes=("NODE", "ODD"), readable=frozenset({"NODE"})
    )
    try:
        log = await at.log(info)
    except ConfigurationError:
        return  # The sink refuses such a stream with an error.
    odd = _state("odd", 2, entity_class="ODD", uuid="odd")
    await log.commit(_state("a", 1, uuid="a"), odd, by_uuid=True)
    log.attempt = 2
    await log.sweep(1, readable=info.readable)
    total, _ = await log.count()
    require(total == 1, f"{total} entities are left, not the one of a class that is not readable")


@_promise("streams of one consumer are apart, also when they commit at once")
async def _streams_are_apart(at: _Subject) -> None:
    one = await at.log()
    other = await at.log(_OTHER, one.sink)
    for n in range(1, 6):
        await asyncio.gather(
            one.commit(_state(f"k{n}", n)), other.commit(_state("k", n, stream=_OTHER.id))
        )
    await one.expect(5, attempt=1, after="five commits on each of two streams")
    await other.expect(1, attempt=1, after="five commits on each of two streams")
    for log in (one, other):
        found = await log.sink.position(log.info)
        require(found == log.position, f"{log.info.id} stands at {found}, not {log.position}")


@_promise("known_streams names the streams as last given to position, or none at all")
async def _known_streams_are_as_last_given(at: _Subject) -> None:
    log = await at.log()
    newer = msgspec.structs.replace(
        _STREAM, endpoint="b", classes=("NODE",), tombstone_retention_s=7.5, details={"a": [1]}
    )
    await log.sink.position(newer)
    found = list(await log.sink.known_streams())
    require(found in ([], [newer]), f"they are {found}, given was {newer}")


@_promise("no sweep is released that nobody released", "A6")
async def _nothing_is_released_by_itself(at: _Subject) -> None:
    log = await at.log()
    await log.commit(_state("a", 1))
    require(not await log.sink.is_sweep_released(_STREAM.id, 1), "attempt 1 is said to be released")


@_promise("closing twice is no error")
async def _closing_twice_is_no_error(at: _Subject) -> None:
    log = await at.log()
    await log.sink.close()
    await log.sink.close()


SINK_PROMISES: Final = _CONTRACT.names
"""The names of what `check_sink` checks, for tests of one promise each."""


async def check_sink(
    make: MakeSink, *, entities: ReadEntities | None = None, only: str | None = None
) -> None:
    """Check that a sink keeps the promises of `instep.ports.Sink`.

    ::

        @pytest.mark.parametrize("promise", SINK_PROMISES)
        async def test_my_sink(promise, tmp_path):
            await check_sink(lambda name: MySink(tmp_path / name), only=promise)

    - `make`: Gives a new sink, not yet opened, over the store of this name: a name seen for the
      first time means an empty store, the same name again the same store, as another process would
      open it. The name is also what the sink is opened with as its consumer: a sink that keeps
      consumers apart may use one store for all names.
    - `entities`: Reads the entities of a stream, key → body; without it, bodies are not checked.
    - `only`: The name of one promise (`SINK_PROMISES`); None: all of them.

    Raises `BrokenPromiseError` for the first promise that is not kept, with what was seen;
    `ValueError` where no promise is named `only`.
    Every sink that was made is closed. Cancelling leaves a check unfinished, its sinks closed.
    """
    subjects: list[_Subject] = []

    def subject(name: str) -> _Subject:
        subjects.append(_Subject(make, entities, name))
        return subjects[-1]

    try:
        await _CONTRACT.check(subject, only)
    finally:
        for one in subjects:
            with suppress(Exception):
                await one.close()
