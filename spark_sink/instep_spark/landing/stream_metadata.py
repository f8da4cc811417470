"""Keeps the facts about streams that no record carries: the table `stream_facts`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from instep.model.batches import SweepStep
from instep.model.entities import ProofKind
from instep.model.freshness import StreamReport
from instep.model.holds import Hold, UnprovenReason
from instep.model.streams import StreamInfo
from instep_spark.landing.arrow_rows import fact_rows
from instep_spark.landing.writers.base import Writer
from instep_spark.landing_schema import FactKind

__all__ = ["StreamMetadata", "unproven_reasons"]

_FLUSH_S: Final = 10.0
"""Counts of deviations are written together after this time, in seconds; a new kind is written at
once."""
_STREAMS: Final = """
    SELECT stream, fact, body FROM {{stream_facts}}
    WHERE consumer = {consumer} AND fact IN ('STREAM', 'RETIRED') ORDER BY at
"""
_MONITORS: Final = """
    SELECT stream, body FROM {{stream_facts}}
    WHERE consumer = {consumer} AND fact = 'MONITOR' ORDER BY at
"""
_RELEASED: Final = """
    SELECT max(count) AS attempt FROM {{stream_facts}}
    WHERE consumer = {consumer} AND stream = {stream} AND fact = 'RELEASE'
"""


class StreamMetadata:
    """The facts of one consumer's streams."""

    def __init__(
        self,
        writer: Writer,
        consumer: str,
        clock_us: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._consumer = consumer
        self._clock_us = clock_us
        self._now_s = now_s
        self._streams: dict[str, bytes] | None = None
        self._seen: set[tuple[str, str]] = set()
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._flushed_s = 0.0
        self._monitors: dict[str, bytes] | None = None

    def streams(self) -> list[StreamInfo]:
        """The streams as last discovered, by earlier runs too, that are not retired."""
        self._streams = None  # another process may have retired one
        return [
            StreamInfo.from_stored(msgspec.json.decode(body)) for body in self._known().values()
        ]

    def enter(self, stream: StreamInfo) -> None:
        """Store a stream's description if it differs from the stored one."""
        body = msgspec.json.encode(stream)
        if self._is_withdrawn(stream.id):
            self._streams = None  # it may be retired meanwhile
        if self._known().get(stream.id) != body:
            self._add(stream.id, [(FactKind.STREAM, "", 0, stream)])
            self._known()[stream.id] = body

    def mark_offered(self, stream: str, *, offered: bool) -> None:
        """Note since when the provider does not offer a known stream any more, or that it does."""
        body = self._known().get(stream)
        if body is None:
            return
        if self._is_withdrawn(stream) is offered:
            info = StreamInfo.from_stored(msgspec.json.decode(body))
            since_us = 0 if offered else self._clock_us()
            self.enter(msgspec.structs.replace(info, not_offered_since_us=since_us))

    def prove(self, stream: str, step: SweepStep) -> None:
        """Note that an attempt has come to its sweep, and why it leaves unproven what it has not
        met (A22).
        """
        kind = ProofKind.ATTEMPT if step.readable is None else ProofKind.BASELINE
        reasons = unproven_reasons(step).items()
        self._add(
            stream,
            [
                (FactKind.PROOF, kind.value, step.attempt, None),
                *((FactKind.UNPROVEN, name, step.attempt, why) for name, why in reasons),
            ],
        )

    def keep_monitors(self, reports: Sequence[StreamReport]) -> None:
        """Keep what providers say of our reading (TR-548 3.18), where it has changed; nothing of a
        stream without a connection.
        """
        if self._monitors is None:
            rows = self._writer.query(_MONITORS.format(consumer=self._writer.text(self._consumer)))
            self._monitors = {
                one["stream"]: (one["body"] or "").encode() for one in rows.to_pylist()
            }
        for one in reports:
            monitor = one.monitor if one.connected else None
            said = b"" if monitor is None else msgspec.json.encode(monitor)
            if said != self._monitors.get(one.stream, b""):
                self._add(one.stream, [(FactKind.MONITOR, "", 0, monitor)])
                self._monitors[one.stream] = said

    def retire(self, stream: str) -> None:
        """Note that nothing is stored of a stream any more (A20)."""
        self._add(stream, [(FactKind.RETIRED, "", 0, None)])
        self._known().pop(stream, None)

    def count(self, stream: str, deviations: dict[str, int]) -> None:
        """Count departures from the specification. A crash may lose the counts of ten seconds."""
        new = False
        for kind, times in deviations.items():
            new |= (stream, kind) not in self._seen
            self._seen.add((stream, kind))
            self._waiting[stream, kind] += times
        if new or (self._waiting and self._now_s() - self._flushed_s > _FLUSH_S):
            self.flush()

    def flush(self) -> None:
        """Write the counts that wait."""
        self._flushed_s = self._now_s()
        waiting, self._waiting = self._waiting, Counter()
        for stream in {stream for stream, _ in waiting}:
            counts = [
                (FactKind.DEVIATION, kind, times, None)
                for (of, kind), times in waiting.items()
                if of == stream
            ]
            self._add(stream, counts)

    def release(self, stream: str, attempt: int) -> None:
        """Let the held sweep of an attempt go on (A6)."""
        self._add(stream, [(FactKind.RELEASE, "", attempt, None)])

    def released(self, stream: str, attempt: int) -> bool:
        """Whether the sweep of this attempt was released."""
        text = self._writer.text
        query = _RELEASED.format(consumer=text(self._consumer), stream=text(stream))
        return bool(self._writer.query(query)["attempt"][0].as_py() == attempt)

    def _is_withdrawn(self, stream: str) -> bool:
        body = self._known().get(stream)
        return bool(body and msgspec.json.decode(body).get("not_offered_since_us"))

    def _known(self) -> dict[str, bytes]:
        if self._streams is None:
            rows = self._writer.query(_STREAMS.format(consumer=self._writer.text(self._consumer)))
            self._streams = {}
            for row in rows.to_pylist():
                if row["fact"] == FactKind.RETIRED:
                    self._streams.pop(row["stream"], None)
                else:
                    self._streams[row["stream"]] = row["body"].encode()
        return self._streams

    def _add(
        self, stream: str, facts: Sequence[tuple[FactKind, str, int, msgspec.Struct | str | None]]
    ) -> None:
        rows = fact_rows(self._consumer, stream, facts, self._clock_us())
        self._writer.append("stream_facts", rows)


def unproven_reasons(step: SweepStep) -> dict[str, str]:
    """Why what the attempt has not met is unproven, with the digest of what cannot be read, by
    class; an empty name stands for any class. Of several reasons, the one that ends last.
    """
    reasons: dict[str, str] = {}
    for hold in sorted(step.holds, key=_rank):
        name = "" if step.readable is None else hold.entity_class
        reasons.setdefault(name, f"{hold.reason.value} {hold.digest}".rstrip())
    return reasons


def _rank(hold: Hold) -> int:
    return list(UnprovenReason).index(hold.reason)
