"""The product as a user runs it: a consumer, a `tapi` source, a `sql` sink, settings by default.

Measured from the opening of the stream to the commit of the last record; discovery and the opening
of the store come before, closing comes after.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from bench.report import Counting, Meter, Result, rss_bytes, settle
from instep import Consumer
from instep.alignment.settings import AlignmentSettings
from instep.model.batches import Batch, CommitResult
from instep.model.position import Position
from instep.model.streams import StreamInfo
from instep.runtime.conformance import LiveConformance
from instep.runtime.settings import ConsumerSettings
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options
from instep_tapi.conformance.book import tapi_rules

__all__ = ["main"]

_ALIGNED_S = 120.0
_REPORTED_S = 1.0
"""A report is at most so old."""
_PREPARING = ConsumerSettings(alignment=AlignmentSettings(quiet_s=0.5))
"""Settings of the run that fills a store and is not measured: it need not wait long for its
sweep."""
_EXPECTED = {"event-time-nested", "needless-prefix", "offset-missing"}
"""The deviation of the alarm in TR-548 6.3: its time is nested, where the YANG has it flat; and
those of its other shapes."""


class _Meter(SqlStore):
    """The store; it records the times of the commits."""

    def __init__(self, url: str, records: int, begin: Callable[[], Meter], **options: Any) -> None:
        super().__init__(url, **options)
        self._expected = records
        self._begin = begin
        self._meter: Meter | None = None
        self._start_s = 0.0
        self._memory: list[tuple[int, int]] = []
        self._done = 0
        self._before = 0
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async def position(self, stream: StreamInfo) -> Position:
        position = await super().position(stream)
        self._before = position.records
        settle()
        self._meter = self._begin()
        self._start_s = time.perf_counter()
        return position

    async def commit(self, batch: Batch) -> CommitResult:
        result = await super().commit(batch)
        self._done = batch.position.records - self._before
        self._memory.append((self._done, rss_bytes()))
        if self._done >= self._expected and not self.result.done():
            seconds = time.perf_counter() - self._start_s
            assert self._meter is not None
            spent = self._meter.spent()
            self.result.set_result(
                Result(
                    self._done,
                    seconds,
                    self._memory,
                    spent.cpu_seconds,
                    judging_seconds=spent.judging_seconds,
                )
            )
        return result


_KEPT: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "references": {"references": True},
    "projection": {"projections": ["alarm"]},
    "alarms": {"alarms": True},
}


async def _run(
    url: str,
    store: str,
    records: int,
    options: dict[str, Any],
    *,
    counting: Counting,
    prepare: bool,
    judged: bool,
) -> Result:
    settings = _PREPARING if prepare else None
    tapi = TapiSource(read_options({"endpoints": [url]}, "bench"))
    conformance = LiveConformance(tapi_rules(), tapi, "bench") if judged else None
    sink = _Meter(store, records, partial(Meter, conformance, counting), **options)
    async with Consumer("bench", tapi, sink, settings, conformance=conformance) as consumer:
        failed = asyncio.create_task(consumer.wait())
        either: list[asyncio.Future[Any]] = [failed, sink.result]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        failed.cancel()
        if prepare:
            await consumer.aligned(_ALIGNED_S)
        (stream,) = consumer.health().streams
        told = {kind for kind in stream.deviations if not kind.startswith("tapi-")}
        if stream.attempt != 1 or stream.quarantined or told - _EXPECTED:
            raise SystemExit(f"not the normal path: {stream}")
        result = sink.result.result()
        if conformance is None:
            return result
        await asyncio.sleep(_REPORTED_S)
        return msgspec.structs.replace(result, judged=conformance.report().messages)


def main() -> None:
    """Receive so many records into a store, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--store", required=True, metavar="URL")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--kept", default="", choices=sorted(_KEPT))
    parser.add_argument("--prepare", action="store_true", help="fill a store until it is aligned")
    parser.add_argument("--judged", action="store_true", help="judge the provider meanwhile")
    Counting.option(parser)
    given = parser.parse_args()
    counting = Counting(given.count_into)
    options = {"journal": "changes" if given.journal else "off", **_KEPT[given.kept]}
    result = asyncio.run(
        _run(
            given.url,
            given.store,
            given.records,
            options,
            counting=counting,
            prepare=given.prepare,
            judged=given.judged,
        )
    )
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
