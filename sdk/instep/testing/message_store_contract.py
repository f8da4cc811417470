"""Whether a sink's inbox and outbox keep the promises of `instep.ports.MessageStore`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from instep.errors import FencedError
from instep.model.messages import Attachment, Message
from instep.model.ranges import Ranges
from instep.ports.message_store import (
    DeliveryResult,
    DeliveryStoppedError,
    HandlerConnection,
    HandlerFailure,
    MessageGroup,
    MessageStore,
    SequenceChange,
    StoredReply,
)
from instep.ports.sink import Sink
from instep.sequencing.ends import EndedNumbers, NumberEnd
from instep.sequencing.outbox import Outbox
from instep.sequencing.state import SequencerState
from instep.testing.promises import Contract, require

__all__ = ["MESSAGE_STORE_PROMISES", "check_message_store"]

MakeSink = Callable[[str], Sink]

_KIND: Final = "check"
_NOW_US: Final = 1_700_000_000_000_000
_YIELDS: Final = 12


class _Subject:
    """Makes inboxes over one store, which is empty at first."""

    def __init__(self, make: MakeSink, name: str) -> None:
        self._make, self._name = make, name
        self._sinks: list[Sink] = []

    async def store(self, *, handled: bool = True) -> MessageStore:
        """The inbox of a sink of its own, as another process would open it."""
        sink = self._make(self._name)
        self._sinks.append(sink)
        await sink.open(self._name)
        store = sink.messages()
        if store is None:
            require(kept=False, found="messages() returned None: the sink keeps no messages")
            raise AssertionError
        await store.open(_KIND, handled=handled)
        return store

    async def close(self) -> None:
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            await sink.close()


class _Handler:
    """A handler that takes messages, or fails where `failures` names them."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int, int]] = []
        """Scope, number, how often it was tried before."""
        self.failures: dict[tuple[str, int], HandlerFailure] = {}
        self.replies: dict[tuple[str, int], bytes] = {}
        self.takes: int | None = None
        """How many messages it takes before it stops; None: all."""
        self.attached: list[tuple[Attachment, ...]] = []

    async def __call__(
        self, message: Message, tries: int, connection: HandlerConnection
    ) -> HandlerFailure | bytes | None:
        del connection
        key = message.scope, message.number
        if self.takes is not None and len(self.taken) >= self.takes:
            raise DeliveryStoppedError
        self.taken.append((*key, tries))
        self.attached.append(message.attachments)
        return self.failures.get(key) or self.replies.get(key)

    def numbers(self, scope: str) -> list[int]:
        return [number for of, number, _ in self.taken if of == scope]

    async def drain(self, store: MessageStore, now_us: int = _NOW_US) -> DeliveryResult:
        """Deliver until nothing is left; returns the last result that was not empty."""
        last = result = await store.deliver(self, now_us, 100)
        for _ in range(100):
            if not result.delivered and not result.failed:
                return last
            last, result = result, await store.deliver(self, now_us, 100)
        require(kept=False, found="a hundred rounds of deliver() did not come to an end")
        return last


def _message(number: int, scope: str = "a", **changes: Any) -> Message:
    given: dict[str, Any] = {
        "id": f"{scope}#{number}",
        "body": b'{"number":%d}' % number,
        "received_at_us": _NOW_US,
    }
    return Message(scope=scope, number=number, **given | changes)


def _state(next_number: int) -> SequencerState:
    """The state of a sequence that has received all numbers below this one."""
    received = Ranges.of((1, next_number - 1)) if next_number > 1 else Ranges()
    return SequencerState(next_number=next_number, received=received)


def _change(scope: str, next_number: int, **changes: Any) -> SequenceChange:
    given: dict[str, Any] = {"scope": scope, "state": _state(next_number), "due_us": None}
    return SequenceChange(**given | changes)


def _released(scope: str, first: int, last: int) -> SequenceChange:
    """The change that releases new messages of these numbers."""
    release = [(0, _message(number, scope)) for number in range(first, last + 1)]
    return _change(scope, last + 1, release=release)


def _group(*changes: SequenceChange, handled: bool = True) -> MessageGroup:
    return MessageGroup(now_us=_NOW_US, changes=list(changes), handled=handled, deviations={})


async def _waiting(store: MessageStore, scope: str) -> int:
    found = await store.load([scope])
    return found[scope].waiting if scope in found else 0


_CONTRACT: Final[Contract[_Subject]] = Contract("instep.ports.MessageStore")
_promise = _CONTRACT.promise


@_promise("a scope never seen is not stored, and asking for it does not make it")
async def _an_unknown_scope_is_not_there(at: _Subject) -> None:
    store = await at.store()
    for _ in range(2):
        found = await store.load(["a"])
        require(found == {}, f"load() found {found}")


@_promise("a sequence is loaded as it was committed, also by another process", "S3")
async def _a_sequence_is_kept_as_it_was_committed(at: _Subject) -> None:
    store = await at.store()
    await store.commit(_group(_released("a", 1, 3), _released("b", 1, 1)))
    await store.commit(_group(_released("a", 4, 4)))
    for process in ("the same", "another"):
        found = await store.load(["a", "b", "c"])
        require(found.keys() == {"a", "b"}, f"{process} process found {sorted(found)}")
        states = {scope: one.state for scope, one in found.items()}
        expected = {"a": _state(5), "b": _state(2)}
        require(states == expected, f"{process} process found {states}, stored was {expected}")
        waiting = {scope: one.waiting for scope, one in found.items()}
        require(waiting == {"a": 4, "b": 1}, f"waiting are {waiting}, not 4 of a and 1 of b")
        await at.close()
        store = await at.store()


@_promise("a group that is cancelled is whole, or not there", "S3")
async def _cancelling_tears_nothing(at: _Subject) -> None:
    store = await at.store()
    number = 1
    for yields in range(_YIELDS):
        before = await _waiting(store, "a")
        task = asyncio.ensure_future(store.commit(_group(_released("a", number, number))))
        for _ in range(yields):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        found = await store.load(["a"])
        stored = found["a"].state.next_number if found else 1
        waiting = found["a"].waiting if found else 0
        require(
            (stored, waiting) in ((number, before), (number + 1, before + 1)),
            f"the next number is {stored} (before: {number}), and {waiting} messages wait (before: "
            f"{before})",
        )
        number = stored


@_promise("released messages go to the handler in order within their scope, each once", "S2")
async def _messages_are_delivered_once_in_order(at: _Subject) -> None:
    store, handler = await at.store(), _Handler()
    await store.commit(_group(_released("a", 1, 3), _released("b", 1, 2)))
    await handler.drain(store)
    await store.commit(_group(_released("a", 4, 5)))
    await handler.drain(store)
    for scope, expected in (("a", [1, 2, 3, 4, 5]), ("b", [1, 2])):
        found = handler.numbers(scope)
        require(found == expected, f"the handler got {found} of {scope}, released were {expected}")
        require(await _waiting(store, scope) == 0, f"messages of {scope} are said to wait still")


@_promise("a message that is held is not delivered before it is released", "S2")
async def _held_messages_wait_for_their_turn(at: _Subject) -> None:
    store, handler = await at.store(), _Handler()
    held = [(0, _message(3)), (0, _message(2))]
    await store.commit(_group(_change("a", 1, keep=held)))
    await handler.drain(store)
    require(handler.taken == [], f"the handler got {handler.taken} before message 1 came")
    released = _change("a", 4, release=[(0, _message(1))], release_buffered=[(0, 3)])
    await store.commit(_group(released))
    await handler.drain(store)
    found = handler.numbers("a")
    require(found == [1, 2, 3], f"the handler got {found} after 2 and 3 were held and 1 came")


@_promise("a held message whose number has ended is never delivered, and kept dead", "S13")
async def _the_dead_are_kept(at: _Subject) -> None:
    store, handler = await at.store(), _Handler()
    held = [(0, _message(2)), (0, _message(3))]
    await store.commit(_group(_change("a", 1, peer="p", keep=held, held_messages=2)))
    expired = EndedNumbers(2, 2, NumberEnd.EXPIRED, "expired")
    gone = _change("a", 4, peer="p", ended=[(expired, 0)], release=[(0, _message(1))])
    gone.release_buffered = [(0, 3)]
    await store.commit(_group(gone))
    await handler.drain(store)
    found = handler.numbers("a")
    require(found == [1, 3], f"the handler got {found}; 2 has expired")
    usage = (await store.usage()).get("p")
    dead = (usage.dead_messages, usage.dead_bytes > 0) if usage else None
    require(dead == (1, True), f"one message has expired, and the usage is {usage}")
    loaded = (await store.load(["a"]))["a"]
    require(loaded.dead_messages == 1, f"one message of a has expired; loaded was {loaded}")


@_promise("a message that its handler failed on comes again, and holds up only its sequence", "S2")
async def _a_failed_message_comes_again(at: _Subject) -> None:
    store, handler = await at.store(), _Handler()
    await store.commit(_group(_released("a", 1, 2), _released("b", 1, 2)))
    later_us = _NOW_US + 5_000_000
    handler.failures["a", 1] = HandlerFailure("no", retry_at_us=later_us, blocks=False)
    await handler.drain(store)
    require(handler.numbers("b") == [1, 2], f"of b the handler got {handler.numbers('b')}")
    require(2 not in handler.numbers("a"), "message 2 of a was delivered before message 1")
    handler.failures.clear()
    handler.taken.clear()
    await handler.drain(store, later_us)
    found = [(number, tries) for _, number, tries in handler.taken]
    require(found == [(1, 1), (2, 0)], f"then it got (number, tries before) {found}")


@_promise("what a handler took before it stopped is delivered, and the rest comes again", "S2")
async def _a_stop_keeps_what_was_taken(at: _Subject) -> None:
    store, handler = await at.store(), _Handler()
    await store.commit(_group(_released("a", 1, 3), _released("b", 1, 2)))
    handler.takes = 2
    await store.deliver(handler, _NOW_US, 100)
    taken = list(handler.taken)
    handler.takes = None
    await handler.drain(await at.store())
    for scope, expected in (("a", [1, 2, 3]), ("b", [1, 2])):
        found = handler.numbers(scope)
        require(found == expected, f"after a stop at {taken} the handler got {found} of {scope}")
    tries = {tried for _, _, tried in handler.taken}
    require(tries == {0}, f"a message that was not taken counts as tried: {handler.taken}")


@_promise("the reply of a handler is kept with the delivery, and found again by another process")
async def _a_reply_is_kept(at: _Subject) -> None:
    store, handler = await at.store(), _Handler()
    handler.replies = {("a", 1): b"yes", ("b", 1): b"no"}
    await store.commit(_group(_released("a", 1, 2), _released("b", 1, 1)))
    found = await store.reply("a", 1)
    require(found == StoredReply(None, pending=True), f"message 1 waits, and its reply is {found}")
    await handler.drain(store)
    again = await at.store()
    for scope, number, expected in (("a", 1, b"yes"), ("a", 2, None), ("b", 1, b"no")):
        found = await again.reply(scope, number)
        where = f"message {number} of {scope}"
        require(found == StoredReply(expected), f"{where} was replied {expected!r}, found: {found}")
    found = await again.reply("c", 1)
    require(found == StoredReply(None), f"a scope that is unknown has the reply {found}")


@_promise("what came with a message is kept and delivered with it", "S3")
async def _attachments_are_kept(at: _Subject) -> None:
    store, handler = await at.store(), _Handler()
    given = (
        Attachment(content_id="a@x", content_type="image/png", content=bytes(range(256))),
        Attachment(content_id="", content_type="", content=b"", headers={"x": "y"}),
    )
    held = (0, _message(2, attachments=given))
    await store.commit(_group(_change("a", 1, keep=[held])))
    again = await at.store()
    change = _change("a", 3, release=[(0, _message(1))], release_buffered=[(0, 2)])
    await again.commit(_group(change))
    await handler.drain(again)
    found = handler.attached
    require(found == [(), given], f"the handler got the attachments {found}")


@_promise("without a handler, messages are delivered to the store at once")
async def _without_a_handler_nothing_waits(at: _Subject) -> None:
    store = await at.store(handled=False)
    await store.commit(_group(_released("a", 1, 2), handled=False))
    waiting = await _waiting(store, "a")
    require(waiting == 0, f"{waiting} messages wait for a handler that is not there")


@_promise("an unsequenced message is known by its scope and id once it is committed", "S1")
async def _unsequenced_messages_are_remembered(at: _Subject) -> None:
    store = await at.store()
    one, other = _message(-1, id="x"), _message(-1, id="y")
    elsewhere = _message(-1, "b", id="x")
    await store.commit(_group(_change("a", 1, unsequenced=[one])))
    found = await store.find_seen([one, other, elsewhere])
    require(found == {("a", "x")}, f"seen() found {found}; committed was only ('a', 'x')")


@_promise("of two processes that open it for one consumer, the later one goes on")
async def _the_earlier_process_is_fenced(at: _Subject) -> None:
    earlier = await at.store()
    await earlier.commit(_group(_released("a", 1, 1)))
    later = await at.store()
    with suppress(FencedError):
        await earlier.commit(_group(_released("a", 2, 2)))
        require(kept=False, found="the earlier one committed after the later one had opened it")
    await later.commit(_group(_released("a", 2, 2)))
    waiting = await _waiting(later, "a")
    require(waiting == 2, f"{waiting} messages wait, and two were committed")


@_promise("sequences that want a tick by now are due, the longest due first", "S4")
async def _due_sequences_are_told(at: _Subject) -> None:
    store = await at.store()
    wishes = {"late": 30, "first": 10, "second": 20, "never": None}
    changes = [
        _change(scope, 1, due_us=None if after_s is None else _NOW_US + after_s * 1_000_000)
        for scope, after_s in wishes.items()
    ]
    await store.commit(_group(*changes))
    due = await store.find_due(_NOW_US + 20_000_000, 10)
    require(due.scopes == ["first", "second"], f"after 20 s these are due: {due.scopes}")
    expected = _NOW_US + 30_000_000
    require(due.next_us == expected, f"the next is due at {due.next_us}, not {expected}")
    one = await store.find_due(_NOW_US + 20_000_000, 1)
    require(one.scopes == ["first"], f"asked for one, it gave {one.scopes}")


@_promise("an outbox goes on from what was stored, and keeps bodies until they are not needed")
async def _our_own_messages_are_kept(at: _Subject) -> None:
    store, outbox = await at.store(), Outbox()
    found = await store.load_outbox("t")
    require(found is None, f"a scope never seen has {found}")
    for number in (1, 2):
        outbox.append(f"m{number}", 4, ["bob"], _NOW_US)
        state = outbox.checkpoint()
        await store.save_outbox("t", state, outbox.durable, {number: b"body%d" % number})
        outbox.committed(state)
    found = await store.load_outbox("t")
    require(found == outbox.durable, f"loaded was {found}, stored {outbox.durable}")
    bodies = dict(await store.outbox_bodies("t", [1, 2, 3]))
    require(bodies == {1: b"body1", 2: b"body2"}, f"the bodies are {bodies}")
    require(list(await store.outboxes()) == ["t"], f"outboxes are {await store.outboxes()}")
    outbox.acknowledge("bob", Ranges.of((1, 1)), Ranges(), _NOW_US)
    state = outbox.checkpoint()
    await store.save_outbox("t", state, outbox.durable)
    bodies = dict(await store.outbox_bodies("t", [1, 2]))
    require(bodies == {2: b"body2"}, f"after 1 was acknowledged the bodies are {bodies}")


MESSAGE_STORE_PROMISES: Final = _CONTRACT.names
"""The names of what `check_message_store` checks, for tests of one promise each."""


async def check_message_store(make: MakeSink, *, only: str | None = None) -> None:
    """Check that what `Sink.messages` returns keeps the promises of `instep.ports.MessageStore`.

    ::

        @pytest.mark.parametrize("promise", MESSAGE_STORE_PROMISES)
        async def test_my_inbox(promise, tmp_path):
            await check_message_store(lambda name: MySink(tmp_path / name), only=promise)

    - `make`: Gives a new sink, not yet opened, over the store of this name, as for `check_sink`.
    - `only`: The name of one promise (`MESSAGE_STORE_PROMISES`); None: all of them.

    Raises `BrokenPromiseError` for the first promise that is not kept, with what was seen;
    `ValueError` where no promise is named `only`.
    Every sink that was made is closed. Cancelling leaves a check unfinished, its sinks closed.
    """
    subjects: list[_Subject] = []

    def subject(name: str) -> _Subject:
        subjects.append(_Subject(make, name))
        return subjects[-1]

    try:
        await _CONTRACT.check(subject, only)
    finally:
        for one in subjects:
            with suppress(Exception):
                await one.close()
