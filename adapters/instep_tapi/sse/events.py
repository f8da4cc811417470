"""Reads a stream of server-sent events (W3C EventSource, TR-548 3.7.1). Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

from typing import Final

__all__ = ["EventParser", "EventTooBig"]

_BOM: Final = b"\xef\xbb\xbf"
_MAX_RETRY_MS: Final = 10**9


class EventTooBig(Exception):
    """An event, or a line of it, exceeds the limit."""


class EventParser:
    """Reads the bytes of one connection, each of them once, however small the pieces are in which
    they come. `limit_bytes` bounds the data of an event, and an unfinished line.

    Fields other than data and retry are passed over: a record states its token itself, and is what
    it is under any name of an event.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.retry_s: float | None = None
        """How long the peer wants us to wait before we connect again, as last stated."""
        self._limit_bytes = limit_bytes
        self._line = bytearray()
        """The beginning of a line whose end has not come yet; it holds no line end."""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._begun = False
        self._after_cr = False

    @property
    def unfinished_bytes(self) -> int:
        """Size of the event whose end has not come yet; 0 without one."""
        return self._data_bytes + len(self._line)

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events that these bytes complete. Raises `EventTooBig`."""
        if not self._begun:
            # At most two bytes were kept back: the beginning of a byte order mark.
            received = bytes(self._line) + received
            self._line.clear()
            if received != _BOM and _BOM.startswith(received):
                self._line += received
                return []
            received = received.removeprefix(_BOM)
            self._begun = True
        if self._after_cr and received:
            received = received.removeprefix(b"\n")
            self._after_cr = False
        lines = received.splitlines(keepends=True)
        if not lines:
            return []
        begun = None
        if lines[-1].endswith((b"\n", b"\r")):
            self._after_cr = lines[-1].endswith(b"\r")
        else:
            begun = lines.pop()
        events: list[bytes] = []
        if lines and self._line:
            # Only the first line can have begun before.
            self._line += lines[0]
            lines[0] = bytes(self._line)
            self._line.clear()
        for line in lines:
            self._take(line.rstrip(b"\r\n"), events)
        if begun is not None:
            self._line += begun
        if self.unfinished_bytes > self._limit_bytes:
            raise EventTooBig
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
            self._data, self._data_bytes = [], 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data_bytes += len(value) + 1
            if self._data_bytes > self._limit_bytes + 1:
                raise EventTooBig
            self._data.append(value)
        elif name == b"retry" and value.isdigit() and len(value) < len(str(_MAX_RETRY_MS)):
            self.retry_s = int(value) / 1_000
