"""The watchdog of the event loop, on a loop whose time the test sets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from instep.runtime.loop_lag import LoopLag
from tests.simulation.loop import VirtualLoop


async def _measure(loop: VirtualLoop, told: list[float]) -> list[float]:
    lag = LoopLag(0.5, told.append)
    lag.start()
    worst = []
    await asyncio.sleep(10)
    worst.append(lag.worst_s)
    for blocked_s in (0.7, 4.0, 3.0):
        loop._now_s += blocked_s  # a callback that takes this long
        await asyncio.sleep(0.6)
        worst.append(lag.worst_s)
    await asyncio.sleep(200)
    worst.append(lag.worst_s)
    lag.stop()
    lag.stop()
    return worst


def test_the_longest_lag_of_the_last_minutes_is_known_and_told_once() -> None:
    loop, told = VirtualLoop(), list[float]()
    try:
        quiet, short, long, shorter, later = loop.run_until_complete(_measure(loop, told))
    finally:
        loop.close()
    assert quiet < 0.001
    assert 0 < short <= 0.7
    assert 3.0 < long == shorter <= 4.0
    assert later < 0.001
    assert told == [long]


def test_it_can_be_left_off() -> None:
    async def measure() -> None:
        lag = LoopLag(0, lambda _: None)
        lag.start()
        lag.stop()
        assert lag.worst_s == 0.0

    asyncio.run(measure())


async def _measure_together(loop: VirtualLoop, timers: list[float]) -> None:
    lags = [LoopLag(0.5, lambda _: None) for _ in range(100)]
    for lag in lags:
        lag.start()
    await asyncio.sleep(10)
    assert len(timers) < 30
    lags[0].stop()
    loop._now_s += 4.0
    await asyncio.sleep(0.6)
    assert lags[0].worst_s < 0.001
    assert all(lag.worst_s > 3.0 for lag in lags[1:])
    for lag in lags:
        lag.stop()
    before = len(timers)
    await asyncio.sleep(10)
    assert len(timers) <= before + 1
    lags[0].start()
    loop._now_s += 4.0
    await asyncio.sleep(0.6)
    assert lags[0].worst_s > 3.0
    lags[0].stop()


def test_many_measure_by_one_timer_until_the_last_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = VirtualLoop(), list[float]()
    set_timer = loop.call_at

    def call_at(when: float, *called: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return set_timer(when, *called, **more)

    monkeypatch.setattr(loop, "call_at", call_at)
    try:
        loop.run_until_complete(_measure_together(loop, timers))
    finally:
        loop.close()
