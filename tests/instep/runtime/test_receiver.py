"""A receiver whose parts end by themselves: it is reported, and they are started again."""

from __future__ import annotations

import asyncio

import pytest

from instep import ConsumerState, Receiver
from instep.ports import Intake
from instep_sql import SqlStore
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    SCOPE,
    Speaker,
    message,
    outcomes,
    quick,
    spoken,
)

pytestmark = pytest.mark.asyncio


class EndingSpeaker(Speaker):
    """A listener that ends at once, so many times, in the way it is told."""

    def __init__(self, error: BaseException | None, times: int = 2) -> None:
        super().__init__()
        self.error = error
        self.times = times

    async def serve(self, intake: Intake) -> None:
        if self.times:
            self.times -= 1
            if self.error is None:
                return
            raise self.error
        await super().serve(intake)


@pytest.mark.parametrize("error", [None, asyncio.CancelledError(), TypeError("odd")], ids=repr)
async def test_a_part_that_ends_is_reported_and_started_again(error: BaseException | None) -> None:
    speaker, store = EndingSpeaker(error), SqlStore("sqlite://")
    receiver = Receiver("east", speaker, store, quick())
    events: list[str] = []

    async def watch() -> None:
        events.extend([event.kind async for event in receiver.events()])

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    async with receiver:
        await receiver.aligned(10)
        assert speaker.intake is not None
        assert outcomes([await speaker.intake.receive(message(1))]) == [ACCEPTED]
        health = receiver.health()
        assert (health.state, health.error) == (ConsumerState.RUNNING, "")
    await watching
    assert events.count("restarted") == 2
    assert "failed" not in events


async def test_a_part_that_always_ends_is_given_up_where_attempts_are_limited() -> None:
    settings = quick()
    limited = type(settings)(
        **{name: getattr(settings, name) for name in settings.__struct_fields__}
        | {"reconnect_attempts": 3}
    )
    speaker = EndingSpeaker(TypeError("odd"), 99)
    async with Receiver("east", speaker, SqlStore("sqlite://"), limited) as receiver:
        with pytest.raises(Exception, match="TypeError: odd"):
            await receiver.wait()
    assert speaker.times == 96


async def test_the_health_shows_what_is_delivered_refused_and_how_late_the_loop_is() -> None:
    async with spoken() as at:
        at.intake.show_refusals({"unreadable": 2})
        await at.say(1, 2, 2)
        await at.say(2**62)
        health = at.receiver.health()
        assert health.intake is not None
        assert health.intake.delivered == 2
        assert health.intake.refusals == {"unreadable": 2, "out-of-reach": 1}
        assert health.intake.refused == 3
        assert health.loop_lag_s >= 0
        assert await at.numbers(SCOPE) == [1, 2]
