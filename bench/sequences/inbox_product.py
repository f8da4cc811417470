"""The product as a user runs it: a receiver, a listener of the protocol, a `sql` sink, settings by
default, no handler: messages go to the store's own table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

from yarl import URL

from bench.sequences.protocols import DIDCOMM, PATH, PROTOCOLS
from instep import Receiver
from instep.ports import Listener
from instep_didcomm.plugin import source as didcomm
from instep_sql import SqlStore
from instep_wsr.plugin import source as wsr
from instep_wsrm.plugin import source as wsrm

__all__ = ["TABLE", "main"]

TABLE: Final = "instep_message"


_BUILD: Final[dict[str, Callable[[Mapping[str, Any], str], Listener]]] = {
    "didcomm": didcomm.build,
    "wsrm": wsrm.build,
    "wsr": wsr.build,
}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "didcomm": {"protocols": [{"type": f"{DIDCOMM}/*", "sequenced": True}]},
    "wsr": {"max_expiry_s": 1e9},
}


async def _run(store: str, protocol: str) -> None:
    options = {"listen": f"http://127.0.0.1:0{PATH}", **_OPTIONS.get(protocol, {})}
    listener = _BUILD[protocol](options, "bench")
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
    parser.add_argument("--protocol", choices=PROTOCOLS, default="didcomm")
    given = parser.parse_args()
    asyncio.run(_run(given.store, given.protocol))


if __name__ == "__main__":
    main()
