"""What is done about a gap, and when: no gap waits for ever (S4).

Only the first gap blocks delivery, so only it is timed; but a request covers all known gaps, and
counts for each of them. A gap is known since a message behind it arrived or was announced.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

__all__ = ["GapPolicy", "GapSettings", "GapTimer", "LastResort"]


_US = 1_000_000


class GapPolicy(StrEnum):
    """What is done about a gap that keeps messages waiting past its deadline (S4)."""

    WAIT = "wait"
    """Nothing, `gap_attempts` times; then the last resort."""
    RESEND = "resend"
    """Ask the sender for the missing numbers, `gap_attempts` times; then the last resort."""
    REALIGN = "realign"
    """Obtain the state that the missing messages stood for in another way."""
    SKIP = "skip"
    """Give the missing numbers up, report the loss, and deliver what follows."""
    FAIL = "fail"
    """Fail the sequence."""


class LastResort(StrEnum):
    """What ends a gap that waiting or asking did not close. Nothing here waits."""

    REALIGN = "realign"
    SKIP = "skip"
    FAIL = "fail"


class GapSettings(Protocol):
    """The settings of a sequence that its timer reads (`SequencerSettings`)."""

    @property
    def gap_policy(self) -> GapPolicy: ...
    @property
    def gap_deadline_s(self) -> float: ...
    @property
    def gap_repeat_s(self) -> float: ...
    @property
    def gap_attempts(self) -> int: ...
    @property
    def gap_last_resort(self) -> LastResort: ...


class GapTimer:
    """Deadlines of the gaps of one sequence."""

    def __init__(self, settings: GapSettings, asked_to: list[int], acted_at_us: int = 0) -> None:
        self._settings = settings
        self.asked_to = asked_to
        """For each time that the policy acted: the highest number known. At most `gap_attempts`."""
        self.acted_at_us = acted_at_us

    def due_us(self, missing: int, since_us: int, *, waits: bool = False) -> int:
        """When the policy acts on the gap that begins with `missing`, known since `since_us`; both
        times in microseconds since 1970.

        The deadline counts from when the gap was seen. Only where the policy has acted on this gap
        before, or with `waits`, has it a pause to keep.
        """
        settings = self._settings
        due_us = since_us + int(settings.gap_deadline_s * _US)
        if waits or any(number >= missing for number in self.asked_to):
            return max(due_us, self.acted_at_us + int(settings.gap_repeat_s * _US))
        return due_us

    def act(self, missing: int, highest: int, since_us: int, now_us: int) -> GapPolicy | None:
        """The policy to apply to the first missing number now (S4); None before its deadline."""
        if now_us < self.due_us(missing, since_us):
            return None
        settings = self._settings
        policy = settings.gap_policy
        self.asked_to = [number for number in self.asked_to if number >= missing]
        if policy in (GapPolicy.WAIT, GapPolicy.RESEND):
            if len(self.asked_to) < settings.gap_attempts:
                self.asked_to.append(highest)
                self.acted_at_us = now_us
                return policy
            policy = GapPolicy(settings.gap_last_resort)
        if policy is GapPolicy.REALIGN:
            if not self.asked_to:
                self.asked_to.append(highest)
            self.acted_at_us = now_us
        return policy
