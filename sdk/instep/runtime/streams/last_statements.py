"""Which streams of a provider have stated something, and when (A19): what is not stated any more
counts as gone only where something else was stated meanwhile.
"""

from __future__ import annotations

from instep.model.streams import StreamInfo

__all__ = ["LastStatements"]


class LastStatements:
    """What the workers of one consumer have committed last. Times are the provider's, in
    microseconds.
    """

    def __init__(self) -> None:
        self._last_us: dict[tuple[str, str], int] = {}

    def note(self, stream: StreamInfo, at_us: int) -> None:
        """Something that this stream states was committed."""
        self._last_us[stream.endpoint, stream.id] = at_us

    def elsewhere_us(self, stream: StreamInfo) -> int:
        """When another stream of the same instance has stated something last; 0: never."""
        return max(
            (
                at_us
                for (endpoint, name), at_us in self._last_us.items()
                if endpoint == stream.endpoint and name != stream.id
            ),
            default=0,
        )
