"""A receiver as a plain list: what the sequencer is tried against.

`numbers[i]` is what became of a number; nothing is clever, and everything is recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

FIRST = 1
TOP = 12
"""The sender uses the numbers FIRST…TOP only: the machine has room for every order of them."""


class Fate(Enum):
    MISSING = "missing"
    HELD = "held"
    DELIVERED = "delivered"
    FILLED = "filled"
    CANCELLED = "cancelled"
    FAULTED = "faulted"
    GIVEN_UP = "given up"


NEEDS_NO_MESSAGE = {Fate.FILLED, Fate.CANCELLED, Fate.FAULTED}


@dataclass
class ModelReceiver:
    """One scope, with the policy that a faulted number is passed over."""

    fates: list[Fate] = field(default_factory=lambda: [Fate.MISSING] * (TOP + 1))
    contents: dict[int, bytes] = field(default_factory=dict)
    deadlines: dict[int, int] = field(default_factory=dict)
    turn: int = FIRST
    delivered: list[tuple[int, bytes]] = field(default_factory=list)
    """Everything ever delivered, with its content."""

    def copy(self) -> ModelReceiver:
        return ModelReceiver(
            self.fates.copy(),
            self.contents.copy(),
            self.deadlines.copy(),
            self.turn,
            self.delivered.copy(),
        )

    def receive(self, number: int, content: bytes, expires_at_us: int, now_us: int) -> str:
        """What the sender is to be told: accepted, duplicate or refused."""
        fate = self.fates[number]
        if fate in (Fate.HELD, Fate.DELIVERED, Fate.FILLED):
            return "duplicate"
        settled = number < self.turn
        if fate in (Fate.CANCELLED, Fate.GIVEN_UP) or settled:
            return "refused"
        if 0 < expires_at_us <= now_us:
            self.fates[number] = Fate.FAULTED
            return "refused"
        self.fates[number] = Fate.HELD
        self.contents[number] = content
        self.deadlines[number] = expires_at_us
        return "accepted"

    def expire(self, now_us: int) -> None:
        for number, fate in enumerate(self.fates):
            if fate is Fate.HELD and 0 < self.deadlines[number] <= now_us:
                self.fates[number] = Fate.FAULTED

    def fault(self, number: int) -> None:
        if self.fates[number] is not Fate.CANCELLED:
            self.fates[number] = Fate.FAULTED

    def cancel(self, low: int, high: int) -> None:
        for number in range(low, high + 1):
            if self.fates[number] in (Fate.MISSING, Fate.FAULTED, Fate.GIVEN_UP):
                self.fates[number] = Fate.CANCELLED

    def fill(self, low: int, high: int) -> None:
        for number in range(low, high + 1):
            if self.fates[number] not in (Fate.HELD, Fate.DELIVERED):
                self.fates[number] = Fate.FILLED

    def deliver(self, *, through: int = 0) -> None:
        """Go on with delivery; up to `through` what is missing is given up."""
        while self.turn <= TOP:
            fate = self.fates[self.turn]
            if fate is Fate.HELD:
                self.fates[self.turn] = Fate.DELIVERED
                self.delivered.append((self.turn, self.contents[self.turn]))
            elif fate is Fate.MISSING and self.turn <= through:
                self.fates[self.turn] = Fate.GIVEN_UP
            elif fate not in NEEDS_NO_MESSAGE:
                return
            self.turn += 1

    def numbers(self, *fates: Fate) -> list[int]:
        return [number for number, fate in enumerate(self.fates) if fate in fates]
