"""The product as a user runs it: a receiver, a `didcomm` listener, a `sql` sink, settings by
default, no handler: messages go to the store's own table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from typing import Final

from yarl import URL

from bench.sequences.inbox_sender import PATH, PROTOCOL
from instep import Receiver
from instep_didcomm import DidcommListener, read_options
from instep_sql import SqlStore

__all__ = ["TABLE", "main"]

TABLE: Final = "instep_message"


async def _run(store: str) -> None:
    options = {
        "listen": f"http://127.0.0.1:0{PATH}",
        "protocols": [{"type": f"{PROTOCOL}/*", "sequenced": True}],
    }
    listener = DidcommListener(read_options(options, "bench"))
    async with Receiver("bench", listener, SqlStore(f"sqlite:///{store}")) as receiver:
        await receiver.aligned(60)
        print(URL(receiver.address).port, flush=True)
        waiting = asyncio.create_task(receiver.wait())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, waiting.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        health = receiver.health().intake
        if health is None or health.refused or health.duplicates or health.deviations:
            raise SystemExit(f"not the normal path: {health}")


def main() -> None:
    """Listen on a free port, print it, and receive until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, metavar="FILE")
    asyncio.run(_run(parser.parse_args().store))


if __name__ == "__main__":
    main()
