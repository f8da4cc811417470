"""Each commit to a table carries the progress of the table (L2).

Each commit of the pipeline carries its `TableProgress` as the commit's user metadata: the table's
content and the ordinal up to which it follows `changes` move together, whatever checkpoint a stream
has, and whether it has one. A micro-batch that comes again finds its ordinals behind it.

It carries the number of that commit as well, as an application transaction of Delta: a statement of
a pipeline that was killed may still run in a server, and what another has decided meanwhile must
not be written beside it. Of two commits of one number, Delta lets one happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from instep_spark.session import configured

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

__all__ = [
    "APPLICATION",
    "RECENT_COMMITS",
    "Commit",
    "CommitMetadata",
    "DeferredSweep",
    "StreamProgress",
    "TableContent",
    "TableProgress",
    "carrying_metadata",
    "commits_of",
    "content_of",
    "read_commit_metadata",
    "read_commits",
    "read_content",
]

_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_TRANSACTION: Final = "spark.databricks.delta.write.txn"
APPLICATION: Final = "instep lake"
"""The application whose transactions number the pipeline's commits."""
_CONFIGURATION: Final = {
    # A commit that changes no row still moves the progress.
    "spark.databricks.delta.skipRecordingEmptyCommits": "false",
    # What is merged is read from files that do not change: no copy of it is needed.
    "spark.databricks.delta.merge.materializeSource": "none",
}
RECENT_COMMITS: Final = 20
"""How many commits are searched first for a stamp. Each commit of the pipeline carries one; commits
of others may not."""
_KEPT_DEFERRED_SWEEPS: Final = 100
_ALTERING: Final = {
    *("DELETE", "TRUNCATE", "UPDATE", "MERGE", "WRITE", "STREAMING UPDATE", "COPY INTO", "FSCK"),
}


class DeferredSweep(msgspec.Struct, frozen=True):
    """A sweep that was not made at its place in `changes`: held by the guard (A6)."""

    ordinal: int
    attempt: int
    applied_ordinal: int | None = None
    """The ordinal that the table had reached when the sweep was made after all. None: it is still
    held. -1: it was never made, because the sweep of a later attempt replaced it.
    """
    unmarked: int = 0
    total: int = 0
    readable: tuple[str, ...] | None = None
    """As `Sweep.readable`."""


class StreamProgress(msgspec.Struct, frozen=True):
    """Where a table stands in one stream."""

    ordinal: int = 0
    """The last row of `changes` that it covers."""
    deferred: tuple[DeferredSweep, ...] = ()
    by_uuid: bool = False
    """The stream is joined with a baseline: an entity may have a key and a uuid, and a uuid is one
    entity for each class and place (A13).
    """
    by_change: bool = False
    """The stream states changes only: its rows are those of `composed`."""
    seen: tuple[int, int] | None = None
    """Ordinal and time of commit (in microseconds since 1970) of a row of `changes` that it covers:
    other rows that get its ordinal, after a RESTORE, have another time.
    """
    swept: int = 0
    """Where the last sweep was made. What a baseline has read up to there is older than all that
    comes behind it, whatever the clocks say (A14).
    """

    def held(self) -> DeferredSweep | None:
        """The sweep that waits for a decision."""
        last = self.deferred[-1] if self.deferred else None
        return last if last is not None and last.applied_ordinal is None else None

    def with_deferred(self, sweep: DeferredSweep) -> tuple[DeferredSweep, ...]:
        """`deferred` with this one added or replaced."""
        others = tuple(one for one in self.deferred if one.ordinal != sweep.ordinal)
        return (*others, sweep)[-_KEPT_DEFERRED_SWEEPS:]


class _Entry(msgspec.Struct, frozen=True):
    consumer: str
    stream: str
    stream_progress: StreamProgress


class _Text(msgspec.Struct, frozen=True, tag="instep", tag_field="by"):
    streams: list[_Entry]
    number: int = 0
    known_version: int | None = None
    altered: bool = False


_decode: Final = msgspec.json.Decoder(_Text).decode


class TableProgress:
    """Where a table stands in each stream: (consumer, stream) → `StreamProgress`."""

    def __init__(self, by_stream: dict[tuple[str, str], StreamProgress] | None = None) -> None:
        self.by_stream = dict(by_stream or {})

    def __getitem__(self, key: tuple[str, str]) -> StreamProgress:
        return self.by_stream.get(key, StreamProgress())

    def moved(self, changes: dict[tuple[str, str], StreamProgress]) -> TableProgress:
        """Return this progress with some streams moved."""
        return TableProgress({**self.by_stream, **changes})

    def swept(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Where the last sweep of each of these streams was made; 0: none was."""
        return {key: self[key].swept for key in keys}

    def by_change(self, keys: Iterable[tuple[str, str]]) -> TableProgress:
        """Return this progress with these streams marked as CHANGE_ONLY."""
        news = {key: self[key] for key in keys if not self[key].by_change}
        return self.moved(
            {key: replace(stream_progress, by_change=True) for key, stream_progress in news.items()}
        )

    def changing(self) -> frozenset[tuple[str, str]]:
        """The streams that are marked as CHANGE_ONLY."""
        return frozenset(
            key for key, stream_progress in self.by_stream.items() if stream_progress.by_change
        )


class CommitMetadata(NamedTuple):
    """What the metadata of a commit holds."""

    progress: TableProgress
    number: int = 0
    """Number of the pipeline's commits to the table, this one included."""
    known_version: int | None = None
    """The version of the table in which it was looked up how far the content has come: the progress
    holds only where nobody has replaced the content since. None: the commit writes all content."""
    committed_s: float = 0.0
    """Time of the commit in seconds since 1970, where it was read from the table's log."""
    altered: bool = False
    """Whether another writer had altered rows. It stands in each commit since, because that of the
    other writer leaves the log."""

    def encode(self) -> str:
        """Return the text that a commit carries."""
        entries = [
            _Entry(*key, stream_progress)
            for key, stream_progress in sorted(self.progress.by_stream.items())
        ]
        text = _Text(entries, self.number, self.known_version, self.altered)
        return msgspec.json.encode(text).decode()

    @classmethod
    def decode(cls, text: str) -> CommitMetadata | None:
        """Read the text of a commit. None: the commit is not one of the pipeline."""
        try:
            found = _decode(text)
        except msgspec.MsgspecError:
            return None
        by_stream = {
            (entry.consumer, entry.stream): entry.stream_progress for entry in found.streams
        }
        progress = TableProgress(by_stream)
        return cls(progress, found.number, found.known_version, altered=found.altered)


class Commit(NamedTuple):
    """One commit in the history of a table."""

    version: int
    operation: str
    parameters: Mapping[str, Any]
    user_metadata: str
    committed_s: float = 0.0

    @property
    def replaces_content(self) -> bool:
        """Whether the table then has other content, which the commits before do not tell of; or
        for a RESTORE, those before the version that it names.
        """
        if self.operation == "WRITE":
            return self.parameters.get("mode") == "Overwrite"
        return self.operation in ("RESTORE", "CLONE") or "REPLACE TABLE" in self.operation

    @property
    def alters_rows(self) -> bool:
        """Whether it adds rows, changes or deletes some."""
        return self.operation in _ALTERING


class TableContent(NamedTuple):
    """What the commits of a table tell of the content that it has now (L2)."""

    version: int = 0
    """The last one."""
    metadata: CommitMetadata | None = None
    """That of the pipeline's last commit to it, with the last version of all as the one that is
    known. None: none tells anything, as of a clone."""
    replaced_at: int | None = None
    """The version in which another writer has replaced the content, while the pipeline decided on
    what had been there, and then wrote it: what came since counts for nothing."""
    altered: bool = False
    """Whether another writer has added rows, changed or deleted some."""
    is_whole: bool = True
    """Whether older commits could not tell more."""
    commits: int = 0
    """Where none tells anything: how many of the pipeline's commits there are, or at most are. Two
    pipelines that begin a table must not number their first commits differently: both would
    happen."""


def content_of(commits: Iterable[Commit]) -> TableContent:
    """Read what the commits of a table tell of its content (L2).

    What a RESTORE has undone counts for nothing but the numbers of commits: Delta takes each of
    them once.
    """
    newest_first = sorted(commits, reverse=True, key=attrgetter("version"))
    found: CommitMetadata | None = None
    found_at = number = 0
    upto: int | None = None
    ended = altered = False
    for commit in newest_first:
        carried = CommitMetadata.decode(commit.user_metadata)
        if carried is not None:
            number = max(number, carried.number)
        if ended or (upto is not None and commit.version > upto):
            continue
        # An OPTIMIZE carries what was true when it began: commits may have come between.
        if carried is not None and (found is None or carried.number > found.number):
            found, found_at = carried._replace(committed_s=commit.committed_s), commit.version
        if commit.operation == "RESTORE":
            restored = str(commit.parameters.get("version"))
            # One to a time does not tell the version.
            upto = int(restored) if restored.isdecimal() else -1
        elif commit.replaces_content:
            ended = True
        elif commit.alters_rows and carried is None:
            altered = True
    version = newest_first[0].version if newest_first else 0
    if found is None:
        from_first = bool(newest_first) and newest_first[-1].version == 0 and not ended
        return TableContent(
            version, altered=altered, is_whole=False, commits=number if from_first else version
        )
    altered |= found.altered
    known = found_at if found.known_version is None else found.known_version
    oldest = newest_first[-1].version
    for commit in newest_first:
        replaces = known < commit.version < found_at and commit.replaces_content
        if replaces and CommitMetadata.decode(commit.user_metadata) is None:
            return TableContent(version, None, commit.version, altered)
    metadata = found._replace(number=number, known_version=version, altered=altered)
    return TableContent(version, metadata, None, altered, known + 1 >= oldest)


def read_content(read: Callable[[int | None], list[Commit]]) -> TableContent:
    """Read what a table's commits tell; `read` gives the last ones, as many as it is told; None:
    all.
    """
    # Others may commit too (an OPTIMIZE of the platform): then the stamp lies further back.
    content = content_of(read(RECENT_COMMITS))
    return content if content.is_whole else content_of(read(None))


def read_commit_metadata(spark: SparkSession, target: str) -> CommitMetadata | None:
    """Read what the pipeline's last commit tells of the content of `target` (SQL for the table).
    None: no commit tells anything of it.
    """
    return read_content(partial(read_commits, spark, target)).metadata


def read_commits(spark: SparkSession, target: str, limit: int | None = None) -> list[Commit]:
    """The last commits of a table (`target`: SQL for it), the newest first; None: all."""
    clause = "" if limit is None else f" LIMIT {limit}"
    commits = spark.sql(f"DESCRIBE HISTORY {target}{clause}").selectExpr(
        *("version", "operation", "operationParameters", "userMetadata"),
        "unix_micros(timestamp) / 1e6D AS committed_s",
    )
    return [Commit(row[0], row[1], row[2] or {}, row[3] or "", row[4]) for row in commits.collect()]


def commits_of(table: DeltaTable, limit: int | None = None) -> list[Commit]:
    """The same of a table that delta-rs reads."""
    return [
        Commit(
            *(one["version"], one.get("operation", ""), one.get("operationParameters") or {}),
            *(one.get("userMetadata") or "", one.get("timestamp", 0) / 1e3),
        )
        for one in table.history(limit)
    ]


@contextmanager
def carrying_metadata(
    spark: SparkSession, metadata: CommitMetadata, *, maintenance: bool = False
) -> Iterator[None]:
    """Within this, a commit of the session carries `metadata`, and happens only where no other one
    of its number has; `maintenance` passes on the stamp of a commit that has happened.
    """
    wanted = {**_CONFIGURATION, _METADATA: metadata.encode()}
    if not maintenance:
        wanted[f"{_TRANSACTION}AppId"] = APPLICATION
        wanted[f"{_TRANSACTION}Version"] = str(metadata.number)
    with configured(spark, wanted):
        yield
