"""Answers as DataFrames of PySpark, for jobs: nothing has to be registered in the session.

    from instep_spark.answers import availability

    down = availability(spark, url, start, end).where("class = 'LINK' AND percent < 99.9")

Each function returns at once: Spark reads the tables when the DataFrame is asked for rows, so it
can be joined, filtered and written like any other. `url` is that of the lake; with `database` its
tables have names in Spark's catalogue, as for `create_views`. Times are aware (`datetime` with a
zone); times in the answers are TIMESTAMPs of Spark. Each raises `ConfigurationError` for a time
without a zone, a window that ends before it begins, and where no derivation brings the answer.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from instep.errors import ConfigurationError
from instep_spark.answers.definitions import TABLES, query
from instep_spark.answers.dialects import SPARK
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "alarm_floods",
    "alarm_places",
    "answer",
    "availability",
    "connection_hops",
    "edges",
    "entities_at",
    "failure_impact",
    "flapping",
    "impact",
    "link_capacity",
    "link_load",
    "repair_times",
    "topology_at",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def answer(
    spark: SparkSession, url: str, name: str, *, database: str = "", **moments: datetime | None
) -> DataFrame:
    """Any answer by the name of its view or function in the reference; `moments`: the parameters of
    a function by their names. One that is None is left out.
    """
    place = LakePlace(url, database)
    arguments = {
        parameter: SPARK.timestamp(_micros(parameter, moment))
        for parameter, moment in moments.items()
        if moment is not None
    }
    tables = {table: place.table(table) for table in TABLES}
    return spark.sql(query(name, tables, SPARK, arguments))


def availability(
    spark: SparkSession, url: str, start: datetime, end: datetime, *, database: str = ""
) -> DataFrame:
    """How available each entity was from `start` to `end`, a row for each of which something is
    known then, whatever it was called: consumer, stream, id, class, uuid, name (the last one);
    `window_s`, `up_s`, `down_s`, `planned_s`, `unknown_s`, `unproven_s` in seconds; `percent`,
    `percent_at_least`, `percent_at_most` (of the time up and down, 0 to 100); `failures`, `mttr_s`,
    `mtbf_s`. `unknown_s` is no part of the percents: nothing was stated then.
    """
    window = _window(start, end)
    return answer(spark, url, "availability_between", database=database, **window)


def repair_times(
    spark: SparkSession, url: str, start: datetime, end: datetime, *, database: str = ""
) -> DataFrame:
    """How long the alarms lasted that ended from `start` to `end`, by `worst_severity`: `mttr_s`
    (mean), `longest_s` and `give_or_take_s` in seconds; `episodes`, and how many are `uncertain`.
    """
    window = _window(start, end)
    return answer(spark, url, "repair_between", database=database, **window)


def topology_at(
    spark: SparkSession, url: str, moment: datetime, *, database: str = ""
) -> DataFrame:
    """Nodes, links and end points that existed at a moment of the provider, as `topology` has
    them.
    """
    return answer(spark, url, "topology_at", database=database, moment=moment)


def entities_at(
    spark: SparkSession,
    url: str,
    moment: datetime,
    as_of: datetime | None = None,
    *,
    database: str = "",
) -> DataFrame:
    """The rows of `entity_history` that held at a moment of the provider, as far as had landed here
    at `as_of`, by our time; None: as far as is known now.
    """
    moments = {"moment": moment, "as_of": as_of}
    return answer(spark, url, "entities_at", database=database, **moments)


def failure_impact(
    spark: SparkSession, url: str, failed_uuid: str = "", *, database: str = ""
) -> DataFrame:
    """Connections and services with a route over a link, a node or a node edge point, and whether
    another route is left (`protected`). `failed_uuid`: only of this one.
    """
    found = answer(spark, url, "failure_impact", database=database)
    return found.where(found.failed_uuid == failed_uuid) if failed_uuid else found


def impact(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """Connections and services that each open alarm is on."""
    return answer(spark, url, "impact", database=database)


def alarm_places(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """Alarms with node and link, and their names, as the network is now."""
    return answer(spark, url, "alarm_places", database=database)


def alarm_floods(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """Spans of ten minutes in which more than ten alarms were raised (ANSI/ISA-18.2)."""
    return answer(spark, url, "alarm_floods", database=database)


def flapping(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """Detectors that were raised again within ten minutes of their last end; `raises`: how often in
    a row at most.
    """
    return answer(spark, url, "flapping", database=database)


def edges(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """Links as directed edges between nodes: both ways, or the one of a UNIDIRECTIONAL link."""
    return answer(spark, url, "edges", database=database)


def connection_hops(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """The end points that the routes of connections pass, in order, with their links."""
    return answer(spark, url, "connection_hops", database=database)


def link_capacity(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """Total, free and used capacity of links, in the unit of the total."""
    return answer(spark, url, "link_capacity", database=database)


def link_load(spark: SparkSession, url: str, *, database: str = "") -> DataFrame:
    """Capacity that services request over each link: bit rates in GBPS, widths in GHZ."""
    return answer(spark, url, "link_load", database=database)


def _window(start: datetime, end: datetime) -> dict[str, datetime]:
    if _micros("start", start) >= _micros("end", end):
        raise ConfigurationError(
            f"the window ends at {end.isoformat()}, not after its start at {start.isoformat()}",
            hint="give the earlier time first",
        )
    return {"window_start": start, "window_end": end}


def _micros(name: str, moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"{name} = {moment.isoformat()} has no zone",
            hint="give an aware time, such as datetime(2026, 11, 1, tzinfo=UTC)",
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)
