"""A small lake of a simulated provider, for the examples that look at one."""

import asyncio
from pathlib import Path

from simulation import provider, temporary

from instep import Consumer
from instep_spark import DeltaSink, Lake
from instep_spark.session import SparkOptions, open_session
from instep_tapi import TapiSource, read_options


async def land(lake: str, seconds: float) -> None:
    """Land what a simulated provider tells, for so long, in the table `changes`: without Spark."""
    async with provider(None) as endpoint:
        source = TapiSource(read_options({"endpoints": [endpoint]}, "lake_simulation.py"))
        async with Consumer("simulation", source, DeltaSink(lake)) as consumer:
            await consumer.aligned()
            await asyncio.sleep(seconds)


def landed_lake(seconds: float = 20) -> str:
    """The URL of a temporary lake with `changes` alone."""
    lake = Path(temporary("lake")).as_uri()
    print(f"landing for {seconds:g} s in {lake}", flush=True)
    asyncio.run(land(lake, seconds))
    return lake


def simulated_lake() -> str:
    """The URL of a temporary lake with all its tables."""
    lake = landed_lake()
    spark = open_session(SparkOptions())
    try:
        print("making the tables on Spark", flush=True)
        Lake(lake, spark).run(once=True)
    finally:
        spark.stop()
    return lake
