"""Matches offered streams with known ones, when a provider is met again (TR-548 ST-4.2).
Pure.

Another instance may give its streams other uuids, even other stream-ids. A stream that is not
recognised would get a second place in the store, and its entities would stand there twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from instep.model.streams import StreamInfo

__all__ = ["match_streams"]


def match_streams(known: Iterable[StreamInfo], offered: Sequence[StreamInfo]) -> list[StreamInfo]:
    """The offered streams under the ids that the store knows them by.

    By id, else by uuid, else by what they carry and how: the last only from another endpoint, and
    only where both sides have one such stream. An instance that offers two streams of the same
    classes does not say which is which, and one endpoint names its streams well enough.
    """
    places = {stream.id: stream for stream in known}
    names: dict[int, str] = {}
    for identity, elsewhere in ((_by_id, False), (_by_uuid, False), (_by_content, True)):
        rest = [n for n in range(len(offered)) if n not in names]
        taken = set(names.values())
        free = [stream for stream in places.values() if stream.id not in taken]
        ours = _singles(free, identity)
        for name, stream in _singles([offered[n] for n in rest], identity).items():
            place = ours.get(name)
            if place is not None and not (elsewhere and place.endpoint == stream.endpoint):
                names[next(n for n in rest if offered[n] is stream)] = place.id
    return [
        stream if names.get(n, stream.id) == stream.id else _renamed(stream, names[n])
        for n, stream in enumerate(offered)
    ]


def _renamed(stream: StreamInfo, id_: str) -> StreamInfo:
    return msgspec.structs.replace(stream, id=id_)


def _singles(
    streams: Iterable[StreamInfo], identity: Callable[[StreamInfo], Hashable | None]
) -> dict[Hashable, StreamInfo]:
    """Streams by their identity, where no other shares it."""
    named = [(identity(stream), stream) for stream in streams]
    counts = Counter(name for name, _ in named)
    return {name: stream for name, stream in named if name is not None and counts[name] == 1}


def _by_id(stream: StreamInfo) -> Hashable:
    return stream.id


def _by_uuid(stream: StreamInfo) -> Hashable | None:
    return stream.uuid or None


def _by_content(stream: StreamInfo) -> Hashable | None:
    return frozenset(stream.classes), stream.variant
