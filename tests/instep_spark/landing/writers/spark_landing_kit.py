"""A process that lands with the Spark writer at the given URL, and kills its JVM on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from pyspark import SparkContext

from instep.errors import StoreUnavailableError
from instep_spark.lake.lake import Lake
from instep_spark.session import SparkOptions, open_session
from tests.instep_spark.sink_kit import stage
from tests.instep_sql.store_kit import create_update


async def main(url: str, spark: dict[str, Any], *, kill: bool) -> None:
    async with stage(url, writer="spark", spark=spark) as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 100)])
        print("landed", flush=True)
        if kill:
            gateway: Any = SparkContext._gateway
            os.kill(gateway.proc.pid, signal.SIGKILL)
            gateway.proc.wait()
            batch = at.batch(create_update("k", 100))
            try:
                await at.sink.commit(batch)
            except StoreUnavailableError as error:
                print(error, flush=True)
            assert await at.sink.position(at.stream) == at.position
        lake = Lake(url, open_session(SparkOptions(**spark)), tables=["entity_history"])
        await at.commit(create_update("k", 100))
        lake.run(once=True)
        print(f"{lake.verify().right} right")
        estimate = await at.sink.estimate_sweep("s1", 1)
        print(f"{estimate.total} live", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), kill="--kill" in sys.argv))
