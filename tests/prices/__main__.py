"""What it costs to prove continuity, absence and existence, price by price.

    python -m tests.prices [--record]

One line a price. The exit code is 1 where one is above its limit. With `--record` the results are
written to `tests/prices/results.json`, from which the table of the documentation is made.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.prices.continuity import (
    busy_cuts,
    cleaned_tail_cuts,
    idle_streams,
    idle_truncated_cuts,
    sparse_storm,
)
from tests.prices.stores import one_connection, unproven_and_again

__all__ = ["RESULTS", "Price", "read_results"]

RESULTS: Final = Path(__file__).with_name("results.json")


class Price(NamedTuple):
    """One line of the table."""

    what: str
    found: str
    limit: str
    good: bool


def read_results() -> list[Price]:
    """The recorded prices."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=list[Price])


def _busy() -> Iterator[Price]:
    found = [busy_cuts(partitions) for partitions in (1, 3)]
    probes, attempts = (max(getattr(one, name) for one in found) for name in ("probes", "attempts"))
    yield Price(
        "1,000 cuts of a busy log with offsets, back within the compaction delay",
        f"{probes:,} probes, {attempts - 1:,} further attempts",
        "0 probes",
        all(one.equal for one in found) and not probes and attempts == 1,
    )


def _cleaned() -> Iterator[Price]:
    found = cleaned_tail_cuts()
    yield Price(
        "1,000 cuts, the record behind ours compacted away meanwhile",
        f"{found.probes:,} probes, {found.most_at_once} a cut at most, "
        f"{found.attempts - 1:,} further attempts",
        "1 probe each",
        found.equal and found.most_at_once <= 1,
    )


def _one_connection() -> Iterator[Price]:
    with tempfile.TemporaryDirectory(prefix="instep-prices-") as folder:
        found = asyncio.run(one_connection(Path(folder)))
    yield Price(
        "3 cuts in doubt; the provider closes the first connection at a second",
        f"{found.probes:,} probe, told {found.told:,} time, "
        + ("aligned at the end" if found.aligned else "not aligned at the end"),
        "1 probe ever",
        found.probes == 1 and found.aligned,
    )


def _idle() -> Iterator[Price]:
    found = idle_streams()
    yield Price(
        "1,000 idle streams, after a restart of the provider with its log",
        f"settled after {found.settled_s} s, {found.probes:,} probes, "
        f"{found.attempts:,} further attempts",
        "60 s",
        found.settled_s <= 60 and not found.attempts,
    )


def _truncated() -> Iterator[Price]:
    found = [
        idle_truncated_cuts(by_bytes=by_bytes, ever=ever)
        for by_bytes in (True, False)
        for ever in (True, False)
    ]
    baselines, probes = (max(one[at] for one in found) for at in (0, 1))
    yield Price(
        "an idle truncated stream, cut every 30 s for an hour",
        f"{baselines:,} baselines after the first, {probes:,} probes",
        "0 baselines after the first",
        not baselines,
    )


def _sparse() -> Iterator[Price]:
    baselines, told = sparse_storm()
    yield Price(
        "an hour of storm; offsets rise by 1 to 3, nothing is lost",
        f"{baselines:,} baselines, told {told:,} time",
        "3 baselines",
        baselines <= 3,
    )


def _million() -> Iterator[Price]:
    with tempfile.TemporaryDirectory(prefix="instep-prices-") as folder:
        offered, met = asyncio.run(unproven_and_again(Path(folder)))
    whole_s = offered.unproven_s + offered.again_s
    yield Price(
        f"{offered.entities:,} entities not offered, and offered again (SQLite)",
        f"{whole_s:.2f} s, {offered.rows} rows written",
        "1 s, 10 rows",
        whole_s < 1
        and offered.rows <= 10
        and (offered.unproven, offered.unproven_after) == (offered.entities, 0),
    )
    yield Price(
        f"{met.entities:,} entities unproven by a record that could not be read",
        f"{met.unproven_s:.2f} s; {met.rows} rows written, with those of the attempt that proves "
        f"them again, whose sweep passes the table in {met.again_s:.1f} s",
        "1 s, 10 rows",
        met.unproven_s < 1
        and met.rows <= 10
        and (met.unproven, met.unproven_after) == (met.entities, 0),
    )


_PRICES: Final[tuple[Callable[[], Iterator[Price]], ...]] = (
    *(_busy, _cleaned, _one_connection, _idle, _truncated, _sparse, _million),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write the results")
    given = parser.parse_args()
    found: list[Price] = []
    for measure in _PRICES:
        for price in measure():
            found.append(price)
            told = "" if price.good else ": ABOVE ITS LIMIT"
            print(f"{price.what}: {price.found} (limit: {price.limit}){told}", flush=True)
    if given.record:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return 0 if all(price.good for price in found) else 1


if __name__ == "__main__":
    sys.exit(main())
