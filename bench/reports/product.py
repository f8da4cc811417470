"""The product as `instep run` runs it: a consumer, an `sdpi` source, a `sql` sink, defaults."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import time

import msgspec

from bench.report import Counting, Meter
from bench.reports.reading import Reading, StallMeter, peak_bytes
from instep import Consumer
from instep.model.batches import Batch, CommitResult
from instep.ports.recordable import Recordable
from instep.runtime.conformance import LiveConformance
from instep_sdpi.conformance import sdpi_rules
from instep_sdpi.plugin import source
from instep_sql import SqlStore

__all__ = ["TABLE", "main"]

TABLE = "instep_entity"
_ALIGNED_S = 300.0


class _Meter(SqlStore):
    """The store; it keeps when the last row was committed."""

    rows = 0
    committed_s = 0.0

    async def commit(self, batch: Batch) -> CommitResult:
        result = await super().commit(batch)
        if batch.records:
            self.rows += len(batch.records)
            self.committed_s = time.perf_counter()
        return result


async def _run(url: str, store: str, counting: Counting, *, judged: bool) -> None:
    sink = _Meter(f"sqlite:///{store}")
    sdpi = source.build({"provider": url, "listen": "127.0.0.1:0"}, "bench")
    assert isinstance(sdpi, Recordable)
    conformance = LiveConformance(sdpi_rules(), sdpi, "bench") if judged else None
    start_s = time.perf_counter()
    async with Consumer("bench", sdpi, sink, conformance=conformance) as consumer:
        gc.collect()
        gc.freeze()
        async with StallMeter() as meter:
            await consumer.aligned(_ALIGNED_S)
        seconds = sink.committed_s - start_s
        reading = Reading(sink.rows, seconds, peak_bytes(), meter.longest_s)
        spending = Meter(conformance, counting)
        print(msgspec.json.encode(reading).decode(), flush=True)
        waiting = asyncio.create_task(consumer.wait())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, waiting.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        (stream,) = consumer.health().streams
        if stream.attempt != 1 or stream.quarantined or stream.deviations:
            raise SystemExit(f"not the normal path: {stream}")
        print(msgspec.json.encode(spending.spent()).decode(), flush=True)


def main() -> None:
    """Read the MDIB, print how that went, and receive reports until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--store", required=True, metavar="FILE")
    parser.add_argument("--judged", action="store_true", help="judge the device meanwhile")
    Counting.option(parser)
    given = parser.parse_args()
    counting = Counting(given.count_into)
    asyncio.run(_run(given.url, given.store, counting, judged=given.judged))


if __name__ == "__main__":
    main()
