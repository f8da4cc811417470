"""WebSocket frames for rules (RFC 6455 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from instep.testing.relay.http import HttpRule
from instep.testing.relay.rule import Side, together
from instep.testing.relay.streams import Stream

__all__ = ["Frame", "Opcode", "WebSocketRule"]

_MOST_FRAME_BYTES = 64 * 1024 * 1024


class Opcode(IntEnum):
    """What a frame is (RFC 6455 5.2)."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


@dataclass(frozen=True)
class Frame:
    """A frame, without its mask."""

    opcode: int
    payload: bytes = b""
    final: bool = True
    compressed: bool = False
    """RSV1: the message is compressed (RFC 7692)."""
    mask: bytes = b""
    """Four bytes in a frame of the client, none in one of the server."""

    @property
    def control(self) -> bool:
        """Whether it is a Ping, a Pong or a Close."""
        return self.opcode >= Opcode.CLOSE

    def encode(self) -> bytes:
        """The bytes on the wire."""
        first = self.final << 7 | self.compressed << 6 | self.opcode
        masked, length = len(self.mask) << 5, len(self.payload)
        if length < 126:
            head = bytes((first, masked | length))
        elif length < 1 << 16:
            head = bytes((first, masked | 126)) + length.to_bytes(2, "big")
        else:
            head = bytes((first, masked | 127)) + length.to_bytes(8, "big")
        return head + self.mask + _masked(self.payload, self.mask)


async def read_frame(stream: Stream) -> Frame:
    """The next frame. Raises `ConnectionError` at the end."""
    first, second = await stream.read_exactly(2)
    length = second & 127
    if length >= 126:
        length = int.from_bytes(await stream.read_exactly(2 if length == 126 else 8), "big")
    if length > _MOST_FRAME_BYTES:
        raise ConnectionResetError("a frame is too long")
    mask = await stream.read_exactly(4) if second & 128 else b""
    payload = _masked(await stream.read_exactly(length), mask)
    return Frame(first & 15, payload, bool(first & 128), bool(first & 64), mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    if not mask:
        return payload
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    whole = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return whole.to_bytes(len(payload), "big")


class WebSocketRule(HttpRule):
    """A rule for WebSockets: it stands between the frames of both sides.

    Override `frame_from_client` or `frame_from_server`. Whatever is HTTP passes as it came.
    """

    sides = frozenset({Side.PROVIDER})
    protocol = "WebSocket"

    async def upgraded(self, client: Stream, server: Stream) -> None:
        """Pass the frames of both sides on, to the end."""

        async def pump(source: Stream, target: Stream, *, up: bool) -> None:
            while True:
                frame = await read_frame(source)
                frames = (self.frame_from_client if up else self.frame_from_server)(frame)
                if frames:
                    await target.write(b"".join(one.encode() for one in frames))
                    if frames[-1].opcode == Opcode.CLOSE:
                        return  # the other side answers, and closes

        await together(pump(client, server, up=True), pump(server, client, up=False))

    def frame_from_client(self, frame: Frame) -> Sequence[Frame]:
        """The frames that go to the server for one of the client."""
        return (frame,)

    def frame_from_server(self, frame: Frame) -> Sequence[Frame]:
        """The frames that go to the client for one of the server."""
        return (frame,)


def fragments(frame: Frame, size: int) -> list[Frame]:
    """A frame in several, each with so many bytes at most (RFC 6455 5.4)."""
    starts = range(0, max(len(frame.payload), 1), size)
    parts = [frame.payload[at : at + size] for at in starts]
    return [
        replace(
            frame,
            opcode=Opcode.CONTINUATION if place else frame.opcode,
            payload=part,
            final=frame.final and place == len(parts) - 1,
            # RSV1 is set on the first frame of a message only (RFC 7692 6.1).
            compressed=frame.compressed and not place,
        )
        for place, part in enumerate(parts)
    ]
