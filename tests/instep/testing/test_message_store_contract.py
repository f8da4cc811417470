"""Every promise of a message store can be broken: a SQL store that is made worse is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep.ports import Sink
from instep.ports.message_store import (
    Deliver,
    DeliveryResult,
    DeliveryStoppedError,
    DueSequences,
    HandlerFailure,
    MessageGroup,
    StoredSequence,
)
from instep.sequencing.outbox import OutboxState
from instep.sequencing.state import SequencerState
from instep.testing import (
    MESSAGE_STORE_PROMISES,
    BrokenPromiseError,
    MemorySink,
    check_message_store,
)
from instep_sql import SqlStore
from instep_sql.messages.message_store import SqlMessageStore

pytestmark = pytest.mark.asyncio


class Worse:
    """Hands everything on to a real inbox; a subclass breaks one thing."""

    def __init__(self, store: SqlMessageStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class WorseSink(SqlStore):
    worse: type[Worse]

    def messages(self) -> Any:
        return self.worse(super().messages())


class MakesWhatIsAskedFor(Worse):
    async def load(self, scopes: Collection[str]) -> dict[str, StoredSequence]:
        found = await self.store.load(scopes)
        blank = StoredSequence(SequencerState(next_number=1))
        return {scope: found.get(scope, blank) for scope in scopes}


class Changed(Worse):
    """Commits something else."""

    def changed(self, group: MessageGroup) -> MessageGroup:
        raise NotImplementedError

    async def commit(self, group: MessageGroup) -> None:
        await self.store.commit(self.changed(group))


class OneScopeAGroup(Changed):
    def changed(self, group: MessageGroup) -> MessageGroup:
        return msgspec.structs.replace(group, changes=group.changes[:1])


class Torn(Worse):
    """A group is several transactions, and a cancelled one remains half."""

    async def commit(self, group: MessageGroup) -> None:
        bare = [msgspec.structs.replace(one, release=[]) for one in group.changes]
        await asyncio.shield(self.store.commit(msgspec.structs.replace(group, changes=bare)))
        await self.store.commit(group)


class Backwards(Changed):
    def changed(self, group: MessageGroup) -> MessageGroup:
        turned = [
            msgspec.structs.replace(
                one,
                release=[
                    (epoch, msgspec.structs.replace(message, number=100 - message.number))
                    for epoch, message in one.release
                ],
            )
            for one in group.changes
        ]
        return msgspec.structs.replace(group, changes=turned)


class ReleasesWhatIsHeld(Changed):
    def changed(self, group: MessageGroup) -> MessageGroup:
        turned = [
            msgspec.structs.replace(one, release=sorted([*one.release, *one.keep], key=_number))
            for one in group.changes
        ]
        for one in turned:
            one.keep = []
        return msgspec.structs.replace(group, changes=turned)


def _number(one: tuple[int, Any]) -> int:
    number: int = one[1].number
    return number


class BuriesNothing(Changed):
    def changed(self, group: MessageGroup) -> MessageGroup:
        turned = [msgspec.structs.replace(one, ended=[]) for one in group.changes]
        return msgspec.structs.replace(group, changes=turned)


class IgnoresFailures(Worse):
    async def deliver(self, deliver: Deliver, now_us: int, limit_messages: int) -> DeliveryResult:
        async def take(*given: Any) -> None:
            await deliver(*given)

        return await self.store.deliver(take, now_us, limit_messages)


class UndoesAll(Worse):
    async def deliver(self, deliver: Deliver, now_us: int, limit_messages: int) -> DeliveryResult:
        stopped = False

        async def take(*given: Any) -> HandlerFailure | bytes | None:
            nonlocal stopped
            try:
                return await deliver(*given)
            except DeliveryStoppedError:
                stopped = True
                raise RuntimeError("roll back") from None

        try:
            return await self.store.deliver(take, now_us, limit_messages)
        except RuntimeError:
            assert stopped
            return DeliveryResult()


class LosesReplies(Worse):
    async def deliver(self, deliver: Deliver, now_us: int, limit_messages: int) -> DeliveryResult:
        async def take(*given: Any) -> HandlerFailure | None:
            outcome = await deliver(*given)
            return outcome if isinstance(outcome, HandlerFailure) else None

        return await self.store.deliver(take, now_us, limit_messages)


class AlwaysHandled(Worse):
    async def open(self, kind: str, *, handled: bool) -> None:
        del handled
        await self.store.open(kind, handled=True)

    async def commit(self, group: MessageGroup) -> None:
        await self.store.commit(msgspec.structs.replace(group, handled=True))


class SawNothing(Worse):
    async def find_seen(self, messages: Sequence[Any]) -> set[tuple[str, str]]:
        del messages
        return set()


class Unfenced(Worse):
    async def commit(self, group: MessageGroup) -> None:
        await self.store.open("check", handled=True)
        await self.store.commit(group)


class DueInAnyOrder(Worse):
    async def find_due(self, now_us: int, limit: int) -> DueSequences:
        due = await self.store.find_due(now_us, limit)
        return msgspec.structs.replace(due, scopes=due.scopes[::-1])


class KeepsNoBodies(Worse):
    async def save_outbox(
        self,
        scope: str,
        state: OutboxState,
        before: OutboxState,
        bodies: Mapping[int, bytes] | None = None,
    ) -> None:
        await self.store.save_outbox(scope, state, before, dict.fromkeys(bodies or {}, b""))


class KeepsBodiesOnly(Changed):
    def changed(self, group: MessageGroup) -> MessageGroup:
        bare = [
            msgspec.structs.replace(
                change,
                keep=[(n, msgspec.structs.replace(one, attachments=())) for n, one in change.keep],
            )
            for change in group.changes
        ]
        return msgspec.structs.replace(group, changes=bare)


BROKEN: dict[str, type[Worse]] = {
    "an-unknown-scope-is-not-there": MakesWhatIsAskedFor,
    "a-sequence-is-kept-as-it-was-committed": OneScopeAGroup,
    "cancelling-tears-nothing": Torn,
    "messages-are-delivered-once-in-order": Backwards,
    "held-messages-wait-for-their-turn": ReleasesWhatIsHeld,
    "the-dead-are-kept": BuriesNothing,
    "a-failed-message-comes-again": IgnoresFailures,
    "a-stop-keeps-what-was-taken": UndoesAll,
    "a-reply-is-kept": LosesReplies,
    "attachments-are-kept": KeepsBodiesOnly,
    "without-a-handler-nothing-waits": AlwaysHandled,
    "unsequenced-messages-are-remembered": SawNothing,
    "the-earlier-process-is-fenced": Unfenced,
    "due-sequences-are-told": DueInAnyOrder,
    "our-own-messages-are-kept": KeepsNoBodies,
}


def making(folder: Path, worse: type[Worse]) -> Callable[[str], Sink]:
    kind = type("Sink", (WorseSink,), {"worse": worse})
    return lambda name: kind(f"sqlite:///{folder}/{name}.db")


@pytest.mark.parametrize("promise", MESSAGE_STORE_PROMISES)
async def test_a_broken_promise_is_found(promise: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenPromiseError) as caught:
        await check_message_store(making(tmp_path, BROKEN[promise]), only=promise)
    assert caught.value.promise == promise
    assert caught.value.where.startswith("instep.ports.MessageStore")
    assert caught.value.__cause__ is None


async def test_a_store_that_is_handed_on_keeps_all(tmp_path: Path) -> None:
    await check_message_store(making(tmp_path, Worse))


async def test_a_sink_without_an_inbox_is_reported() -> None:
    with pytest.raises(BrokenPromiseError, match="the sink keeps no messages"):
        await check_message_store(lambda _: MemorySink())


async def test_a_promise_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no promise is named 'x'"):
        await check_message_store(lambda _: MemorySink(), only="x")
