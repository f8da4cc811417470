"""Draws the pictures of the monitor in the documentation: `python -m docs.monitor_picture`.

Also the page of the port, to look at in a browser: `python -m docs.monitor_picture page.html`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from docs.live_picture import EVENTS, HEALTHS
from instep.cli.monitor.reading import MonitoredPlace, MonitorSnapshot
from instep.cli.monitor.screen import Monitor
from instep.cli.output import stamp
from instep.metrics.figures import facts_of
from instep.metrics.page import page_of
from instep.runtime.health import Health

__all__ = ["draw", "told"]

_SIZES = {"monitor.svg": (80, 24), "monitor-wide.svg": (140, 30)}
_FOLDER = Path(__file__).parent / "how-to"


def told() -> dict[str, Any]:
    """What `/status.json` tells of two controllers of which one is dead."""
    consumers = [facts_of(_aged(one, 2.0 if one.consumer == "east" else 940.0)) for one in HEALTHS]
    events = [
        {
            "at": stamp(one.at_us),
            "event": one.kind,
            "consumer": one.consumer,
            "stream": one.stream,
            "text": one.text,
        }
        for one in EVENTS
    ]
    at = stamp(EVENTS[-1].at_us + 28_000_000)
    return {"at": at, "ready": False, "events": events, "consumers": consumers}


def _aged(health: Health, behind_s: float) -> Health:
    replace = msgspec.structs.replace
    streams = (
        replace(
            one,
            stale_after_s=10.0,
            heard_age_s=behind_s / 2,
            record_age_s=behind_s,
            behind_s=behind_s,
        )
        for one in health.streams
    )
    return replace(health, store_age_s=1.2, stale_after_s=10.0, streams=tuple(streams))


class _Told(MonitoredPlace):
    """Tells the same each time."""

    async def read(self) -> MonitorSnapshot:
        return MonitorSnapshot(told=told(), source="http://127.0.0.1:9464")


async def draw(size: tuple[int, int]) -> str:
    """The picture of a terminal of this size, as SVG."""
    async with Monitor(_Told("", {}), 60).run_test(size=size) as pilot:
        await pilot.pause(0.5)
        drawn = pilot.app.export_screenshot(title="instep monitor")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # it would fetch a font


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(page_of(told()))
    else:
        for name, size in _SIZES.items():
            (_FOLDER / name).write_text(asyncio.run(draw(size)), encoding="utf-8")
