"""Group commit: bounds, order, cancellation at every await, commits that fail, shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import InstepError, SinkError, UnreachableError
from instep.runtime.group_commit import GatheringQueue, GroupCommitter, PendingCommit

DEADLINE_S = 10.0


async def turns(count: int = 5) -> None:
    """Let every task that can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


# -- the queue -------------------------------------------------------------------------------------

LIMIT_RECORDS, LIMIT_BYTES = 10, 100
SIZES = st.tuples(st.integers(0, 15), st.integers(0, 150))


@given(steps=st.lists(st.one_of(SIZES, st.integers(1, 5), st.none()), max_size=60))
def test_a_queue_keeps_order_and_bounds(steps: list[tuple[int, int] | int | None]) -> None:
    """A pair of sizes is an item that is offered; a number, or None, how many are taken."""
    queue = GatheringQueue[int](LIMIT_RECORDS, LIMIT_BYTES)
    sizes: dict[int, tuple[int, int]] = {}
    taken: list[int] = []
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            fits = queue.records + step[0] <= LIMIT_RECORDS
            fits = fits and queue.size_bytes + step[1] <= LIMIT_BYTES
            fits = fits or not queue
            assert queue.offer(number, *step) is fits
            if fits:
                sizes[number] = step
        else:
            expected = len(queue) if step is None else min(step, len(queue))
            some = queue.take(step)
            assert len(some) == expected
            taken += some
        waiting = list(queue)
        assert queue.records == sum(sizes[one][0] for one in waiting)
        assert queue.size_bytes == sum(sizes[one][1] for one in waiting)
        if len(waiting) > 1:
            assert queue.records <= LIMIT_RECORDS
            assert queue.size_bytes <= LIMIT_BYTES
    assert [*taken, *queue] == sorted(sizes)


@given(counts=st.lists(st.integers(0, 6), max_size=20), limit=st.integers(1, 20))
def test_a_group_is_as_many_as_fit_and_at_least_one(counts: list[int], limit: int) -> None:
    queue = GatheringQueue[int](1_000)
    for number, records in enumerate(counts):
        assert queue.offer(number, records)
    count = queue.count_within(limit)
    assert (count > 0) is bool(counts)
    assert count == 1 or sum(counts[:count]) <= limit
    assert count == len(counts) or sum(counts[: count + 1]) > limit


@pytest.mark.parametrize("sizes", [(1, 10), (2, 0)], ids=["bytes", "records"])
@pytest.mark.asyncio
async def test_a_full_queue_keeps_the_adder_waiting_and_drops_nothing(
    sizes: tuple[int, int],
) -> None:
    queue = GatheringQueue[str](2, 10)
    await queue.put("a", *sizes)
    waiting = [asyncio.create_task(queue.put(name, *sizes)) for name in "bc"]
    await turns()
    assert not any(task.done() for task in waiting)
    assert not queue.offer("d", 0), "those who wait come first"
    taken = []
    for _ in range(3):
        taken += queue.take()
        await turns()
    assert taken == ["a", "b", "c"]
    assert all(task.done() for task in waiting)


@pytest.mark.asyncio
async def test_nothing_in_time_is_reported() -> None:
    queue = GatheringQueue[str](1)
    assert not await queue.arrival(0.001)
    assert queue.take() == []
    assert queue.offer("a", 1)
    assert not await queue.arrival(0), "what waits already is no arrival"


@pytest.mark.parametrize("wake", ["offer", "wake", "close"])
@pytest.mark.asyncio
async def test_what_an_arrival_is(wake: str) -> None:
    queue = GatheringQueue[str](1)
    calls: dict[str, Callable[[], object]] = {
        "offer": lambda: queue.offer("a", 1),
        "wake": queue.wake,
        "close": lambda: queue.close(UnreachableError("gone")),
    }
    waiting = asyncio.create_task(queue.arrival(DEADLINE_S))
    await turns()
    assert not waiting.done()
    calls[wake]()
    assert await waiting


@pytest.mark.asyncio
async def test_an_error_comes_after_what_was_added_before_it() -> None:
    queue = GatheringQueue[str](1)
    await queue.put("a", 1)
    waiting = asyncio.create_task(queue.put("b", 1))
    await turns()
    queue.close(UnreachableError("gone"))
    queue.close(UnreachableError("a second reason"))
    with pytest.raises(UnreachableError, match="gone"):
        await waiting
    with pytest.raises(UnreachableError, match="gone"):
        queue.offer("c", 1)
    assert await queue.arrival()
    assert queue.take() == ["a"]
    with pytest.raises(UnreachableError, match="gone"):
        queue.take()
    assert "0/1 records" in repr(queue)


@pytest.mark.asyncio
async def test_cancelling_those_who_wait_loses_nothing() -> None:
    queue = GatheringQueue[str](1)
    arrival = asyncio.create_task(queue.arrival())
    await turns()
    arrival.cancel()
    await asyncio.gather(arrival, return_exceptions=True)
    await queue.put("a", 1)
    first, second, third = (asyncio.create_task(queue.put(name, 1)) for name in "bcd")
    await turns()
    # The first waits for room, the second for the first.
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert queue.take() == ["a"]
    await third
    assert queue.take() == ["d"]


# -- the committer ---------------------------------------------------------------------------------


class NameCommit(PendingCommit[str], kw_only=True):
    """A name that is committed."""

    name: str


class Store:
    """Commits that the test controls, and the task that drives them until `close`."""

    def __init__(self, *, limit: int = 100, answer_within_s: float | None = None) -> None:
        self.queue = GatheringQueue[NameCommit](limit)
        self.committer = GroupCommitter(
            self.queue,
            lambda: SinkError("cancelled"),
            answer_within_s=answer_within_s,
            expire=lambda entry: entry.answer("too late"),
        )
        self.begun: list[list[str]] = []
        self.durable: list[str] = []
        self.answers: list[tuple[str, object]] = []
        self.callers: list[asyncio.Task[None]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.errors: list[Exception] = []
        self.driver = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self.queue.error is None:
            if not self.queue:
                await self.queue.arrival()
                continue
            with suppress(InstepError):
                await self.committer.commit_next(self.commit)

    async def commit(self, group: list[NameCommit]) -> Sequence[str | Exception]:
        names = [entry.name for entry in group]
        self.begun.append(names)
        await self.go.wait()
        if self.errors:
            raise self.errors.pop(0)
        await asyncio.sleep(0)
        self.durable += names
        return [SinkError(name) if name.startswith("bad") else name.upper() for name in names]

    def submit(self, *names: str) -> None:
        """Submit each name from a caller of its own."""
        self.callers += [asyncio.create_task(self._submit(name)) for name in names]

    async def _submit(self, name: str) -> None:
        entry = NameCommit(name=name)
        try:
            await self.queue.put(entry, 1)
            self.answers.append((name, await entry.wait()))
        except InstepError as error:
            self.answers.append((name, error))

    def hold(self) -> None:
        self.go = asyncio.Event()

    async def answered(self) -> list[tuple[str, object]]:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*self.callers, return_exceptions=True)
        return self.answers

    async def end(self) -> None:
        self.driver.cancel()
        await asyncio.gather(self.driver, return_exceptions=True)
        self.committer.close(SinkError("closed"))


@pytest.mark.asyncio
async def test_what_comes_while_a_commit_runs_is_the_next_group() -> None:
    store = Store()
    store.hold()
    store.submit("a")
    await turns()
    store.submit("b", "bad", "c")
    await turns()
    assert store.begun == [["a"]]
    assert store.answers == []
    store.go.set()
    answers = await store.answered()
    assert store.begun == [["a"], ["b", "bad", "c"]]
    assert [name for name, _ in answers] == ["a", "b", "bad", "c"]
    assert [one for _, one in answers if isinstance(one, str)] == ["A", "B", "C"]
    assert str(answers[2][1]) == "bad"
    await store.end()


@pytest.mark.asyncio
async def test_the_next_commit_begins_before_the_last_is_answered() -> None:
    queue = GatheringQueue[NameCommit](10)
    committer = GroupCommitter(queue, lambda: SinkError("cancelled"))
    first, second = NameCommit(name="a"), NameCommit(name="b")
    answered: list[bool] = []

    async def commit(group: list[NameCommit]) -> list[str]:
        answered.append(first.done)
        return [entry.name.upper() for entry in group]

    for entry in (first, second):
        assert committer.submit(entry, 1)
    for _ in range(2):
        await committer.commit_next(commit, 1)
    assert answered == [False, False]
    assert [await first.wait(), await second.wait()] == ["A", "B"]


@pytest.mark.asyncio
async def test_a_commit_that_fails_reaches_all_of_its_group_and_no_other() -> None:
    store = Store()
    store.hold()
    store.errors = [SinkError("the disk is full")]
    store.submit("a", "b")
    await turns()
    store.submit("c")
    await turns()
    store.go.set()
    answers = await store.answered()
    assert [(name, str(one)) for name, one in answers] == [
        ("a", "the disk is full"),
        ("b", "the disk is full"),
        ("c", "C"),
    ]
    await store.end()


@pytest.mark.asyncio
async def test_a_commit_that_answers_too_few_is_an_error_for_all() -> None:
    queue = GatheringQueue[NameCommit](10)
    committer = GroupCommitter(queue, lambda: SinkError("cancelled"))
    entries = [NameCommit(name="a"), NameCommit(name="b")]
    assert all(committer.submit(one, 1) for one in entries)

    async def commit(_group: list[NameCommit]) -> list[str]:
        return ["A"]

    with pytest.raises(ValueError, match="shorter"):
        await committer.commit_next(commit)
    for one in entries:
        with pytest.raises(ValueError, match="shorter"):
            await one.wait()


@pytest.mark.asyncio
async def test_closing_lets_a_commit_end_and_answers_those_who_wait() -> None:
    store = Store()
    store.hold()
    store.submit("a")
    await turns()
    store.submit("b", "c")
    await turns()
    store.committer.close(SinkError("closed"))
    await turns()
    assert [(name, str(one)) for name, one in store.answers] == [("b", "closed"), ("c", "closed")]
    store.go.set()
    assert (await store.answered())[2:] == [("a", "A")]
    await store.driver
    late = NameCommit(name="late")
    assert store.committer.submit(late, 1)
    with pytest.raises(SinkError, match="closed"):
        await late.wait()


@pytest.mark.asyncio
async def test_who_waits_too_long_is_answered_and_not_committed() -> None:
    store = Store(answer_within_s=0.01)
    store.hold()
    entries = [NameCommit(name=name) for name in "abc"]
    for one in entries:
        assert store.committer.submit(one, 1)
        await turns()
    assert [await one.wait() for one in entries] == ["too late"] * 3
    store.go.set()
    last = NameCommit(name="d")
    assert store.committer.submit(last, 1)
    assert await last.wait() == "D"
    # What was under way comes to its end: its caller has been answered that the result is unknown.
    assert store.durable == ["a", "d"]
    await store.end()


@pytest.mark.asyncio
async def test_a_full_queue_refuses_what_is_submitted() -> None:
    store = Store(limit=1)
    store.hold()
    entries = [NameCommit(name=name) for name in "abc"]
    assert store.committer.submit(entries[0], 1)
    await turns()
    assert store.committer.submit(entries[1], 1)
    assert not store.committer.submit(entries[2], 1)
    store.go.set()
    assert [await one.wait() for one in entries[:2]] == ["A", "B"]
    await store.end()


class Calls(NameCommit):
    """Its answer is a call that raises."""

    def _resolve(self, result: str | Exception) -> None:
        raise RuntimeError(str(result))


@pytest.mark.asyncio
async def test_a_callback_that_raises_keeps_no_other_from_its_answer() -> None:
    faults: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(str(context["exception"])))
    store = Store()
    after = NameCommit(name="after")
    assert store.committer.submit(Calls(name="calls"), 1)
    assert store.committer.submit(after, 1)
    assert await after.wait() == "AFTER"
    assert faults == ["CALLS"]
    await store.end()


@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize("caller", range(3))
@pytest.mark.asyncio
async def test_a_caller_is_cancelled_at_any_await(caller: int, after: int) -> None:
    store = Store(limit=1)
    store.submit("a", "b", "c")
    await turns(after)
    store.callers[caller].cancel()
    answers = await store.answered()
    others = [name for number, name in enumerate("abc") if number != caller]
    assert [pair for pair in answers if pair[0] in others] == [
        (name, name.upper()) for name in others
    ]
    assert [name for name in store.durable if name in others] == others
    if any(name not in others for name, _ in answers):
        assert store.durable == ["a", "b", "c"]
    await store.end()


@pytest.mark.parametrize("after", range(15))
@pytest.mark.asyncio
async def test_the_driver_is_cancelled_at_any_await(after: int) -> None:
    store = Store(limit=1)
    store.submit("a", "b", "c")
    await turns(after)
    await store.end()
    answers = await store.answered()
    assert sorted(name for name, _ in answers) == ["a", "b", "c"]
    for name, one in answers:
        assert (name in store.durable) is (one == name.upper())
        assert one == name.upper() or str(one) in ("cancelled", "closed")
