"""A BICEPS device: it answers requests, and sends its reports one after the other.

A process of its own. It begins to send when it is told to on its input. As R1014 of SDPi demands,
it sends the next report when the last one was confirmed. Reports are built before the clock starts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import sys
import time
from typing import Final

import msgspec
from aiohttp import web
from yarl import URL

from bench.report import Result
from bench.reports import device
from bench.sequences.inbox_sender import SerialSender

__all__ = ["main"]

_ACTION: Final = re.compile(rb":Action[^>]*>[^<]*/(\w+)<")
_NOTIFY_TO: Final = re.compile(rb"NotifyTo><[^>]*Address>([^<]+)<")


class _Device:
    def __init__(self, metrics: int) -> None:
        self._mdib = device.mdib(metrics)
        self.url = ""
        self.notify_to = ""
        """Where the last one that has subscribed wants its reports."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        action = _ACTION.search(raw)
        name = action[1].decode() if action else ""
        if name == "Get":
            return web.Response(body=device.metadata(self.url))
        if name == "GetMdib":
            return web.Response(body=self._mdib)
        if name == "GetContextStates":
            return web.Response(body=device.context_states())
        if name == "Subscribe":
            notify_to = _NOTIFY_TO.search(raw)
            self.notify_to = notify_to[1].decode() if notify_to else ""
        if name in {"Subscribe", "GetStatus", "Unsubscribe"}:
            return web.Response(body=device.granted(name, self.url))
        return web.Response(status=400, text=f"not expected: {name}")


def _requests(url: URL, reports: int, states: int, metrics: int) -> list[bytes]:
    head = (
        f"POST {url.raw_path} HTTP/1.1\r\nHost: {url.authority}\r\n"
        "Content-type: application/soap+xml; charset=utf-8\r\nAccept: */*\r\n"
        "Accept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.11 aiohttp/3.14.5\r\n"
    )
    bodies = (device.report(str(url), number, states, metrics) for number in range(1, reports + 1))
    return [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]


async def _send(url: URL, requests: list[bytes]) -> Result:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(SerialSender, "127.0.0.1", url.port or 0)
    start_s = time.perf_counter()
    await connection.send(requests)
    return Result(len(requests), time.perf_counter() - start_s, [])


async def _run(reports: int, states: int, metrics: int) -> None:
    known = _Device(metrics)
    runner = web.ServerRunner(web.Server(known.answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    known.url = f"http://127.0.0.1:{runner.addresses[0][1]}/device"
    print(known.url, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    url = URL(known.notify_to)
    requests = _requests(url, reports, states, metrics)
    gc.freeze()
    print(msgspec.json.encode(await _send(url, requests)).decode(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await runner.cleanup()


def main() -> None:
    """Print the URL; after a line of input send the reports, and print how long it took until all
    were confirmed; end after another line.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, required=True)
    parser.add_argument("--states", type=int, required=True, help="of each report")
    parser.add_argument("--metrics", type=int, required=True, help="of the MDIB")
    given = parser.parse_args()
    asyncio.run(_run(given.reports, given.states, given.metrics))


if __name__ == "__main__":
    main()
