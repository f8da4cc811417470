"""What a cell of the table shows, and how the store of a source is held against its provider."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import msgspec

from instep import ConsumerState, Health
from instep.testing.relay import Relay, Rule

__all__ = ["GO_ON_S", "PLAY_S", "Outcome", "Play", "follow"]

Result = Literal["ok", "refused", "differs", "not played"]
PLAY_S: Final = 12.0
"""So long a rule may take to strike for the first time …"""
GO_ON_S: Final = 1.0
"""… and for so long it goes on."""
EQUAL_S: Final = 45.0
"""So long both sides may take to become equal."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a cell.

    ok: the rule struck, and afterwards (where `Play.heals`) or all the same (where not) nothing was
    missing, doubled or different. refused: the product said why it does not go on, and that is what
    is wanted. differs: neither of both.
    """

    result: Result
    reason: str = ""


class Play(msgspec.Struct, frozen=True):
    """How a rule is played to a kind."""

    make: Callable[[], Rule]
    rounds: int = 1
    """How often, each with another seed: what a lost message does depends on what comes next."""
    from_start: bool = True
    """Whether it plays while the product starts, too."""
    heals: bool = True
    """Whether the fault ends before both sides are compared; else they must become equal under it.
    """

    def rule(self) -> Rule:
        """The rule; where it does not play from the start, it waits to be made active."""
        rule = self.make()
        rule.active = self.from_start
        return rule


async def follow(
    rule: Rule,
    relay: Relay,
    *,
    heals: bool,
    change: Callable[[], Awaitable[object]],
    held: Callable[[], Awaitable[dict[str, Any]]],
    truth: Callable[[], dict[str, Any]],
    health: Callable[[], Health],
) -> Outcome:
    """Change the provider until the rule has struck, and compare what is stored in the end."""
    until_s = time.monotonic() + PLAY_S
    while not rule.played and time.monotonic() < until_s and not _failed(health()):
        await change()
        await asyncio.sleep(0.02)
    if not rule.played:
        return _end(health()) or Outcome("not played")
    until_s = time.monotonic() + GO_ON_S
    while time.monotonic() < until_s:
        await change()
        await asyncio.sleep(0.02)
    if heals:
        relay.heal()
    until_s = time.monotonic() + EQUAL_S
    changes = 10
    while time.monotonic() < until_s:
        if ended := _end(health()):
            return ended
        if changes:  # what was lost last shows by what comes after it
            changes -= 1
            await change()
        elif health().aligned and await held() == truth():
            return Outcome("ok")
        await asyncio.sleep(0.1)
    return Outcome("differs", _difference(await held(), truth(), health()))


def _failed(health: Health) -> bool:
    return health.state in (ConsumerState.FAILED, ConsumerState.STOPPED)


def _end(health: Health) -> Outcome | None:
    if not _failed(health):
        return None
    return Outcome("refused", " ".join(health.error.split()))


def _difference(held: dict[str, Any], truth: dict[str, Any], health: Health) -> str:
    missing = len(truth.keys() - held.keys())
    phantoms = len(held.keys() - truth.keys())
    other = sum(held[key] != truth[key] for key in held.keys() & truth.keys())
    errors = {health.error, *(stream.last_error for stream in health.streams)} - {""}
    phases = {stream.phase for stream in health.streams}
    told = "; ".join([*sorted(phases), *sorted(errors)])
    return f"{missing} missing, {phantoms} phantoms, {other} different of {len(truth)}; {told}"
