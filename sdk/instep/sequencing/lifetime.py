"""How long a sequence lives, and how long it is remembered after its end (S10)."""

from __future__ import annotations

from collections.abc import Iterable

from instep.model.messages import MessageHeader
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import REFUSALS, SequenceEvent, SequencePhase

__all__ = ["Lifetime"]

_US = 1_000_000
_LONG_US = 3_600 * _US


class Lifetime:
    """Deadlines of one sequence as a whole. All times are microseconds since 1970."""

    def __init__(self, settings: SequencerSettings, state: SequencerState) -> None:
        self._idle_us = int(settings.idle_timeout_s * _US)
        # A long idle time is not measured with each message: it would be written with each.
        self._step_us = self._idle_us // 100 if self._idle_us >= _LONG_US else 0
        self._keep_us = int(settings.keep_ended_s * _US)
        self._keep_copies_us = int(settings.keep_copies_s * _US)
        self.expires_at_us = state.expires_at_us
        self.active_at_us = state.active_at_us
        self.ended_at_us = state.ended_at_us
        self.copies_until_us = state.copies_until_us
        self._ended_in = state.phase if state.ended_at_us else None

    @property
    def may_end(self) -> bool:
        """Whether the sequence may end by itself."""
        return bool(self.expires_at_us or self._idle_us)

    def due_us(self) -> int | None:
        """When the sequence ends by itself if nothing arrives; None: never."""
        idle_at_us = 0
        if self._idle_us and self.active_at_us:
            idle_at_us = self.active_at_us + self._idle_us + self._step_us
        if self.expires_at_us and idle_at_us:
            return min(self.expires_at_us, idle_at_us)
        return self.expires_at_us or idle_at_us or None

    def timeout(self, now_us: int) -> SequenceEvent | None:
        """Why the sequence ends now, EXPIRED or IDLE (S10); None: it does not end."""
        due_us = self.due_us()
        if due_us is None or now_us < due_us:
            return None
        return SequenceEvent.EXPIRED if due_us == self.expires_at_us else SequenceEvent.IDLE

    def restart_idle_time(self, now_us: int) -> None:
        """Restart the idle time: the peer sent something, or could not, as we were away (S10)."""
        if self._idle_us and now_us - self.active_at_us >= self._step_us:
            self.active_at_us = now_us

    def note_deadlines(self, messages: Iterable[MessageHeader]) -> None:
        """Record the deadlines of messages: copies of them may arrive until then."""
        latest_us = max((message.expires_at_us for message in messages), default=0)
        self.copies_until_us = max(self.copies_until_us, latest_us)

    def note_phase(self, phase: SequencePhase, now_us: int) -> None:
        """Start the time to remember the sequence, with each phase that accepts nothing."""
        if phase in REFUSALS and phase is not self._ended_in:
            self.ended_at_us, self._ended_in = now_us, phase

    def note_resumed(self) -> None:
        """The sequence accepts messages again."""
        self.ended_at_us, self._ended_in = 0, None

    def forget_at_us(self) -> int | None:
        """From when on the sequence may be forgotten (S10); None while it accepts messages."""
        if not self.ended_at_us:
            return None
        copies_until_us = min(self.copies_until_us, self.ended_at_us + self._keep_copies_us)
        return max(self.ended_at_us + self._keep_us, copies_until_us)
