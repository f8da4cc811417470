"""A hundred senders of numbered messages by HTTP: each sends its next one when the last was
accepted.

Requests are built before, connections stay open, and of an answer only the status is read, so that
it costs the measured process little. Plaintext DIDComm, each sender with a thread of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from typing import Final

import msgspec

from bench.report import Result

__all__ = ["PATH", "PROTOCOL", "message"]

PATH: Final = "/didcomm"
PROTOCOL: Final = "https://example.org/bench/1.0"
_BODY_BYTES: Final = 500
_END: Final = b"\r\n\r\n"
_TAKEN: Final = b"HTTP/1.1 202 "


def message(sender: int, number: int) -> bytes:
    """Return the body of the request for one message."""
    plaintext = {
        "id": f"{sender:04d}-{number:07d}",
        "type": f"{PROTOCOL}/say",
        "from": f"did:example:{sender:04d}",
        "thid": f"thread-{sender:04d}",
        "created_time": 1_700_000_000,
        "sender_order": number,
        "body": {"text": "x" * _BODY_BYTES},
    }
    return msgspec.json.encode(plaintext)


def _request(sender: int, number: int) -> bytes:
    body = message(sender, number)
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/didcomm-plain+json\r\nContent-Length: %d\r\n\r\n%b"
    ) % (PATH.encode(), len(body), body)


class _Sender(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self, requests: list[bytes]) -> None:
        self._requests = iter(requests)
        self._received = b""
        self._transport: asyncio.WriteTransport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def start(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self.done.done():
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._received.endswith(_END):
            return
        received, self._received = self._received, b""
        if received.startswith(_TAKEN):
            self.start()
        elif not self.done.done():
            self.done.set_exception(SystemExit(f"not taken: {received[:300]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(SystemExit(f"the connection ended: {exc}"))


async def _run(port: int, senders: int, requests: list[list[bytes]]) -> Result:
    loop = asyncio.get_running_loop()
    open_now = [
        (await loop.create_connection(lambda: _Sender(requests[at]), "127.0.0.1", port))[1]  # noqa: B023
        for at in range(senders)
    ]
    start_s = time.perf_counter()
    for sender in open_now:
        sender.start()
    await asyncio.gather(*(sender.done for sender in open_now))
    seconds = time.perf_counter() - start_s
    return Result(sum(map(len, requests)), seconds, [])


def main() -> None:
    """Send so many messages to a port, and print how long it took until all were accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--senders", type=int, required=True)
    parser.add_argument("--messages", type=int, required=True, help="of each sender")
    given = parser.parse_args()
    requests = [
        [_request(sender, number) for number in range(1, given.messages + 1)]
        for sender in range(given.senders)
    ]
    gc.freeze()
    result = asyncio.run(_run(given.port, given.senders, requests))
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
