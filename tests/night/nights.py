"""A faulty night and a quiet night: sites beside each other, one Prometheus, and what it says."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.night.faults import Fault, Night
from tests.night.quiet import QUIETS, Quiet
from tests.night.site import Prometheus, until
from tests.postgres_kit import Server

__all__ = ["Line", "NightReport", "faulty_night", "quiet_night"]


_STEPS_S = 15.0
"""Seconds of the night for a scrape and an evaluation."""
_SETTLES_S = 120.0
"""Seconds of the night after which nothing is left of a fault that is over."""
_WITHIN_S = 150.0
"""Real seconds in which an alert has to fire after the soonest, or to be over."""


_AGE = re.compile(r"^instep_stream_(?:behind|heard_age)_seconds\{.*\} (\S+)$", re.MULTILINE)

Site = TypeVar("Site", bound=Fault)


@dataclass
class Line:
    """One alert of one fault, or a fault that fires none. Times are seconds of the night."""

    fault: str
    alert: str
    held_s: float = 0.0
    """From the fault until it held."""
    fired_s: float = 0.0
    """From the fault until it fired."""
    over_s: float = 0.0
    """From the mending until it was over."""


@dataclass
class NightReport:
    """What a night showed. There must be no mistake."""

    scale: float
    lines: list[Line] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)


async def faulty_night(
    folder: Path, scale: float, faults: Sequence[type[Fault]], server: Server | None
) -> NightReport:
    """All of these faults, beside each other."""
    night = Night(folder, scale, server)
    report = NightReport(scale)
    sites: list[Fault] = []
    with night.stack:
        try:
            sites += [kind(night) for kind in faults]
            sites = await _started(sites, report)
            ports = {one.name: [each.port for each in one.consumers] for one in sites}
            async with Prometheus(folder, scale, ports) as prometheus:
                await night.pass_s(60)
                plays = [_play(one, night, prometheus, report) for one in sites]
                ends = await asyncio.gather(*plays, return_exceptions=True)
            for one, end in zip(sites, ends, strict=True):
                if isinstance(end, BaseException):
                    report.mistakes.append(f"{one.name}: {type(end).__name__}: {end}")
                    report.mistakes.append(one.consumer.said())
        finally:
            for one in sites:
                one.stop()
    return report


async def _started(sites: list[Site], report: NightReport) -> list[Site]:
    """Start them. Returns those that have started."""
    ends = await asyncio.gather(*(one.start() for one in sites), return_exceptions=True)
    started = []
    for one, end in zip(sites, ends, strict=True):
        if end is None:
            started.append(one)
        else:
            one.stop()
            report.mistakes.append(f"{one.name}: it does not start: {end}")
    return started


async def _play(fault: Fault, night: Night, prometheus: Prometheus, report: NightReport) -> None:
    if fault.brief is not None:
        await _play_brief(fault, night, prometheus, report)
        await night.pass_s(_SETTLES_S)
    if fault.alerts or fault.whole_s:
        await _play_whole(fault, night, prometheus, report)


async def _play_brief(
    fault: Fault, night: Night, prometheus: Prometheus, report: NightReport
) -> None:
    """The fault is mended before its alert fires."""
    assert fault.brief is not None
    alert, lasts_s, soonest_s = fault.brief
    began_s = time.time()
    await fault.begin()
    await asyncio.sleep(max(0.0, began_s + lasts_s / night.scale - time.time()))
    await fault.end()
    # A process that starts is no faster in a night that is.
    took_s = (time.time() - began_s) * night.scale
    await until(lambda: not prometheus.states(fault.name), _WITHIN_S, "all is well again")
    fired = any(one.alert == alert for one in prometheus.history(fault.name))
    limit_s = soonest_s - _STEPS_S
    if fired and took_s < limit_s:
        report.mistakes.append(f"{fault.name}: {alert} fired after {took_s:,.0f} s")
    judged = f"not {alert}" if not fired else f"too slow for {limit_s:,.0f} s"
    report.lines.append(Line(f"{fault.name}, {took_s:,.0f} s", judged))


async def _play_whole(
    fault: Fault, night: Night, prometheus: Prometheus, report: NightReport
) -> None:
    """The fault goes on until all of its alerts have fired, and is mended."""
    fired: set[str] = set()
    soonest_s = dict(fault.alerts)

    def all_fired() -> bool:
        states = prometheus.states(fault.name)
        fired.update(alert for alert, state in states.items() if state == "firing")
        return fired >= set(soonest_s)

    def mistake(text: str) -> None:
        report.mistakes.append(f"{fault.name}: {text}")

    late_s = max(0.0, _age_s(fault) * night.scale - _STEPS_S)
    began_s = time.time()
    await fault.begin()
    try:
        within_s = _WITHIN_S + max(soonest_s.values(), default=0.0) / night.scale
        await until(all_fired, within_s, "it fires")
    except TimeoutError:
        mistake(f"only {sorted(fired)} fired")
    await asyncio.sleep(max(0.0, began_s + fault.whole_s / night.scale - time.time()))
    mended_s = time.time()
    await fault.end()
    try:
        await until(lambda: not soonest_s.keys() & prometheus.states(fault.name), _WITHIN_S, "over")
    except TimeoutError:
        mistake(f"not over: {prometheus.states(fault.name)}")
    history = prometheus.history(fault.name, began_s)
    for one in sorted(history, key=lambda one: one.fired_s):
        held_s, fired_s = one.held_s - began_s, one.fired_s - began_s
        times = [at_s * night.scale for at_s in (held_s, fired_s, one.over_s - mended_s)]
        report.lines.append(Line(fault.name, one.alert, *times))
        if times[1] < soonest_s.get(one.alert, 0.0) - late_s:
            mistake(f"{one.alert} fired after {times[1]:,.0f} s already")
    names = {one.alert for one in history}
    if names - set(fault.also) != set(soonest_s):
        mistake(f"{sorted(names)} fired, {sorted(soonest_s)} should")
    if not history:
        report.lines.append(Line(f"{fault.name}, {fault.whole_s:,.0f} s", "none"))


def _age_s(fault: Fault) -> float:
    """How old what the consumers of the fault know is before it, in real seconds: on a machine that
    has much to do, a Pong may be late.
    """
    pages = [one.page("/metrics")[1] for one in fault.consumers]
    return max((float(found[1]) for page in pages for found in _AGE.finditer(page)), default=0.0)


async def quiet_night(
    folder: Path, scale: float, server: Server | None, lasts_s: float = 3_600
) -> NightReport:
    """An hour in which all that is done is planned."""
    night = Night(folder, scale, server)
    report = NightReport(scale)
    sites: list[Quiet] = []
    with night.stack:
        try:
            kinds = [one for one in QUIETS if server is not None or not one.needs_server]
            sites += [kind(night) for kind in kinds]
            sites = await _started(sites, report)
            ports = {one.name: [each.port for each in one.consumers] for one in sites}
            async with Prometheus(folder, scale, ports) as prometheus:
                await night.pass_s(60)
                began_s = time.time()
                ends = await asyncio.gather(*(one.play() for one in sites), return_exceptions=True)
                await asyncio.sleep(max(0.0, began_s + lasts_s / scale - time.time()))
                passed_s = (time.time() - began_s) * scale
                for one, end in zip(sites, ends, strict=True):
                    if isinstance(end, BaseException):
                        report.mistakes.append(f"{one.name}: {type(end).__name__}: {end}")
                    fired = sorted({each.alert for each in prometheus.history(one.name)})
                    report.mistakes += [f"{one.name}: {alert} fired" for alert in fired]
                    text = ", ".join(fired) or "none"
                    report.lines.append(Line(f"{one.name}, {passed_s:,.0f} s", text))
        finally:
            for one in sites:
                one.stop()
    return report
