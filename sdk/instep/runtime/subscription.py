"""Subscribers of the journal: changes in batches, by cursor, with a choice of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, TypedDict

import msgspec

from instep.errors import JournalDivergedError
from instep.model.entities import Change, ChangeKind, JournalEnd
from instep.model.freshness import Freshness, FreshnessState
from instep.ports.reader import StoreReader
from instep.runtime.retry import Environment, retrying
from instep.runtime.settings import ConsumerSettings
from instep.runtime.supervision import until_first_ended

__all__ = ["Subscription", "SubscriptionOptions"]

_BATCH_CHANGES = 500
_POLL_S = 0.2
_FRESHNESS_S = 1.0
"""How often it is looked at how fresh the streams are, in seconds."""


class SubscriptionOptions(TypedDict, total=False):
    """What a subscriber chooses, as the arguments of `Subscription` are called."""

    consumer: str | None
    stream: str | None
    classes: Collection[str]
    below: str | None
    batch_changes: int
    follow: bool
    poll_s: float


class Subscription:
    """The committed changes after a cursor, in batches, for a program that acts on them (ST-5.1).

    ::

        subscription = Subscription(store.reader, cursor, classes=["LINK"])
        async for batch in subscription:
            ...  # then store batch[-1].cursor and batch[-1].epoch

    Promised: each chosen change is given at least once, in the order of the commits. A slow
    subscriber holds up no commit and needs no memory. `ChangesTrimmedError` means that the journal
    no longer keeps the changes after its cursor. `JournalDivergedError` means that the cursor is of
    another journal: the store was restored or copied, or a replica that lagged was promoted. In
    both cases take a new cursor, read the entities again, and subscribe from that cursor.

    Not promised: that a change is given once only. Whoever stops between a batch and the storing of
    its cursor gets the batch again. That nothing comes does not mean that nothing has changed:
    `freshness` says whether the streams are followed.

    - `reader`: The store.
    - `cursor`: Begin after this cursor; 0: with the oldest change that is kept. Or after this
      place, a text of `Change.place` or `JournalEnd.place`: then leave out `epoch`.
    - `epoch`: Of the change with this cursor (`Change.epoch`). Without it, a cursor of another
      journal is noticed only while it is beyond the newest change.
    - `consumer`: Only changes of this consumer …
    - `stream`: … and of this stream.
    - `classes`: Only changes of entities of these classes; empty: of all.
    - `below`: Only changes of the entity with this uuid and of those below it, by the
      parent-address of the record that caused them. Ends that state no place come, too: DELETE and
      TOMBSTONE need none, and a sweep has none.
    - `batch_changes`: Most changes of one batch.
    - `follow`: Whether to wait for more; otherwise it ends with the newest change.
    - `poll_s`: How often, in seconds, more is looked for. PostgreSQL notifies of commits: then it
      is looked for at once, too. All that wait for changes of one reader share one look.

    Raises `ConfigurationError` for a text that is no place.
    """

    def __init__(  # noqa: PLR0913 - what a subscriber can choose
        self,
        reader: StoreReader,
        cursor: int | str = 0,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        classes: Collection[str] = (),
        below: str | None = None,
        batch_changes: int = _BATCH_CHANGES,
        follow: bool = True,
        poll_s: float = _POLL_S,
        epoch: str = "",
    ) -> None:
        self._reader = reader
        self._consumer = consumer
        self._stream = stream
        self._classes = frozenset(classes)
        self._below = below
        self._batch_changes = batch_changes
        self._follow = follow
        self._poll_s = poll_s
        self._at = JournalEnd(cursor, epoch) if isinstance(cursor, int) else JournalEnd.at(cursor)

    def __repr__(self) -> str:
        return f"<Subscription after {self.cursor}>"

    @property
    def cursor(self) -> int:
        """The cursor of the last change that is done: the next batch has been asked for."""
        return self._at.cursor

    @property
    def epoch(self) -> str:
        """The epoch of that change (`Change.epoch`)."""
        return self._at.epoch

    async def lag(self) -> int:
        """How many changes the subscriber is behind. Those that it does not choose count, too.
        `freshness` tells what the streams have not brought to the store yet.

        Raises `JournalDivergedError` where the cursor is beyond the newest change.
        """
        return (await self._end()).cursor - self.cursor

    async def freshness(self) -> list[Freshness]:
        """How fresh the streams are whose changes it may give."""
        return [
            one
            for one in await self._reader.freshness()
            if self._consumer in {None, one.consumer}
            and self._stream in {None, one.stream}
            and not (self._classes and one.classes and self._classes.isdisjoint(one.classes))
        ]

    async def __aiter__(self) -> AsyncIterator[Sequence[Change]]:
        """Iterate over the batches. Raises `ChangesTrimmedError`, `JournalDivergedError`,
        `JournalOffError` and other errors of the store; one that is retriable ends the iteration,
        too: iterate again.
        """
        seen = -1
        if self._follow:
            await self._reader.join_followers()
        while True:
            # What is in memory may be old while nobody waits for more: to follow, that is enough.
            recent = self._reader.recent_changes(self._at) if self._follow else None
            if recent is not None:
                changes, newest = recent
                chosen = list(filter(self._chooses, changes))
                for first in range(0, len(chosen), self._batch_changes):
                    batch = chosen[first : first + self._batch_changes]
                    yield batch
                    self._at = JournalEnd(batch[-1].cursor, batch[-1].epoch)
                self._at = newest
                seen = await self._reader.wait_for_change(seen, self._poll_s)
                continue
            newest = await self._end()
            batch = []
            at = self._at
            # A reader of another kind of store may know no epochs.
            of: dict[str, Any] = {"epoch": at.epoch} if at.epoch else {}
            async for change in self._reader.changes(
                at.cursor,
                consumer=self._consumer,
                stream=self._stream,
                entity_class=next(iter(self._classes)) if len(self._classes) == 1 else None,
                **of,
            ):
                at = JournalEnd(change.cursor, change.epoch)
                if self._chooses(change):
                    batch.append(change)
                if len(batch) == self._batch_changes:
                    yield batch
                    self._at, batch = at, []
            if batch:
                yield batch
            self._at = newest if newest.cursor > at.cursor else at
            if not self._follow:
                return
            seen = await self._reader.wait_for_change(seen, self._poll_s)

    async def run(
        self,
        handler: Callable[[Sequence[Change]], Awaitable[None]],
        *,
        saved: Callable[[int], Awaitable[None]] | None = None,
        freshness: Callable[[Sequence[Freshness]], Awaitable[None]] | None = None,
        settings: ConsumerSettings | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Pass each batch to a handler, until cancelled; without `follow` until the newest change.

        Where the handler or the store raises a retriable `InstepError`, the batch is read and
        passed again, with the waits of `settings` (`reconnect_initial_s`, `reconnect_max_s`,
        `reconnect_attempts`); other errors are raised. `saved` is given the cursor after each batch
        that the handler has taken; `epoch` is then that of this cursor. `freshness` is given how
        fresh the streams are, at first and whenever that has changed: no changes are no proof that
        nothing has changed.
        """
        settings, environment = settings or ConsumerSettings(), environment or Environment()
        handling = self._handle(handler, saved, settings, environment)
        if freshness is None:
            await handling
        else:
            telling = self._tell_freshness(freshness, settings, environment)
            await until_first_ended(handling, telling)

    async def _tell_freshness(
        self,
        tell: Callable[[Sequence[Freshness]], Awaitable[None]],
        settings: ConsumerSettings,
        environment: Environment,
    ) -> None:
        told: list[tuple[str, str, FreshnessState]] | None = None
        while True:
            async for attempt in retrying(settings, environment):
                with attempt:
                    found = await self.freshness()
                    says = [(one.consumer, one.stream, one.state) for one in found]
                    if says != told:
                        await tell(found)
                        told = says
            await asyncio.sleep(_FRESHNESS_S)

    async def _handle(
        self,
        handler: Callable[[Sequence[Change]], Awaitable[None]],
        saved: Callable[[int], Awaitable[None]] | None,
        settings: ConsumerSettings,
        environment: Environment,
    ) -> None:
        batches: AsyncIterator[Sequence[Change]] | None = None
        batch: Sequence[Change] | None = None
        while True:
            async for attempt in retrying(settings, environment):
                with attempt:
                    try:
                        batches = batches or aiter(self)
                        batch = await anext(batches, None)
                        if batch is not None:
                            await handler(batch)
                    except Exception:
                        batches = None
                        raise
            if batch is None:
                return
            self._at = JournalEnd(batch[-1].cursor, batch[-1].epoch)
            if saved is not None:
                await saved(batch[-1].cursor)

    async def _end(self) -> JournalEnd:
        """The newest change. Raises `JournalDivergedError` where it lies before the cursor."""
        end = await self._reader.journal_end()
        if end.cursor < self.cursor:
            raise JournalDivergedError(
                f"cursor {self.cursor} is of another journal: the newest change is {end.cursor}",
                where=repr(self._reader),
                hint="the store was restored, or a replica that lagged was promoted: read the"
                " entities anew, and subscribe from a cursor taken before that",
                newest=end.cursor,
            )
        return end

    def _chooses(self, change: Change) -> bool:
        if self._consumer not in {None, change.consumer}:
            return False
        if self._stream not in {None, change.stream}:
            return False
        if self._classes and change.entity_class not in self._classes:
            return False
        return self._below is None or _is_below(change, self._below)


class _Envelope(msgspec.Struct, rename="kebab", gc=False):
    parent_address: list[str] | None = None


class _Entity(msgspec.Struct, gc=False):
    uuid: str = ""


_envelope = msgspec.json.Decoder(_Envelope).decode
_entity = msgspec.json.Decoder(_Entity).decode


def _is_below(change: Change, uuid: str) -> bool:
    """Whether the entity is the one with this uuid, below it, or at a place that is not stated."""
    if change.key == uuid:
        return True
    try:
        if change.body and _entity(change.body).uuid == uuid:
            return True
        address = _envelope(change.envelope).parent_address if change.envelope else None
    except msgspec.MsgspecError:
        return True
    if address is None:
        return change.change in (ChangeKind.DELETED, ChangeKind.SWEPT)
    return any(element.rpartition(":")[2] == uuid for element in address)
