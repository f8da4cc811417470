"""Which streams of a provider have stated something, and when (A19): a class of which nothing is
stated counts as gone only where something else was stated meanwhile.
"""

from __future__ import annotations

__all__ = ["Statements"]


class Statements:
    """What the workers of one consumer have committed last. Times are the provider's, in
    microseconds.
    """

    def __init__(self) -> None:
        self._last_us: dict[str, int] = {}

    def note(self, stream: str, at_us: int) -> None:
        """Something that this stream states was committed."""
        self._last_us[stream] = at_us

    def elsewhere_us(self, stream: str) -> int:
        """When another stream has stated something last; 0: never."""
        return max((at for name, at in self._last_us.items() if name != stream), default=0)
