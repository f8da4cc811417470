"""The writer for catalogues and clusters: a SparkSession, local, on a cluster or by Connect.

Delta on Spark silently skips a write whose application transaction exists already. So each commit
is checked after it was made: the row at its last ordinal must be its own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from instep.errors import ConfigurationError, SinkError, StoreUnavailableError
from instep_spark.lake.batches.progress import StreamProgress, read_commit_metadata
from instep_spark.lake.sql.literals import text
from instep_spark.lake.tables.base import table_exists
from instep_spark.landing.writers.base import Conflict, Transaction, check_table, table_properties
from instep_spark.landing.writers.delta_rs import as_sink_error
from instep_spark.landing_schema import MEANINGS, TABLES, comment_literal, ddl
from instep_spark.options import DeltaOptions
from instep_spark.session import forget_dead_session, is_gone, is_running, open_session

__all__ = ["SparkWriter"]

_ARROW_RECORDS: Final = 10_000
"""Up to here rows go to Spark as Arrow; more are faster by way of a Parquet file."""
_CONFLICT: Final = re.compile(
    r"Concurrent\w*Exception|DELTA_CONCURRENT|MetadataChangedException|ProtocolChangedException"
)
_NONE: Final = re.compile(
    r"DELTA_TABLE_NOT_FOUND|DELTA_MISSING_DELTA_TABLE|PATH_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND"
    r"|is not a Delta table|doesn't exist"
)

_STANDS: Final = """
    SELECT position, committed_at FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ordinal = {ordinal}
"""


class SparkWriter:
    """Implements `Writer` over a SparkSession. One thread at a time."""

    groups = False

    def __init__(self, options: DeltaOptions, session: SparkSession | None = None) -> None:
        self._options = options
        self._given = session
        self._session = session
        self._own = False
        self._consumer = ""

    def open(self, consumer: str) -> None:
        """Create the tables or check them. Raises `SinkError` and `ConfigurationError`."""
        self._consumer = consumer
        for name, columns in TABLES.items():
            stated = table_properties(
                name,
                consumer,
                shared=self._options.shared,
                log_retention_hours=self._options.log_retention_hours,
            )
            listed = ", ".join(f"{_quoted(key)} = {_quoted(is_)}" for key, is_ in stated.items())
            target = self._target(name)
            self._sql(
                f"CREATE TABLE IF NOT EXISTS {target} ({ddl(columns)}) USING delta "
                f"{self._options.place.clause(name)}"
                f"COMMENT {comment_literal(MEANINGS[name])} TBLPROPERTIES ({listed})"
            )
            found = self._sql(f"SHOW TBLPROPERTIES {target}")
            check_table(
                name,
                self._sql(f"SELECT * FROM {target} LIMIT 0").schema,
                {row["key"]: row["value"] for row in found.to_pylist()},
                consumer=consumer,
                shared=self._options.shared,
                where=self._options.place.location(name),
            )
        self._remove_hand_off()

    def committed(self, application: str) -> int | None:  # noqa: ARG002 — the port's word
        """See `Writer`: Connect has no way to ask for it, so the rows are asked."""
        return None

    def append(self, table: str, rows: pa.Table, transactions: Sequence[Transaction] = ()) -> None:
        """See `Writer`."""
        try:
            frame = self._frame(rows)
            writing = frame.write.format("delta").mode("append")
            for application, _, version in transactions:
                writing = writing.option("txnAppId", application).option("txnVersion", version)
            if self._options.database:
                writing.saveAsTable(self._target(table))
            else:
                writing.save(self._options.location(table))
        except Exception as error:
            if _CONFLICT.search(str(error)):
                raise Conflict(str(error)) from error
            raise self._as_sink_error(error) from error
        finally:
            self._remove_hand_off()
        if transactions:
            self._verify(rows)

    def _verify(self, rows: pa.Table) -> None:
        last = rows.slice(len(rows) - 1).to_pylist()[0]
        consumer, stream = self.text(last["consumer"]), self.text(last["stream"])
        query = _STANDS.format(consumer=consumer, stream=stream, ordinal=last["ordinal"])
        found = self.query(query).to_pylist()
        if found != [{name: last[name] for name in ("position", "committed_at")}]:
            raise Conflict("another writer has taken these ordinals")

    def _frame(self, rows: pa.Table) -> DataFrame:
        spark = self._spark
        path = self._hand_off
        if len(rows) <= _ARROW_RECORDS or path is None:
            frame: DataFrame = spark.createDataFrame(rows)
            return frame
        path.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path / "rows.parquet", compression="zstd")
        return spark.read.parquet(path.as_uri())

    @property
    def _hand_off(self) -> Path | None:
        """A folder that Spark sees too: beside the tables, where they are in a local folder."""
        parts = urlsplit(self._options.url)
        if parts.scheme != "file" or self._options.spark.remote:
            return None
        name = blake2b(self._consumer.encode(), digest_size=8).hexdigest()
        return Path(unquote(parts.path)) / "_handoff" / name

    def _remove_hand_off(self) -> None:
        if self._hand_off is not None:
            shutil.rmtree(self._hand_off, ignore_errors=True)

    def query(self, sql: str) -> pa.Table:
        """See `Writer`."""
        return self._sql(
            sql.format_map({name: self._target(name) for name in (*TABLES, "entities")})
        )

    def pipeline_progress(self, consumer: str, stream: str) -> StreamProgress:
        """See `Writer`."""
        try:
            spark, entities = self._spark, self._target("entities")
            if not table_exists(spark, entities):
                return StreamProgress()
            metadata = read_commit_metadata(spark, entities)
            return StreamProgress() if metadata is None else metadata.progress[consumer, stream]
        except Exception as error:
            raise self._as_sink_error(error) from error

    def text(self, value: str) -> str:
        """See `Writer`."""
        return text(value).replace("{", "{{").replace("}", "}}")

    def timestamp(self, at_us: int) -> str:
        """See `Writer`."""
        return f"timestamp_micros({at_us})"

    def tidy(self) -> None:
        """Join small files; Spark tidies the log itself at its checkpoints."""
        for name in TABLES:
            with suppress(Conflict):
                self._sql(f"OPTIMIZE {self._target(name)}")

    def close(self) -> None:
        """End the session, if it was started here."""
        session, self._session = self._session, self._given
        if session is not None and self._own:
            with suppress(Exception):  # it may be gone
                session.stop()

    def _target(self, table: str) -> str:
        return self._options.place.table(table)

    def _sql(self, sql: str) -> pa.Table:
        try:
            return self._spark.sql(sql).toArrow()
        except Exception as error:
            if _CONFLICT.search(str(error)):
                raise Conflict(str(error)) from error
            raise self._as_sink_error(error) from error

    @property
    def _spark(self) -> SparkSession:
        if self._session is None:
            remote = bool(self._options.spark.remote)
            self._own = remote or not is_running()
            self._session = open_session(self._options.session)
        return self._session

    def _as_sink_error(self, error: Exception) -> Exception:
        if isinstance(error, (SinkError, ConfigurationError)):
            return error
        where, message = self._options.url, str(error)
        if is_gone(error):
            if self._given is None:
                self._session = None
                forget_dead_session()
            return StoreUnavailableError(
                "Spark has gone away",
                where=where,
                hint="it is started again and the batch tried again",
            )
        if _NONE.search(message):
            return SinkError("there is no table", where=where, hint="look at the URL of the lake")
        first: Any = message.strip().splitlines()[:1]
        return as_sink_error(OSError(*first) if _is_io(message) else error, self._options, where)


def _is_io(message: str) -> bool:
    return "java.io.IOException" in message or "No space left" in message


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
