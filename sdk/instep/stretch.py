"""A stretch of a log held column by column, so that what is decided about all of it needs no look
at one statement after another.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from operator import le, lt
from typing import overload

from instep.records import Kind, Record, Statement

__all__ = ["Folded", "Joined", "Stretch", "Superseded", "in_order", "joined"]


class Stretch(Sequence[Statement]):
    """Statements that follow each other in one partition: offsets grow, append times do not go
    back.

    A statement is built when it is asked for: of a storm over few entities, only the last word on
    each of them is.
    """

    __slots__ = ("appended_at_us", "keys", "kinds", "offsets", "partition", "stream", "tokens")

    def __init__(
        self,
        stream: str,
        partition: str,
        keys: Sequence[str],
        kinds: Sequence[Kind],
        tokens: Sequence[str],
        offsets: Sequence[int],
        appended_at_us: Sequence[int],
    ) -> None:
        self.stream = stream
        self.partition = partition
        self.keys = keys
        self.kinds = kinds
        self.tokens = tokens
        self.offsets = offsets
        self.appended_at_us = appended_at_us

    @abstractmethod
    def at(self, index: int) -> Statement:
        """The statement at an index from 0 on."""

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Statement: ...
    @overload
    def __getitem__(self, index: slice) -> list[Statement]: ...
    def __getitem__(self, index: int | slice) -> Statement | list[Statement]:
        which = range(len(self))[index]
        return self.at(which) if isinstance(which, int) else list(map(self.at, which))

    def __iter__(self) -> Iterator[Statement]:
        return map(self.at, range(len(self)))

    def last_indexes(self) -> list[int]:
        """Where the statement is that counts for each key (rule 3): the last, as nothing goes
        backwards.
        """
        return list(dict(zip(self.keys, range(len(self)), strict=True)).values())

    def last_words(self) -> list[Statement]:
        """The statement that counts for each key."""
        return list(map(self.at, self.last_indexes()))


class Superseded(Statement, frozen=True, gc=False):
    """A statement whose body was let go: a later one of its stretch stands for it."""


class Folded(Stretch):
    """A stretch of which only the records that count were kept, by their index."""

    __slots__ = ("_kept",)

    def __init__(self, whole: Stretch, kept: Mapping[int, Record]) -> None:
        super().__init__(
            whole.stream,
            whole.partition,
            whole.keys,
            whole.kinds,
            whole.tokens,
            whole.offsets,
            whole.appended_at_us,
        )
        self._kept = kept

    def at(self, index: int) -> Statement:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        return Superseded(
            self.stream,
            self.keys[index],
            self.kinds[index],
            self.tokens[index],
            self.appended_at_us[index],
            self.partition,
            self.offsets[index],
        )


class Joined(Stretch):
    """Stretches that follow each other, as one."""

    __slots__ = ("_begins", "_parts")

    def __init__(self, parts: Sequence[Stretch]) -> None:
        super().__init__(
            parts[0].stream,
            parts[0].partition,
            [key for part in parts for key in part.keys],
            [kind for part in parts for kind in part.kinds],
            [token for part in parts for token in part.tokens],
            [offset for part in parts for offset in part.offsets],
            [time_us for part in parts for time_us in part.appended_at_us],
        )
        self._parts = parts
        self._begins = [0, *accumulate(map(len, parts))]

    def at(self, index: int) -> Statement:
        part = bisect_right(self._begins, index) - 1
        return self._parts[part].at(index - self._begins[part])


def in_order(offsets: Sequence[int], appended_at_us: Sequence[int]) -> bool:
    """Whether offsets are known and grow, and append times do not go back."""
    return (
        offsets[0] >= 0
        and all(map(lt, offsets, islice(offsets, 1, None)))
        and all(map(le, appended_at_us, islice(appended_at_us, 1, None)))
    )


def joined(parts: Sequence[Sequence[Statement]]) -> Sequence[Statement]:
    """These one after the other: as a stretch, where they are one."""
    stretches = [part for part in parts if isinstance(part, Stretch)]
    if len(stretches) == len(parts) and all(
        one.partition == other.partition
        and one.offsets[-1] < other.offsets[0]
        and one.appended_at_us[-1] <= other.appended_at_us[0]
        for one, other in pairwise(stretches)
    ):
        return Joined(stretches)
    return [statement for part in parts for statement in part]
