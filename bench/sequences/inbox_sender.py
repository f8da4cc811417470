"""A hundred senders of numbered messages by HTTP: each sends its next one when the last was
accepted.

Requests are built before, connections stay open, and of an answer only the status is read, so that
it costs the measured process little. Each sender has a scope of its own: a thread, a sequence or a
group, opened before the clock starts where the protocol opens it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from bench.report import Result
from bench.sequences.protocols import PROTOCOLS, Protocol, request

__all__ = ["SerialSender", "main"]

_END: Final = b"\r\n\r\n"
_TAKEN: Final = (b"HTTP/1.1 200 ", b"HTTP/1.1 202 ")
_LENGTH: Final = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
_IDENTIFIER: Final = re.compile(rb"Identifier>([^<]+)<")


class SerialSender(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self) -> None:
        self._requests: Iterator[bytes] = iter(())
        self._received = b""
        self._transport: asyncio.WriteTransport | None = None
        self._done: asyncio.Future[bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def send(self, requests: list[bytes]) -> asyncio.Future[bytes]:
        """Send one after the other; the result is the last answer."""
        self._done = asyncio.get_running_loop().create_future()
        self._requests = iter(requests)
        self._next(b"")
        return self._done

    def _next(self, answer: bytes) -> None:
        assert self._transport is not None
        following = next(self._requests, None)
        if following is not None:
            self._transport.write(following)
        elif not self._done.done():
            self._done.set_result(answer)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_END)
        if not end:
            return
        stated = _LENGTH.search(head)
        if len(body) < (int(stated[1]) if stated else 0):
            return
        self._received = b""
        if head.startswith(_TAKEN):
            self._next(body)
        elif not self._done.done():
            self._done.set_exception(SystemExit(f"not taken: {head + body[:300]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(SystemExit(f"the connection ended: {exc}"))


async def _scope(sender: SerialSender, protocol: Protocol, place: int) -> str:
    """The scope of a sender, opened where the first message does not do that."""
    if not protocol.opening:
        return f"{place:04d}"
    answer = await sender.send([request(protocol, protocol.opening)])
    found = _IDENTIFIER.search(answer)
    return found[1].decode() if found else f"urn:bench:{place:04d}"


async def _run(port: int, senders: int, messages: int, protocol: Protocol) -> Result:
    loop = asyncio.get_running_loop()
    open_now = [
        (await loop.create_connection(SerialSender, "127.0.0.1", port))[1] for _ in range(senders)
    ]
    first = protocol.first_number
    requests = []
    for place, sender in enumerate(open_now):
        scope = await _scope(sender, protocol, place)
        numbers = range(first, first + messages)
        requests.append([request(protocol, protocol.message(scope, n)) for n in numbers])
    gc.freeze()
    start_s = time.perf_counter()
    await asyncio.gather(*map(SerialSender.send, open_now, requests))
    seconds = time.perf_counter() - start_s
    return Result(sum(map(len, requests)), seconds, [])


def main() -> None:
    """Send so many messages to a port, and print how long it took until all were accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--senders", type=int, required=True)
    parser.add_argument("--messages", type=int, required=True, help="of each sender")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="didcomm")
    given = parser.parse_args()
    run = _run(given.port, given.senders, given.messages, PROTOCOLS[given.protocol])
    print(msgspec.json.encode(asyncio.run(run)).decode())


if __name__ == "__main__":
    main()
