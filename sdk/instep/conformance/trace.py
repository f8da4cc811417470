"""Traces as files, and as a ring of bounded size: one JSON object a line, bytes as text where they
are text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from instep.conformance.events import Event
from instep.errors import ConfigurationError

__all__ = ["TraceRing", "event_line", "read_events", "size_of"]

_encode = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Event).decode
_decode_any: Final = msgspec.json.Decoder(dict[str, Any]).decode
_CONTENT: Final = "content"
_TEXT: Final = "content_text"
_EVENT_BYTES: Final = 200
"""Of an event beside its content."""


def event_line(event: Event) -> bytes:
    """An event as a line of a trace file, with its line break."""
    members = msgspec.to_builtins(event)
    content = getattr(event, _CONTENT, b"")
    try:
        if content:
            members[_TEXT] = content.decode()
            del members[_CONTENT]
    except UnicodeDecodeError:
        pass  # it stays as base64
    return _encode(members) + b"\n"


def read_events(
    lines: Iterable[bytes], where: str = "trace", note: Callable[[str], None] | None = None
) -> Iterator[Event]:
    """The events of a trace file. Raises `ConfigurationError` with the line that is none. `note` is
    told where the last line is cut, as that of a process that was ended is; without it that is no
    event, either.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            members = _decode_any(line)
            if (text := members.pop(_TEXT, None)) is not None:
                members[_CONTENT] = msgspec.to_builtins(str(text).encode())
            yield _decode(_encode(members))
        except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
            if note is not None and number > 1 and not line.endswith(b"\n"):
                note(f"the trace ends within line {number}, which was not judged")
                return
            raise ConfigurationError(
                f"this is no event of a trace: {error}"[:300],
                where=f"{where}:{number}",
                hint="`instep conformance … --trace FILE` writes one",
            ) from None


def size_of(event: Event) -> int:
    """About how many bytes an event takes."""
    return _EVENT_BYTES + len(getattr(event, _CONTENT, b""))


class TraceRing:
    """The last events within a bound of bytes; older ones are forgotten."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._events: deque[tuple[Event, int]] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: Event) -> None:
        """Keep an event, and forget the oldest ones where that is too much."""
        size = size_of(event)
        self._events.append((event, size))
        self.size_bytes += size
        while self.size_bytes > self._most_bytes and self._events:
            self.size_bytes -= self._events.popleft()[1]

    def clear(self) -> None:
        """Forget all events that are kept."""
        self._events.clear()
        self.size_bytes = 0

    def events(self) -> list[Event]:
        """What is kept, oldest first."""
        return [event for event, _ in self._events]
