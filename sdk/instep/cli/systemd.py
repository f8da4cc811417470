"""Tells systemd how a service does (`sd_notify`): that it is ready, reloads, stops, and lives."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

__all__ = ["notify", "notify_alive"]


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send one state, such as `READY=1`; where no supervisor listens, to nobody."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # A supervisor that is gone ends no service.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        # It must not wait for one that does not read.
        sending.setblocking(False)
        # "@" begins a name of Linux's abstract namespace.
        sending.sendto(state.encode(), address.replace("@", "\0", 1))


async def notify_alive(environ: Mapping[str, str] = os.environ) -> None:
    """Say that the event loop moves, twice as often as `WatchdogSec=` asks, until cancelled."""
    try:
        every_s = int(environ.get("WATCHDOG_USEC", "0")) / 2e6
    except ValueError:
        every_s = 0.0
    if not every_s or environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        await asyncio.Event().wait()
    while True:
        notify("WATCHDOG=1", environ)
        await asyncio.sleep(every_s)
