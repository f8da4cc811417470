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
    ordered: bool = True
    highest: int | None = None
    """The highest number that ever came, or was filled."""
    next_number: int = FIRST
    delivered: list[tuple[int, bytes]] = field(default_factory=list)
    """Everything ever delivered, with its content."""

    def copy(self) -> ModelReceiver:
        return ModelReceiver(
            self.fates.copy(),
            self.contents.copy(),
            self.deadlines.copy(),
            self.ordered,
            self.highest,
            self.next_number,
            self.delivered.copy(),
        )

    def receive(self, number: int, content: bytes, expires_at_us: int, now_us: int) -> str:
        """Return the answer for the sender: accepted, duplicate or refused."""
        fate = self.fates[number]
        if fate in (Fate.HELD, Fate.DELIVERED, Fate.FILLED):
            return "duplicate"
        accounted = number < self.next_number
        if fate in (Fate.CANCELLED, Fate.GIVEN_UP) or accounted:
            return "refused"
        self.see(number)
        if 0 < expires_at_us <= now_us:
            self.fates[number] = Fate.FAULTED
            return "refused"
        if not self.ordered:
            self.fates[number] = Fate.DELIVERED
            self.delivered.append((number, content))
            return "accepted"
        self.fates[number] = Fate.HELD
        self.contents[number] = content
        self.deadlines[number] = expires_at_us
        return "accepted"

    def expire(self, now_us: int) -> None:
        for number, fate in enumerate(self.fates):
            if fate is Fate.HELD and 0 < self.deadlines[number] <= now_us:
                self.fates[number] = Fate.FAULTED

    def see(self, number: int) -> None:
        self.highest = max(number, self.highest or number)

    def fault(self, number: int) -> None:
        if self.fates[number] is not Fate.CANCELLED:
            self.fates[number] = Fate.FAULTED
            self.see(number)

    def cancel(self, low: int, high: int) -> None:
        for number in range(low, high + 1):
            if self.fates[number] in (Fate.MISSING, Fate.FAULTED, Fate.GIVEN_UP):
                self.fates[number] = Fate.CANCELLED

    def realigned(self, through: int, *, deliver_buffered: bool) -> None:
        for number in range(self.next_number, through + 1):
            fate = self.fates[number]
            if fate in (Fate.MISSING, Fate.FAULTED) or (fate is Fate.HELD and not deliver_buffered):
                self.fates[number] = Fate.FILLED
                self.see(number)

    def fill(self, low: int, high: int) -> None:
        self.see(high)
        for number in range(low, high + 1):
            if self.fates[number] not in (Fate.HELD, Fate.DELIVERED):
                self.fates[number] = Fate.FILLED

    def deliver(self, *, through: int = 0) -> None:
        """Deliver what can be delivered; missing messages up to `through` are given up."""
        while self.next_number <= TOP:
            fate = self.fates[self.next_number]
            if fate is Fate.HELD:
                self.fates[self.next_number] = Fate.DELIVERED
                self.delivered.append((self.next_number, self.contents[self.next_number]))
            elif fate is Fate.MISSING and self.next_number <= through:
                self.fates[self.next_number] = Fate.GIVEN_UP
            elif fate not in NEEDS_NO_MESSAGE and (self.ordered or fate is not Fate.DELIVERED):
                return
            self.next_number += 1

    def numbers(self, *fates: Fate) -> list[int]:
        return [number for number, fate in enumerate(self.fates) if fate in fates]
