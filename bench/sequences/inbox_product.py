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

import msgspec
from yarl import URL

from bench.report import Counting, Meter
from bench.sequences.protocols import DIDCOMM, PATH, PROTOCOLS
from instep import Receiver
from instep.ports import Listener
from instep.ports.recordable import Recordable
from instep.runtime.conformance import LiveConformance
from instep_didcomm.conformance import didcomm_rules
from instep_didcomm.plugin import source as didcomm
from instep_sql import SqlStore
from instep_wsr.conformance import wsr_rules
from instep_wsr.plugin import source as wsr
from instep_wsrm.conformance import wsrm_rules
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


_RULES: Final = {"didcomm": didcomm_rules, "wsrm": wsrm_rules, "wsr": wsr_rules}


async def _run(store: str, protocol: str, counting: Counting, *, judged: bool) -> None:
    options = {"listen": f"http://127.0.0.1:0{PATH}", **_OPTIONS.get(protocol, {})}
    listener = _BUILD[protocol](options, "bench")
    assert isinstance(listener, Recordable)
    conformance = LiveConformance(_RULES[protocol](), listener, "bench") if judged else None
    sink = SqlStore(f"sqlite:///{store}")
    async with Receiver("bench", listener, sink, conformance=conformance) as receiver:
        await receiver.aligned(60)
        meter = Meter(conformance, counting)
        print(URL(receiver.address).port, flush=True)
        waiting = asyncio.create_task(receiver.wait())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, waiting.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        health = receiver.health().intake
        if health is None or health.refused or health.duplicates or health.deviations:
            raise SystemExit(f"not the normal path: {health}")
        print(msgspec.json.encode(meter.spent()).decode(), flush=True)


def main() -> None:
    """Listen on a free port, print it, and receive until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, metavar="FILE")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="didcomm")
    parser.add_argument("--judged", action="store_true", help="judge the senders meanwhile")
    Counting.option(parser)
    given = parser.parse_args()
    counting = Counting(given.count_into)
    asyncio.run(_run(given.store, given.protocol, counting, judged=given.judged))


if __name__ == "__main__":
    main()
