"""Two hostile runs, beside honest senders and an honest stream, each against one `instep run` with
1,024 descriptors: all bombs of `tests.hostile.bombs` at once, then all of `tests.hostile.attacks`.

    python -m tests.hostile --minutes 10

Each is shown as one JSON object. The exit code is 1 where an honest message was lost, came twice or
out of order, the process ended, or a bound was passed: the time of the honest answers, the lag of
the loop, memory, disk, and what strangers add to the log.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from tests.hostile.attacks import ATTACKS, Attack, Stranger, threads
from tests.hostile.bombs import BOMBS, endless_provider
from tests.hostile.honest import DidcommSender, HonestSender, RmSender
from tests.hostile.site import LIMITS, Limits, Site, site

__all__ = ["judge", "run"]

_RM_SENDERS: Final = 4


async def run(
    at: Site,
    seconds: float,
    senders: int,
    attacks_per_s: float,
    seed: int,
    chosen: Sequence[Attack],
) -> dict[str, Any]:
    """Attack a site for so long. Returns the facts."""
    until_s = time.monotonic() + seconds
    honest: list[HonestSender] = [RmSender(at.rm, senders / 100) for _ in range(_RM_SENDERS)]
    honest += [DidcommSender(at.url, f"{n:02}", senders / 100) for n in range(senders)]
    async with (
        Stranger(at.url, at.rm, seed, attacks_per_s) as stranger,
        endless_provider(stranger, at.endless_port) if BOMBS[0] in chosen else nullcontext(),
    ):
        attacks = [asyncio.ensure_future(attack(stranger)) for attack in chosen]
        sending = [asyncio.ensure_future(one.run(until_s)) for one in honest]
        try:
            while not all(task.done() for task in sending):
                await asyncio.sleep(0.5)
                at.look()
                for task in attacks:
                    if task.done():
                        task.result()
        finally:
            for task in [*attacks, *sending]:
                task.cancel()
            await asyncio.gather(*attacks, *sending, return_exceptions=True)
        answers = dict(sorted(stranger.answers.items()))
        sent_bytes = stranger.sent_bytes
    audit = await asyncio.to_thread(at.audit)
    for one in sending:
        one.result()
    late = sorted(itertools.chain.from_iterable(one.seconds for one in honest))
    opened = {"threads": answers.get("threads 202", 0)} if threads in chosen else {}
    return {
        **opened,
        "seconds": seconds,
        "honest_messages": sum(one.accepted for one in honest),
        "wrong_senders": [
            one.name for one in honest if at.heard(one.name) != list(range(1, one.accepted + 1))
        ],
        "p50_s": round(late[len(late) // 2], 4),
        "p99_s": round(late[int(len(late) * 0.99)], 4),
        "worst_s": round(late[-1], 4),
        "p50_s_by_third": [_median(honest, third) for third in range(3)],
        "processor_s": at.processor_s,
        "load": os.getloadavg()[0],
        "memory_bytes": max(at.memory_bytes),
        "memory_bytes_by_tenth": at.memory_bytes[:: max(1, len(at.memory_bytes) // 10)],
        "disk_bytes": at.most_disk_bytes,
        "lag_s": at.worst_lag_s(),
        "error_bytes": at.error_bytes,
        "log_bytes": at.log_bytes,
        "sent_bytes": sent_bytes,
        "network": at.last_health("network"),
        "disconnected": at.count("network", "disconnected"),
        "audit": audit,
        "heard": at.last_health("heard"),
        "answers": answers,
    }


def _median(honest: list[HonestSender], third: int) -> float:
    """The median of a third of the time: whether it grows with what the store holds."""
    seconds: list[float] = []
    for one in honest:
        size = len(one.seconds) // 3
        seconds += one.seconds[third * size : (third + 1) * size]
    return round(sorted(seconds)[len(seconds) // 2], 4) if seconds else 0.0


def judge(facts: dict[str, Any], limits: Limits) -> list[str]:
    """What is wrong; empty where all bounds hold."""
    bounds = {
        "p99_s": limits.latency_s,
        "memory_bytes": limits.memory_bytes,
        "disk_bytes": limits.disk_bytes,
        "error_bytes": limits.error_bytes,
        "lag_s": limits.lag_s,
        "log_bytes": facts["sent_bytes"],
    }
    wrong = [f"{name} is {facts[name]:,}" for name, most in bounds.items() if facts[name] > most]
    if facts["wrong_senders"]:
        wrong.append(f"not once and in order: {facts['wrong_senders']}")
    network = facts["network"]
    phases = {stream["phase"] for stream in network.get("streams", [])}
    if network.get("state") != "running" or network.get("error") or phases != {"aligned"}:
        wrong.append(f"the stream: {network.get('error') or network}")
    if facts["disconnected"]:
        wrong.append(f"the stream was disconnected {facts['disconnected']} times")
    if facts["audit"]:
        wrong.append(f"the stream is not as its provider states: {facts['audit']}")
    if "threads" in facts and facts["threads"] < limits.threads_per_s * facts["seconds"]:
        wrong.append(f"only {facts['threads']:,} threads were opened")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--senders", type=int, default=20)
    parser.add_argument("--attacks-per-s", type=float, default=84.0, help="of each attack")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="attacks whose name contains this, at once")
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    runs: list[Sequence[Attack]] = [BOMBS, ATTACKS]
    if given.only:
        runs = [[one for one in (*ATTACKS, *BOMBS) if given.only in one.__name__]]
    return max(_judged(given, chosen) for chosen in runs)


def _judged(given: argparse.Namespace, chosen: Sequence[Attack]) -> int:
    """Run once, and show the facts. Returns 1 where anything is wrong."""
    with tempfile.TemporaryDirectory() as folder, site(Path(folder)) as at:
        facts = asyncio.run(
            run(at, given.minutes * 60, given.senders, given.attacks_per_s, given.seed, chosen)
        )
        if at.process.poll() is not None or at.error_bytes > LIMITS.error_bytes:
            sys.stderr.write((Path(folder) / "stderr").read_text(errors="replace")[-10_000:])
    wrong = judge(facts, LIMITS)
    print(json.dumps({**facts, "wrong": wrong}, indent=1), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
