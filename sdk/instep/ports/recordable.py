"""What observes its peer: a source or a listener that gives what comes to whoever judges it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from instep.conformance import Event

__all__ = ["Recordable"]


@runtime_checkable
class Recordable(Protocol):
    """A source or a listener whose peer can be judged. Methods must not block."""

    def record(
        self, recorder: Callable[[Event], None], room: Callable[[], int] | None = None
    ) -> None:
        """Give each event to `recorder`, in their order, from the next connection on; no login is
        in them.

        `room` says how many bytes of messages are taken now. Those beyond are not given, and
        `MessagesSkipped` says so; what is no message is given all the same. None: all are taken.
        """
        ...
