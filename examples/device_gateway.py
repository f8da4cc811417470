"""A gateway of a medical device: its values and alerts into a store, and each change printed.

    pip install "instep[soap]"
    python examples/device_gateway.py [XADDR]

The store is the MDIB of the device, by handle. A report that is missing, doubled or overtaken
changes nothing about that. Without XADDR, a small monitor is simulated (`pip install sdc11073`).
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from simulation import described, temporary

from instep import Consumer
from instep_sdpi import SdpiSource, read_options
from instep_sql import SqlStore

CLASSES = ["NumericMetricState", "AlertConditionState"]


async def main(device: str, url: str, seconds: float) -> None:
    options = {"provider": device, "listen": "127.0.0.1:0"}
    source = SdpiSource(read_options(options, "device_gateway.py"))
    store = SqlStore(url, journal="bodies")
    async with Consumer("bed-7", source, store) as consumer:
        await consumer.aligned()
        print("the store is the MDIB of the device", flush=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for batch in store.reader.subscribe(classes=CLASSES):
                    for change in batch:
                        state = json.loads(change.body or b"{}")
                        value = state.get("MetricValue", {}).get("Value")
                        told = f"is {value}" if value else f"presence {state.get('Presence')}"
                        print(change.key.removeprefix("state/"), told, flush=True)


@asynccontextmanager
async def simulated() -> AsyncIterator[str]:
    """The address of a monitor that is simulated while the block runs."""
    program = str(Path(__file__).with_name("device_simulation.py"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def run(device: str | None, url: str, seconds: float) -> None:
    if device is not None:
        await main(device, url, seconds)
        return
    async with simulated() as address:
        await main(address, url, seconds)


if __name__ == "__main__":
    parser = described(__doc__)
    parser.add_argument("device", nargs="?", metavar="XADDR", help="the address of the device")
    parser.add_argument("--store", dest="url", default=f"sqlite:///{temporary('bed.db')}")
    parser.add_argument("--seconds", type=float, default=3, help="how long to follow (3)")
    with suppress(KeyboardInterrupt):
        asyncio.run(run(**vars(parser.parse_args())))
