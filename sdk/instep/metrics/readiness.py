"""Whether a consumer is ready, and who is at fault where it is not. Pure.

Ready is what moves: heard, read, committed and in step (A17: entities that are unproven are shown,
and do not end it). A quiet network is ready, a hung peer and a blocked database are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from math import inf
from typing import Final

import msgspec

from instep.model.freshness import FreshnessState
from instep.model.position import Phase
from instep.runtime.health import ConsumerState, Health, LakeHealth, StreamHealth

__all__ = ["CONFIRMING_S", "TABLE_BEHIND_S", "Fault", "Part", "ReadinessRole", "faults_of"]

CONFIRMING_S: Final = 60.0
"""So long, in seconds, a stream that was aligned may find out whether it goes on (A2)."""

TABLE_BEHIND_S: Final = 600.0
"""So long, in seconds, a table of a lake may lack some of what has landed: micro-batches of a large
lake take minutes."""


class Part(StrEnum):
    """Who has to act, or whom one waits for."""

    PROVIDER = "provider"
    """The provider, or the way to it."""
    STORE = "store"
    """The database, or the way to it."""
    CONSUMER = "consumer"
    """This program: it is on its way, or has failed."""
    OPERATOR = "operator"
    """A decision is waited for."""


class ReadinessRole(StrEnum):
    """For what readiness is asked."""

    WRITER = "writer"
    """Whether the store is kept in step, by this process or, of a standby, by another one that this
    one can take over from.
    """
    READER = "reader"
    """Whether the store can be read here, whoever keeps it in step."""


class Fault(msgspec.Struct, frozen=True):
    """Why a consumer, or one of its streams, is not ready."""

    part: Part
    consumer: str
    stream: str
    """Empty for the consumer as a whole."""
    text: str

    def __str__(self) -> str:
        place = f"{self.consumer} / {self.stream}" if self.stream else self.consumer
        return f"{self.part}: {place}: {self.text}"


def faults_of(healths: Iterable[Health], role: ReadinessRole = ReadinessRole.WRITER) -> list[Fault]:
    """What stands against these consumers being ready; empty: they are."""
    found: list[Fault] = []
    for health in healths:
        found += _faults(health, role)
    return found


def _faults(health: Health, role: ReadinessRole) -> Iterator[Fault]:
    def fault(part: Part, text: str, stream: str = "") -> Fault:
        return Fault(part, health.consumer, stream, text)

    if (texts := _job_troubles(health)) is not None:
        for one in texts:
            yield fault(Part.CONSUMER, one)
        return
    if (text := _store_trouble(health)) is not None:
        yield fault(Part.STORE, text)
        if role is ReadinessRole.WRITER:
            # Streams that wait for the store say nothing of their provider.
            yield from _stream_faults(health, only=Part.STORE)
        return
    if role is ReadinessRole.READER or health.state is ConsumerState.STANDBY:
        return
    if health.intake is not None:
        # Of a store at rest the address is not known, only whether it was heard.
        if not health.intake.address or health.error:
            yield fault(Part.CONSUMER, health.error or "it does not listen yet")
        return
    if not health.streams:
        text = f"it is {health.state}: {health.error}".rstrip(": ")
        yield fault(Part.PROVIDER if health.error else Part.CONSUMER, text)
        return
    yield from _stream_faults(health)


def _job_troubles(health: Health) -> list[str] | None:
    """What stands against a job that has ended, or that follows no stream; None: it is a consumer
    that goes on.
    """
    if health.state in (ConsumerState.FAILED, ConsumerState.STOPPED):
        return [f"it has {health.state}: {health.error}".rstrip(": ")]
    if health.process_lost:
        return [health.error]
    if health.publisher is not None:
        running = health.state is ConsumerState.RUNNING
        return [] if running else [f"it is {health.state}: {health.error}".rstrip(": ")]
    return None if health.lake is None else list(_lake_troubles(health.lake))


def _lake_troubles(lake: LakeHealth) -> Iterator[str]:
    if lake.looked_age_s is None:
        yield "it has not looked at what has landed yet"
    for one in lake.tables:
        if one.behind_s > TABLE_BEHIND_S:
            yield f"{one.table} lacks {one.behind:,} ordinals, some for {one.behind_s:,.0f} s"


def _store_trouble(health: Health) -> str | None:
    """Why the store counts as away; None: it answers."""
    age_s, limit_s = health.store_age_s, health.stale_after_s
    if health.state is ConsumerState.STANDBY and health.pair is not None:
        # A standby reads the lease, no more often than it can expire.
        limit_s = max(limit_s, health.pair.lease_s)
    if age_s is None:
        if health.state is ConsumerState.STARTING or health.error:
            return f"it has not answered yet: {health.error}".rstrip(": ")
        return "it has not answered yet"
    return f"it has not answered for {age_s:,.0f} s" if age_s > limit_s else None


def _stream_faults(health: Health, only: Part | None = None) -> Iterator[Fault]:
    for stream in health.streams:
        found = _stream_trouble(stream)
        if found is not None and only in (None, found[0]):
            yield Fault(found[0], health.consumer, stream.stream, found[1])


def _ago(age_s: float) -> str:
    return "never" if age_s == inf else f"{age_s:,.0f} s ago"


def _is_unheard(stream: StreamHealth) -> bool:
    heard_s, limit_s = stream.heard_age_s, stream.heard_within_s
    return heard_s is not None and limit_s is not None and heard_s > limit_s


def _stream_trouble(stream: StreamHealth) -> tuple[Part, str] | None:
    """What stands against one stream; None: it is ready."""
    fresh = stream.freshness
    if fresh.state is FreshnessState.NOT_OFFERED:
        return None
    why = stream.no_progress or stream.last_error
    if (found := _connection_trouble(stream, why)) is not None:
        return found
    if stream.phase is Phase.CONFIRMING:
        age_s = stream.phase_age_s or 0.0
        if age_s <= CONFIRMING_S:
            return None
        return Part.PROVIDER, f"for {age_s:,.0f} s nothing proves that it goes on where it was left"
    if fresh.in_step:
        return None
    if fresh.state is FreshnessState.UNREADABLE or stream.phase is Phase.LOST:
        return Part.PROVIDER, fresh.text
    if stream.phase is Phase.SWEEP_HELD:
        return Part.OPERATOR, "a sweep is held: it would remove more than the guard allows"
    return Part.CONSUMER, f"{fresh.text}, attempt {stream.attempt}{', ' * bool(why)}{why}"


def _connection_trouble(stream: StreamHealth, why: str) -> tuple[Part, str] | None:
    """Who is not there: whoever follows the stream, the store, or the provider."""
    if stream.process_lost:
        return Part.CONSUMER, why
    if stream.heard_s > stream.stale_after_s:
        # Also where it has said, before it ended, that it is not connected.
        return Part.CONSUMER, f"nobody follows it: last heard {_ago(stream.heard_s)}"
    if stream.committing_s > stream.stale_after_s:
        return Part.STORE, f"a commit takes {stream.committing_s:,.0f} s already"
    if not stream.connected:
        text = stream.freshness.text
        # Who has tried, says why it failed.
        if not why:
            return Part.CONSUMER, f"{text}: it has not tried yet, or was stopped"
        return Part.PROVIDER, f"{text}: {why}"
    # While a commit runs, the socket may not be read, and the silence may be ours.
    if _is_unheard(stream) and not stream.committing_s:
        return Part.PROVIDER, f"it was not heard for {stream.heard_age_s:,.0f} s"
    return None
