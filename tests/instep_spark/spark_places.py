"""A process that lands with the Spark writer where it is told, and kills its JVM on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from pyspark import SparkContext

from instep.errors import StoreUnavailableError
from tests.instep_spark.lakes import stage
from tests.instep_sql.made import said


async def main(url: str, spark: dict[str, Any], *, kill: bool) -> None:
    async with stage(url, writer="spark", spark=spark) as at:
        await at.commit(*[said(f"k{n}", n) for n in range(1, 100)])
        print("landed", flush=True)
        if kill:
            gateway: Any = SparkContext._gateway
            os.kill(gateway.proc.pid, signal.SIGKILL)
            gateway.proc.wait()
            batch = at.batch(said("k", 100))
            try:
                await at.sink.commit(batch)
            except StoreUnavailableError as error:
                print(error, flush=True)
            assert await at.sink.position(at.stream) == at.position
        await at.commit(said("k", 100))
        census = await at.sink.census("s1", 1)
        print(f"{census.total} live", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), kill="--kill" in sys.argv))
