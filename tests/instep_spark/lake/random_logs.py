"""Many random logs, as streams of one lake, cut into micro-batches in five ways: each table has to
come to what a plain loop over the rows says, closed rows too, and what exists at the end to what
the provider itself has.

Run by hand: `python -m tests.instep_spark.lake.random_logs --logs 500`. A log that differs is named
by its stream; `--first N --logs 1` runs it alone.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from msgspec.structs import replace

from instep_spark.lake.batches import micro_batch
from instep_spark.lake.pipeline import LakeSettings
from instep_spark.place import Layout
from instep_spark.session import SparkOptions, open_session
from tests.instep_spark.lake.change_log_kit import PartialProvider
from tests.instep_spark.lake.lake_kit import (
    UNGUARDED,
    alarms_of,
    ends,
    entities_of,
    health_of,
    history_of,
    nodes_of,
    pipeline,
    read,
)
from tests.instep_spark.lake.log_kit import Provider, Row, Twins, land
from tests.instep_spark.lake.model_kit import Key, Model
from tests.instep_spark.spark_server_kit import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
Log = list[Row]
Way = Callable[[Sequence[Log], random.Random], list[Log]]
"""Cuts logs into micro-batches."""
HOURS_US: Final = 3_600_000_000
TABLES: Final = ("entity_history", "alarms", "topology", "stream_health")


def providers_of(first: int, count: int, steps: int) -> list[Provider]:
    """Providers by seed: with offsets and without, with event times hours off and without, from
    the log and from a baseline, with one uuid in several places and without, of whole entities and
    of changes only. Each ends with an attempt that reads what there is.
    """
    made: list[Provider] = []
    for seed in range(first, first + count):
        behind_us = (seed % 5) * HOURS_US
        if seed % 32 == 6:
            made.append(
                PartialProvider(
                    *(seed, f"s{seed}"),
                    offsets=seed % 3 != 0,
                    behind_us=behind_us,
                    full_history=seed % 64 == 6,
                )
            )
            made[-1].run(2 * steps)
            made[-1].realign()
            continue
        if seed % 4 == 3:
            made.append(Twins(seed, f"s{seed}", offsets=seed % 8 == 3))
            made[-1].run(steps)
            made[-1].realign()
            continue
        made.append(
            Provider(
                *(seed, f"s{seed}"),
                keys=4,
                offsets=seed % 3 != 0,
                behind_us=behind_us,
                baseline=seed % 3 == 1,
            )
        )
        made[-1].run(steps)
        made[-1].realign()
    return made


def whole(logs: Sequence[Log], _chance: random.Random) -> list[Log]:
    """All in one."""
    return [[row for log in logs for row in log]]


def halves(logs: Sequence[Log], _chance: random.Random) -> list[Log]:
    """Each log in the middle."""
    first = [row for log in logs for row in log[: len(log) // 2]]
    return [first, [row for log in logs for row in log[len(log) // 2 :]]]


def anywhere(logs: Sequence[Log], chance: random.Random) -> list[Log]:
    """Each log at three places of its own."""
    made: list[Log] = [[], [], [], []]
    for log in logs:
        cuts = sorted(chance.sample(range(1, len(log)), 3))
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(log)], strict=True)):
            made[number] += log[begin:end]
    return made


def with_gaps(logs: Sequence[Log], chance: random.Random) -> list[Log]:
    """A sample of the first part, some of it late, then the rest: what lies between is read from
    `changes`.
    """
    first, rest = halves(logs, chance)
    return [chance.sample(first, len(first) // 2), first[:3], rest]


def late_and_repeated(logs: Sequence[Log], chance: random.Random) -> list[Log]:
    """What came is brought again, and what was brought comes late."""
    first, second, third, fourth = anywhere(logs, chance)
    return [first, [*first, *second], [*third, *fourth], second, first]


WAYS: Final[tuple[Way, ...]] = (whole, halves, anywhere, with_gaps, late_and_repeated)


def differences(lake: Path, providers: Sequence[Provider]) -> list[tuple[str, str]]:
    """Table and stream of each entity that is not what it should be."""
    model = Model()
    names: dict[tuple[str, str], str] = {}
    for provider in providers:
        model.read(provider.rows, provider.statements)
        names |= {(provider.stream, key): name for key, name in provider.names.items()}
    ids = names_by_id(lake, names)

    def named(found: Mapping[Key, _T]) -> dict[Key, _T]:
        """What a table has, by the names that the provider has for entities."""
        return {
            (consumer, stream, ids.get((stream, id_), id_)): one
            for (consumer, stream, id_), one in found.items()
        }

    alive = {row.at: row for provider in providers for row in provider.alive}
    bodies = {at: row.body for at, row in alive.items()}
    content = {provider.stream: provider.content for provider in providers}
    entities = {
        at: (content[at[1]](body), *rest)
        for at, (body, *rest) in named(entities_of(lake, "id")).items()
    }
    history = {
        at: [{**one, "body": content[at[1]](one["body"])} for one in past]
        for at, past in named(history_of(lake, "id")).items()
    }
    alarms = named(alarms_of(lake, "id"))
    lasting = {at: past[-1]["body"] for at, past in history.items() if past[-1]["to"] is None}
    raised = {at for at, past in alarms.items() if past[-1].cleared_at is None}
    sides: dict[str, tuple[dict[Any, Any], dict[Any, Any]]] = {
        "entities": (entities, model.current()),
        "entity_history": (history, {at: past for at, past in model.history.items() if past}),
        "alarms": (alarms, {at: past for at, past in model.alarms.items() if past}),
        "topology": (
            named(nodes_of(lake, "id")),
            {at: row.node for at, row in alive.items() if not row.detector},
        ),
        "stream_health": (
            health_of(lake),
            {at: minute.facts for at, minute in model.minutes.items()},
        ),
        # Two rows of one entity would be one above.
        "entities, rows": rows_by_stream(read(lake, "entities"), alive),
        "topology, rows": rows_by_stream(
            read(lake, "topology"), {at for at, row in alive.items() if not row.detector}
        ),
        "entities, as the provider": ({at: body for at, (body, *_) in entities.items()}, bodies),
        "entity_history, as the provider": (lasting, bodies),
        "alarms, as the provider": (
            dict.fromkeys(raised),
            dict.fromkeys(at for at, row in alive.items() if row.detector),
        ),
    }
    return sorted(
        {
            (table, at[1])
            for table, (found, wanted) in sides.items()
            for at in found.keys() | wanted.keys()
            if at not in found or at not in wanted or found[at] != wanted[at]
        }
    )


def rows_by_stream(
    rows: Sequence[Mapping[str, Any]], wanted: Iterable[Key]
) -> tuple[dict[Key, int], dict[Key, int]]:
    """How many rows of each stream there are, and should be."""
    found = Counter((row["consumer"], row["stream"], "") for row in rows)
    return dict(found), dict(Counter((*at[:2], "") for at in wanted))


def names_by_id(lake: Path, names: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """The names of entities by stream and id: that of the key under which each came first."""
    found: dict[tuple[str, str], str] = {}
    for row in sorted(read(lake, "entity_history"), key=lambda row: row["ordinal"]):
        key = (row["stream"], row["key"])
        found.setdefault((row["stream"], row["id"]), names.get(key, row["key"]))
    return found


def run(
    spark: SparkSession,
    folder: Path,
    providers: Sequence[Provider],
    ways: Sequence[Way] = WAYS,
    settings: LakeSettings = UNGUARDED,
) -> list[str]:
    """Try the ways; what differs."""
    logs = [provider.rows for provider in providers]
    land(folder / "landed", [row for log in logs for row in log])
    wrong: list[str] = []
    for way in ways:
        lake = folder / way.__name__
        shutil.copytree(folder / "landed" / "changes", lake / "changes")
        begun_s = time.monotonic()
        *batches, last = way(logs, random.Random(len(logs)))
        made = pipeline(spark, lake, tables=TABLES, settings=settings)
        for rows in batches:
            made.apply(spark, ends(rows))
        # The last one as after a stop.
        pipeline(spark, lake, tables=TABLES, settings=settings).apply(spark, ends(last))
        found = differences(lake, providers)
        print(
            f"{way.__name__}: {len(found)} differ, {time.monotonic() - begun_s:.0f} s", flush=True
        )
        wrong += [f"{way.__name__}: {table} of {stream}" for table, stream in found]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--steps", type=int, default=9, help="of each log")
    parser.add_argument("--ways", type=int, default=len(WAYS), help="how many of the ways")
    names = [way.__name__ for way in WAYS]
    parser.add_argument("--only", choices=names, help="this way alone, to go on piece by piece")
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--layout", choices=get_args(Layout), default="copy-on-write")
    parser.add_argument("--by-spark", action="store_true", help="leave all tables to Spark")
    parser.add_argument("--from-files", action="store_true", help="let the driver hold no rows")
    chosen = parser.parse_args()
    settings = replace(UNGUARDED, layout=chosen.layout, by_driver=not chosen.by_spark)
    if chosen.from_files:
        setattr(micro_batch, "SMALL_RECORDS", 0)  # noqa: B010 — a constant elsewhere
    spark = open_session(SparkOptions(master="local[2]", config=QUICK))
    providers = providers_of(chosen.first, chosen.logs, chosen.steps)
    with tempfile.TemporaryDirectory(prefix="instep-logs-") as name:
        ways = [way for way in WAYS if way.__name__ == chosen.only] or WAYS[-chosen.ways :]
        wrong = run(spark, Path(name), providers, ways, settings)
    rows = sum(len(provider.rows) for provider in providers)
    print(f"{len(providers)} logs, {rows:,} rows, {len(ways)} ways: {len(wrong)} differ")
    print("\n".join(wrong[:20]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
