"""`spark.readStream.format("instep")`: the journal of a SQL store as a stream, no sink between.

Offsets are cursors of the journal. A micro-batch is a range of cursors, cut into partitions that
are read side by side; read again after a failure, a range gives the same rows, so what Spark does
exactly once with them is done exactly once. The journal's retention has to outlive a reader's rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from instep.config.plugins import store_plugin
from instep.errors import ConfigurationError
from instep.model.entities import Change
from instep.ports.reader import StoreReader

__all__ = ["InstepDataSource", "register"]

_SCHEMA: Final = (
    "cursor BIGINT NOT NULL, consumer STRING NOT NULL, stream STRING NOT NULL, "
    "key STRING NOT NULL, class STRING NOT NULL, change STRING NOT NULL, kind STRING, "
    "token STRING NOT NULL, appended_at TIMESTAMP NOT NULL, committed_at TIMESTAMP NOT NULL, "
    "body STRING, previous STRING"
)
_OPTIONS: Final = {"store", "stream", "startingcursor", "maxrowspertrigger", "partitions", "path"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[Any, ...]


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(InstepDataSource)


class InstepDataSource(DataSource):
    """The format `instep`.

    - `store`: URL of the store, with a journal (`journal = "bodies"` for bodies);
    - `stream`: only this stream;
    - `startingCursor`: where to begin, default 0: the oldest change kept;
    - `maxRowsPerTrigger`: most cursors of a micro-batch, default 100,000; only the first one after
      a restart takes all that is there;
    - `partitions`: readers of a micro-batch, default 2.
    """

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return "instep"

    def schema(self) -> str:
        """See `DataSource`."""
        return _SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 — Spark's own words
        """For `spark.read`: what the journal holds now."""
        return _JournalReader(_settings(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """For `spark.readStream`."""
        return _JournalStreamReader(_settings(self.options))


class _Settings:
    """The options, read."""

    def __init__(
        self, store: str, stream: str | None, first: int, most_rows: int, parts: int
    ) -> None:
        self.store = store
        self.stream = stream
        self.first = first
        self.most_rows = most_rows
        self.parts = parts


def _settings(options: Mapping[str, str]) -> _Settings:
    given = {key.lower(): value for key, value in options.items()}
    unknown = sorted(given.keys() - _OPTIONS)
    store = given.get("store") or given.get("path")
    if unknown or not store:
        raise ConfigurationError(
            f"unknown option {unknown[0]!r}" if unknown else "the option 'store' is missing",
            where="format instep",
            hint="options: store, stream, startingCursor, maxRowsPerTrigger, partitions",
        )
    numbers = []
    for name, default, least in (
        ("startingcursor", 0, 0),
        ("maxrowspertrigger", 100_000, 1),
        ("partitions", 2, 1),
    ):
        value = given.get(name, str(default))
        if not value.isdecimal() or int(value) < least:
            raise ConfigurationError(
                f"the option {name!r} is no whole number from {least} on", where="format instep"
            )
        numbers.append(int(value))
    return _Settings(store, given.get("stream"), *numbers)


class _Range(InputPartition):
    """Cursors after one and up to another."""

    def __init__(self, after: int, upto: int) -> None:
        self.after = after
        self.upto = upto


class _Journal:
    """Reads ranges of the journal, wherever Spark runs it."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def cut(self, after: int, upto: int) -> list[_Range]:
        """The range in as many parts as were asked for."""
        count = min(self._settings.parts, upto - after)
        edges = [after + (upto - after) * n // max(count, 1) for n in range(count + 1)]
        return [_Range(low, high) for low, high in pairwise(edges)]

    def newest(self, after: int, limit: int | None) -> int:
        """The newest cursor, at most `limit`; `after` where nothing is new."""
        return asyncio.run(self._newest(after, limit))

    async def _newest(self, after: int, limit: int | None) -> int:
        settings = self._settings
        reader: StoreReader = store_plugin(settings.store).reader(settings.store)
        try:
            changes: Any = reader.changes(after, stream=settings.stream)
            async with aclosing(changes):
                async for change in changes:
                    if limit is not None and change.cursor > limit:
                        break
                    after = change.cursor
        finally:
            await reader.close()
        return after

    def rows(self, part: _Range) -> Iterator[Row]:
        """The changes of a range, in order, in bounded memory."""
        settings = self._settings
        loop = asyncio.new_event_loop()
        reader = store_plugin(settings.store).reader(settings.store)
        try:
            changes: Any = reader.changes(part.after, stream=settings.stream)
            while True:
                change = loop.run_until_complete(anext(changes, None))
                if change is None or change.cursor > part.upto:
                    break
                yield _row(change)
            loop.run_until_complete(changes.aclose())
        finally:
            loop.run_until_complete(reader.close())
            loop.close()


class _JournalReader(DataSourceReader):
    def __init__(self, settings: _Settings) -> None:
        self._journal = _Journal(settings)
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """See `DataSourceReader`."""
        first = self._settings.first
        return [*self._journal.cut(first, self._journal.newest(first, None))]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """See `DataSourceReader`."""
        assert isinstance(partition, _Range)
        return self._journal.rows(partition)


class _JournalStreamReader(DataSourceStreamReader):
    def __init__(self, settings: _Settings) -> None:
        self._journal = _Journal(settings)
        self._settings = settings
        self._last: int | None = None
        """The end of the last micro-batch; None: Spark goes on from a checkpoint of its own."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 — Spark's own word
        """See `DataSourceStreamReader`."""
        self._last = self._settings.first
        return {"cursor": self._last}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        """See `DataSourceStreamReader`."""
        if self._last is None:
            return {"cursor": self._journal.newest(self._settings.first, None)}
        limit = self._last + self._settings.most_rows
        return {"cursor": self._journal.newest(self._last, limit)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """See `DataSourceStreamReader`."""
        self._last = end["cursor"]
        return [*self._journal.cut(start["cursor"], end["cursor"])]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """See `DataSourceStreamReader`."""
        assert isinstance(partition, _Range)
        return self._journal.rows(partition)


def _row(change: Change) -> Row:
    return (
        change.cursor,
        change.consumer,
        change.stream,
        change.key,
        change.entity_class,
        change.change.value,
        None if change.kind is None else change.kind.name,
        change.token,
        _EPOCH + timedelta(microseconds=change.appended_at_us),
        _EPOCH + timedelta(microseconds=change.committed_at_us),
        change.body.decode() or None,
        None if change.previous is None else change.previous.decode(),
    )
