"""How fresh what is known of a stream is: the one place that says whether it may be called aligned.
Pure.

Health, `instep status`, `run --until-aligned`, `Subscription` and whoever acts on the store ask it.
What it says rests on what was seen: the last readable record, the records refused since the
opening, and when the process that follows the stream was last heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from instep.model.position import Phase

__all__ = [
    "Freshness",
    "FreshnessState",
    "ProviderMonitor",
    "StreamReport",
    "stale_streams",
]


class FreshnessState(StrEnum):
    """What may be said of a stream, from best to worst."""

    ALIGNED = "aligned"
    ALIGNED_UNREADABLE = "aligned-unreadable"
    """Aligned, but records of the attempt could not be read (A11)."""
    ALIGNED_UNPROVEN = "aligned-unproven"
    """Aligned, but of some entities it is not known whether they exist as stored (A17)."""
    NOT_ALIGNED = "not-aligned"
    """It is on its way, or waits for a decision: its phase says which."""
    UNREADABLE = "unreadable"
    """Nothing could be read since the stream was opened: every record was refused."""
    DISCONNECTED = "disconnected"
    """It has no connection, or the process that follows it has stopped."""
    STALE = "stale"
    """The process that follows it was not heard for too long, or never: what is stored is of then,
    whatever it says.
    """
    NOT_OFFERED = "not-offered"
    """The provider does not offer the stream any more: what is stored is of then (A20)."""


_IN_STEP: Final = frozenset(
    {
        FreshnessState.ALIGNED,
        FreshnessState.ALIGNED_UNREADABLE,
        FreshnessState.ALIGNED_UNPROVEN,
    }
)


class ProviderMonitor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the provider says of our reading of a stream (TR-548 3.18)."""

    read_id: str = ""
    """The last record that it has given us; what is on the way counts."""
    written_id: str = ""
    """The last record of its log."""
    lag_records: int | None = None
    """How many records lie between both; None where the ids are no numbers."""
    connections: int | None = None
    """Connections of this client to the stream; None where it names none of ours."""
    since_us: int = 0
    """Since when it says so, of our clock; 0 where the report beside it has an age."""
    difference: str = ""
    """What it says otherwise than we know it, twice in a row; empty where there is nothing."""


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that follows a stream says of it. Times are of its own clock."""

    stream: str
    connected: bool
    caught_up: bool
    """Whether all that the log held at the opening has been read."""
    opened_at_us: int = 0
    """When the stream was last opened; 0: never."""
    read_at_us: int = 0
    """When the last readable record came; 0: none has since the process was started."""
    refused: int = 0
    """Records refused since the opening: they could not be read."""
    readable: bool = False
    """Whether any record could be read since the opening."""
    trouble: str = ""
    """Why it does not go on, or what could not be read; empty if there is nothing to tell."""
    monitor: ProviderMonitor | None = None
    """What the provider says of our reading; None: it says nothing."""
    known_at_us: int = 0
    """Up to when a silence at the end of the log has shown that nothing is missing, in whole steps
    of half a minute, so that a quiet stream says little; 0: none has since the process was started.
    """


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """How fresh the knowledge about one stream is, at one time."""

    consumer: str
    stream: str
    phase: Phase
    report: StreamReport | None = None
    """What was last said; None: nothing ever was, or the store keeps no reports."""
    heard_s: float | None = None
    """How long ago the process that follows it was heard, in seconds; None: never."""
    stale_after_s: float = 0.0
    """From which silence of that process on what it said is not of now."""
    unreadable: int = 0
    """Records of the attempt that could not be read."""
    unproven: int = 0
    """Entities of which it is not known whether they exist as stored (A17)."""
    classes: tuple[str, ...] = ()
    """The classes that the stream carries; empty: all."""
    records: int = 0
    """Records committed since the beginning."""

    @property
    def state(self) -> FreshnessState:
        """What may be said of the stream."""
        report = self.report
        if self.phase is Phase.NOT_OFFERED:
            return FreshnessState.NOT_OFFERED
        if report is None or self.heard_s is None:
            return FreshnessState.STALE
        if not report.connected:
            # Whoever has stopped is heard no more, and has said so.
            return FreshnessState.DISCONNECTED
        if self.heard_s > self.stale_after_s:
            return FreshnessState.STALE
        if report.refused and not report.readable:
            return FreshnessState.UNREADABLE
        if self.phase is not Phase.ALIGNED or not report.caught_up:
            return FreshnessState.NOT_ALIGNED
        if self.unreadable:
            return FreshnessState.ALIGNED_UNREADABLE
        return FreshnessState.ALIGNED_UNPROVEN if self.unproven else FreshnessState.ALIGNED

    @property
    def in_step(self) -> bool:
        """Whether the store follows the stream now. Records that could not be read may be missing:
        `unreadable` counts them.
        """
        return self.state in _IN_STEP

    @property
    def text(self) -> str:
        """The state in words: "aligned, 12 unreadable"."""
        report = self.report
        match self.state:
            case FreshnessState.NOT_OFFERED:
                return "not offered any more"
            case FreshnessState.STALE if self.heard_s is None:
                return f"{self.phase}, but nobody says that it is followed"
            case FreshnessState.STALE:
                return f"{self.phase_text}, but stale: last heard {self.heard_s:,.0f} s ago"
            case FreshnessState.DISCONNECTED:
                return f"{self.phase_text}, but not connected"
            case FreshnessState.UNREADABLE:
                assert report is not None
                return f"{self.phase}, but nothing is readable: {report.refused:,} records refused"
            case FreshnessState.ALIGNED_UNREADABLE | FreshnessState.ALIGNED_UNPROVEN:
                return self.phase_text
            case FreshnessState.NOT_ALIGNED if self.phase is Phase.ALIGNED:
                return "aligned, and reading what came since"
            case _:
                return str(self.phase)

    @property
    def phase_text(self) -> str:
        """The phase, and what an alignment lacks, whether or not it is of now."""
        if self.phase is not Phase.ALIGNED:
            return str(self.phase)
        lacks = [(self.unreadable, "unreadable"), (self.unproven, "unproven")]
        return ", ".join([str(self.phase), *(f"{n:,} {what}" for n, what in lacks if n)])


def stale_streams(found: Sequence[Freshness]) -> str:
    """The streams that are not in step, in words; empty where all are."""
    return "; ".join(
        f"{one.consumer} / {one.stream} is {one.text}" for one in found if not one.in_step
    )
