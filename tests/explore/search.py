"""Breadth-first search over every history of a small world.

A world says which moves it has, and how it moves. Two worlds with one `key` are one state: it is
visited once. The first history that leads to a violation is a shortest one, because all shorter
histories were tried before it.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple, Protocol, Self, TypeVar

__all__ = ["Explored", "Violation", "World", "explore", "replay"]


class Violation(Exception):
    """An invariant does not hold in a state, or after a move."""


class World(Protocol):
    """One state of a small world."""

    def moves(self) -> Iterable[str]:
        """The moves that are possible here, by name."""

    def after(self, move: str) -> Self:
        """The world after a move; this one stays as it is. Raises `Violation`."""

    def key(self) -> bytes:
        """Equal for states that differ by names alone."""

    def check(self) -> None:
        """Raises `Violation` where an invariant of the state does not hold."""

    def settling(self) -> str:
        """The move that follows once faults have ended; empty: the world is in step."""


_TELL_EVERY_S = 5.0
_SETTLED_MOVES = 100
_FOLLOWED = 8
"""One of so many states beyond the bound is followed: that costs several states each."""

W = TypeVar("W", bound=World)


class Explored(NamedTuple):
    """What a search has visited, and what it found."""

    states: int
    moves: int
    depth: int
    seconds: float
    closed: bool
    """Whether no new state is left: every history within the bound was visited."""
    history: tuple[str, ...] = ()
    """The shortest history that leads to the violation."""
    violation: str = ""


def explore(
    first: W, *, most_states: int, progress: Callable[[int, int, int], None] | None = None
) -> Explored:
    """Visit every state that `first` leads to, at most `most_states` of them.

    `progress` is told states, states that wait, and depth, every few seconds.
    """
    # States refer to none that came later: there is no circle to look for, again and again.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _explore(first, most_states, progress)
    finally:
        if collects:
            gc.enable()


def _explore(  # noqa: C901 - a search reads from top to bottom
    first: W, most_states: int, progress: Callable[[int, int, int], None] | None
) -> Explored:
    began_s = told_s = time.monotonic()
    index_of = {_digest(first): 0}
    # Of each state: the one before it with the move that led here, and the one that follows it once
    # faults have ended (itself where it is in step, -1 where it was not followed).
    path: list[tuple[int, str]] = [(-1, "")]
    follows = array("q", [-1])
    waiting: deque[tuple[int, int, W]] = deque([(0, 0, first)])
    moves = depth = 0

    def result(history: tuple[str, ...] = (), violation: str = "") -> Explored:
        seconds = time.monotonic() - began_s
        return Explored(len(path), moves, depth, seconds, not waiting, history, violation)

    while waiting and len(path) < most_states:
        index, depth, world = waiting.popleft()
        settling = world.settling()
        if not settling:
            follows[index] = index
        for move in world.moves():
            moves += 1
            try:
                next_world = world.after(move)
                digest = _digest(next_world)
                next_index = index_of.get(digest)
                if next_index is None:
                    next_world.check()
            except Exception as found:  # noqa: BLE001 - a machine may raise nothing
                return result((*_history(path, index), move), _text(found))
            if next_index is None:
                next_index = index_of[digest] = len(path)
                path.append((index, move))
                follows.append(-1)
                waiting.append((next_index, depth + 1, next_world))
            if move == settling:
                follows[index] = next_index
        if progress is not None and time.monotonic() - told_s > _TELL_EVERY_S:
            told_s = time.monotonic()
            progress(len(path), len(waiting), depth)
    for index, _, world in islice(waiting, 0, None, _FOLLOWED):
        # What is beyond the bound is followed to its end, without faults.
        found_beyond = _settled(world, index_of)
        if found_beyond is not None:
            return result((*_history(path, index), *found_beyond[0]), found_beyond[1])
    stuck = _stuck(follows)
    if stuck is not None:
        return result(_history(path, stuck), "once faults have ended it does not come into step")
    return result()


def replay(first: W, history: Iterable[str]) -> W:
    """The world after these moves. Raises `Violation` as the search does."""
    for move in history:
        first = first.after(move)
        first.check()
    return first


def _settled(world: World, index_of: dict[bytes, int]) -> tuple[list[str], str] | None:
    """Follow a state once faults have ended, to one that was met. Else: the moves that were made,
    and what they led to.
    """
    moves: list[str] = []
    while move := world.settling():
        moves.append(move)
        try:
            world = world.after(move)
            world.check()
        except Exception as found:  # noqa: BLE001 - a machine may raise nothing
            return moves, _text(found)
        if len(moves) > _SETTLED_MOVES:
            return moves, "once faults have ended it does not come into step"
        digest = _digest(world)
        if digest in index_of:
            break
        index_of[digest] = -1
    return None


def _stuck(follows: array[int]) -> int | None:
    """The first state from which none that is in step follows. Of what was not followed to an end
    nothing is known.
    """
    known = bytearray(len(follows))
    for start in range(len(follows)):
        passed = []
        at = start
        while not known[at]:
            known[at] = 1
            passed.append(at)
            after = follows[at]
            if after < 0 or after == at:
                break
            if known[after] == 1 and after in passed:
                return start
            at = after
        for at in passed:
            known[at] = 2
    return None


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"


def _digest(world: World) -> bytes:
    return blake2b(world.key(), digest_size=16).digest()


def _history(path: list[tuple[int, str]], index: int) -> tuple[str, ...]:
    moves = []
    while index > 0:
        index, move = path[index]
        moves.append(move)
    return tuple(reversed(moves))
