"""A faulty night and a quiet night in fast time, watched by a real Prometheus.

    python -m tests.night --scale 20

All durations, those of settings, provider and rules, are divided by one number, but not those of
InstepLoopLate, since the processor is as fast as by day. The tables show what fired, in
seconds of the night. What fails is played again half as fast, since the machine may have been too
slow for it. Ends with 1 where an alert fired, did not fire, or was not over as the run book says
then, too.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
from collections.abc import Sequence
from contextlib import ExitStack

from tests.night.faults import CAN_MOUNT, FAULTS, Fault
from tests.night.nights import NightReport, faulty_night, quiet_night
from tests.night.site import folder
from tests.postgres_kit import Missing, Server, serving

_HEAD = f"{'fault':34} {'alert':21} {'holds':>6} {'fires':>6} {'over':>6}"


def _table(report: NightReport) -> str:
    rows: list[str] = []
    for one in report.lines:
        times = [one.held_s, one.fired_s, one.over_s]
        told = [f"{at_s:6,.0f}" for at_s in times] if any(times) else []
        rows.append(" ".join([f"{one.fault:34}", f"{one.alert:21}", *told]).rstrip())
    return "\n".join([*rows, *(f"MISTAKE: {one}" for one in report.mistakes)])


def _chosen(names: Sequence[str], server: Server | None) -> list[type[Fault]]:
    chosen = [one for one in FAULTS if not names or one.name in names]
    for one in list(chosen):
        if (one.needs_server and server is None) or (one.needs_mount and not CAN_MOUNT):
            print(f"not run: {one.name}: needs {'root' if one.needs_mount else 'PostgreSQL'}")
            chosen.remove(one)
    return chosen


def _faulty(
    faults: Sequence[type[Fault]], scale: float, server: Server | None, slower: int
) -> bool:
    """Play these beside each other. Those that show a mistake are played again, half as fast and
    one by one, up to `slower` times: where the processor has much to do, a second of a fast night
    is too short for what takes one. Returns whether a mistake is left.
    """
    with folder() as at:
        report = asyncio.run(faulty_night(at, scale, faults, server))
    print(_table(report), flush=True)
    failed = {text.partition(":")[0] for text in report.mistakes}
    again = [one for one in faults if one.name in failed]
    if not slower or not again:
        return bool(report.mistakes)
    print(f"again, {scale / 2:g} times as fast: {', '.join(one.name for one in again)}", flush=True)
    return sum(_faulty([one], scale / 2, server, slower - 1) for one in again) > 0


def _quiet(scale: float, server: Server | None, lasts_s: float, slower: int) -> bool:
    """The same of the quiet hour."""
    print(f"A quiet hour, {scale:g} times as fast", flush=True)
    with folder() as at:
        report = asyncio.run(quiet_night(at, scale, server, lasts_s))
    print(_table(report), flush=True)
    if not report.mistakes or not slower:
        return bool(report.mistakes)
    return _quiet(scale / 2, server, lasts_s, slower - 1)


def main() -> None:
    """Run the nights of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--scale", type=float, default=20.0, help="by what durations are divided")
    parser.add_argument(
        "--slower", type=int, default=2, help="how often what failed is played again, half as fast"
    )
    parser.add_argument("--only", action="append", default=[], help="a fault, or quiet; repeatable")
    parser.add_argument("--beside", type=int, default=6, help="faults at the same time")
    parser.add_argument("--quiet-s", type=float, default=3_600, help="length of the quiet hour")
    arguments = parser.parse_args()
    if not shutil.which("prometheus"):
        parser.error("prometheus is not here; Debian: apt install prometheus")
    # What was started ends with us, also where we are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wrong = False
    with ExitStack() as stack:
        try:
            server: Server | None = stack.enter_context(serving(in_memory=False))
        except Missing as missing:
            print(missing)
            server = None
        names = [one for one in arguments.only if one != "quiet"]
        if names or not arguments.only:
            faults = _chosen(names, server)
            print(f"A faulty night, {arguments.scale:g} times as fast\n{_HEAD}", flush=True)
            for first in range(0, len(faults), arguments.beside):
                some = faults[first : first + arguments.beside]
                wrong = _faulty(some, arguments.scale, server, arguments.slower) or wrong
        if "quiet" in arguments.only or not arguments.only:
            wrong = _quiet(arguments.scale, server, arguments.quiet_s, arguments.slower) or wrong
    raise SystemExit(wrong)


if __name__ == "__main__":
    main()
