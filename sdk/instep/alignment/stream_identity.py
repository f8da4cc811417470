"""Which stream an offered one is: a stream is what it carries, not what it is called (A20). Pure.

A provider may give its streams other uuids, even other stream-ids: another instance does (TR-548
ST-4.2), and so may one that was restarted. A stream that is not recognised would get a second place
in the store, and its entities would stand there twice. One that is taken for another would have the
entities of that one swept.

So a name alone decides only where no other stream could be meant. Else the new stream is read once,
and what it states is compared with what is stored of each stream that is not offered any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import msgspec

from instep.model.streams import StreamInfo

__all__ = [
    "MatchedStreams",
    "StreamCandidate",
    "alike",
    "choose_place",
    "log_of",
    "match_streams",
    "unused_id",
]


class MatchedStreams(msgspec.Struct, frozen=True):
    """The offered streams, as they were recognised."""

    named: tuple[StreamInfo, ...]
    """Those that are followed, by their ids in the store: known ones, and new ones that no known
    one could be.
    """
    doubtful: tuple[StreamInfo, ...] = ()
    """New ones that may be a known one that is not offered any more."""
    missing: tuple[StreamInfo, ...] = ()
    """Known ones that are not offered, or not under any name that is known."""


class StreamCandidate(msgspec.Struct, frozen=True):
    """A stream that a new one may be, and how much of both is the same, as counts of entities."""

    id: str
    stored: int
    stated: int
    common: int

    @property
    def agrees(self) -> bool:
        """Whether at least half of the smaller side is the same."""
        least = min(self.stored, self.stated)
        return least > 0 and 2 * self.common >= least


def match_streams(
    known: Iterable[StreamInfo],
    offered: Sequence[StreamInfo],
    proven: Mapping[str, str] | None = None,
) -> MatchedStreams:
    """Recognise the offered streams by names, as far as these suffice (A20).

    By uuid, and by id where that can mean no other: it has the same uuid, or no other stream on
    either side carries the same by the same strategy. `proven`: logs (`log_of`) that were shown to
    be those of known streams → the ids of these.
    """
    places = {stream.id: stream for stream in known}
    ours_now = {stream.uuid for stream in places.values()}
    shown = {log: id_ for log, id_ in (proven or {}).items() if id_ in places}
    names: dict[int, str] = {}
    # Of two that were one stream once, that which it is now.
    for n in sorted(range(len(offered)), key=lambda n: _by_uuid(offered[n]) not in ours_now):
        place_id = shown.get(log_of(offered[n]))
        if place_id is not None and place_id not in names.values():
            names[n] = place_id
    ours, theirs = Counter(map(_carried, places.values())), Counter(map(_carried, offered))

    def id_decides(place: StreamInfo, stream: StreamInfo) -> bool:
        if not place.uuid or not stream.uuid or place.uuid == stream.uuid:
            return True
        if not alike(place, stream):
            # One instance may change what its stream carries; another names a stream of its own.
            return place.endpoint == stream.endpoint
        return ours[_carried(place)] == 1 and theirs[_carried(stream)] == 1

    for identity, decides in ((_by_uuid, None), (_by_id, id_decides)):
        taken = set(names.values())
        free = _singles((one for one in places.values() if one.id not in taken), identity)
        rest = _singles((one for n, one in enumerate(offered) if n not in names), identity)
        for name, stream in rest.items():
            place = free.get(name)
            if place is not None and (decides is None or decides(place, stream)):
                names[next(n for n, one in enumerate(offered) if one is stream)] = place.id
    missing = [stream for stream in places.values() if stream.id not in set(names.values())]
    named: list[StreamInfo] = []
    doubtful: list[StreamInfo] = []
    used = {*places, *(stream.id for stream in offered)}
    for n, stream in enumerate(offered):
        if n in names:
            named.append(_renamed(stream, names[n]))
        elif any(alike(one, stream) for one in missing):
            doubtful.append(stream)
        else:
            new = _renamed(stream, unused_id(stream, used) if stream.id in places else stream.id)
            used.add(new.id)
            named.append(new)
    return MatchedStreams(tuple(named), tuple(doubtful), tuple(missing))


def log_of(stream: StreamInfo) -> str:
    """Names the log of a stream, whatever else the stream is called."""
    return stream.uuid or stream.origin


def alike(one: StreamInfo, other: StreamInfo) -> bool:
    """Whether two streams carry the same classes by the same strategy."""
    return _carried(one) == _carried(other)


def choose_place(candidates: Sequence[StreamCandidate], *, only: bool, id_: str = "") -> str | None:
    """The id of the stream that a new one is (A20); None: it is none of them.

    Args:
        candidates: The streams that are not offered any more and carry the same classes.
        only: Whether no other new stream may be one of them.
        id_: The id of the new stream. It decides where nothing is stored that could be lost.
    """
    agreeing = [one for one in candidates if one.agrees]
    if agreeing:
        return max(agreeing, key=lambda one: one.common).id
    if only and len(candidates) == 1 and not (candidates[0].stored and candidates[0].stated):
        return candidates[0].id
    return next((one.id for one in candidates if one.id == id_ and not one.stored), None)


def unused_id(stream: StreamInfo, used: Iterable[str]) -> str:
    """An id for a new stream whose own is that of another one."""
    taken = set(used)
    numbered = (f"{stream.id}-{n}" for n in range(2, len(taken) + 3))
    return next(id_ for id_ in (stream.uuid, *numbered) if id_ and id_ not in taken)


def _renamed(stream: StreamInfo, id_: str) -> StreamInfo:
    return stream if stream.id == id_ else msgspec.structs.replace(stream, id=id_)


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


def _carried(stream: StreamInfo) -> Hashable:
    return frozenset(stream.classes), stream.variant
