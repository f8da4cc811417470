"""`python -m bench.scale`: many providers followed by one process, until aligned and then idle.

The providers of the test kit run in a process of their own, so that their memory and time do not
count. Each has its own port and the same small network, split into streams by class. The measured
process has one consumer for each provider and a SQLite file for each consumer, with the settings
that a user has by default, in one `Group`, as `instep run` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from bench.report import rss_bytes, settle
from instep import Consumer, Group
from instep.cli.output import Format
from instep_sql import SqlStore
from instep_tapi.plugin import source
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings, topology_context

__all__ = [
    "IDLE_CORE_SHARE",
    "STREAM_BYTES",
    "Scale",
    "main",
    "measure_scale",
    "open_files_as_allowed",
    "serve",
    "serving",
]

STREAM_BYTES: Final = 1 << 20
"""Most memory that a stream may add."""
IDLE_CORE_SHARE: Final = 0.05
"""Most of a core that all streams together may take while nothing happens."""

_ROOT: Final = Path(__file__).parents[1]
_NETWORK: Final = "sndlib/abilene"
_SERVICES: Final = 10
_CLASSES: Final = (
    "TOPOLOGY",
    "NODE",
    "LINK",
    "NODE_EDGE_POINT",
    "CONNECTION_END_POINT",
    "CONNECTION",
    "CONNECTIVITY_SERVICE",
    "SERVICE_INTERFACE_POINT",
    "CONDITION_DETECTOR",
)
"""A stream each; one more has all other classes."""
MAX_STREAMS: Final = len(_CLASSES) + 1
_ALARMS: Final = 10
_ALIGNED_S: Final = 600.0
_MIB: Final = 1 << 20


class Scale(msgspec.Struct, frozen=True):
    """What many streams cost one process."""

    providers: int
    streams: int
    """Of all providers."""
    entities: int
    first_aligned_s: float
    """From the start of the consumers until every stream of one provider is aligned …"""
    aligned_s: float
    """… and until every stream of all is."""
    aligning_cpu_s: float
    """Of the process until then."""
    empty_bytes: int
    """Resident before the consumers are made …"""
    aligned_bytes: int
    """… when all streams are aligned …"""
    idle_bytes: int
    """… and at the end of the idle time."""
    settle_s: float
    """From then on the streams are asked ever less; no part of the idle time."""
    settle_cpu_s: float
    idle_s: float
    idle_cpu_s: float

    @property
    def stream_bytes(self) -> float:
        """What a stream added, when the process was at its largest."""
        return (max(self.aligned_bytes, self.idle_bytes) - self.empty_bytes) / self.streams

    @property
    def idle_core_share(self) -> float:
        return self.idle_cpu_s / self.idle_s

    @property
    def met(self) -> bool:
        return self.stream_bytes <= STREAM_BYTES and self.idle_core_share <= IDLE_CORE_SHARE


def measure_scale(providers: int, streams: int, settle_s: float, idle_s: float) -> Scale:
    """Follow so many providers of so many streams each until they are aligned, wait for
    `settle_s`, then measure for `idle_s`.
    """
    with (
        serving(providers, streams) as urls,
        tempfile.TemporaryDirectory(prefix="instep-scale-") as folder,
    ):
        return asyncio.run(_measured(urls, Path(folder), streams, settle_s, idle_s))


async def _measured(
    urls: list[str], folder: Path, streams: int, settle_s: float, idle_s: float
) -> Scale:
    settle()
    empty_bytes, begun_s, begun_cpu_s = rss_bytes(), time.perf_counter(), time.process_time()
    consumers = [
        Consumer(
            f"provider-{number}",
            source.build({"endpoints": [url]}, "bench"),
            SqlStore(f"sqlite:///{folder}/{number}.db"),
        )
        for number, url in enumerate(urls)
    ]
    aligned_at_s: list[float] = []

    async def aligned(consumer: Consumer) -> None:
        await consumer.aligned(_ALIGNED_S)
        aligned_at_s.append(time.perf_counter() - begun_s)

    async with Group(consumers) as group:
        settle()
        await asyncio.gather(*map(aligned, consumers))
        aligned_bytes, aligned_cpu_s = rss_bytes(), time.process_time() - begun_cpu_s
        settled_s, settle_cpu_s = await _asleep(settle_s)
        idled_s, idle_cpu_s = await _asleep(idle_s)
        idle_bytes = rss_bytes()
        health = [stream for one in group.health() for stream in one.streams]
        odd = [one for one in health if one.attempt != 1 or not one.connected or one.quarantined]
        if odd or len(health) != len(urls) * streams:
            raise SystemExit(f"not the normal path: {len(health)} streams, {odd[:1]}")
    return Scale(
        providers=len(urls),
        streams=len(health),
        entities=sum(one.records for one in health),
        first_aligned_s=round(min(aligned_at_s), 2),
        aligned_s=round(max(aligned_at_s), 2),
        aligning_cpu_s=round(aligned_cpu_s, 2),
        empty_bytes=empty_bytes,
        aligned_bytes=aligned_bytes,
        idle_bytes=idle_bytes,
        settle_s=round(settled_s, 2),
        settle_cpu_s=round(settle_cpu_s, 3),
        idle_s=round(idled_s, 2),
        idle_cpu_s=round(idle_cpu_s, 3),
    )


async def _asleep(for_s: float) -> tuple[float, float]:
    """Wait. Returns the seconds that passed, and the processor time of the process in them."""
    from_s, from_cpu_s = time.perf_counter(), time.process_time()
    await asyncio.sleep(for_s)
    return time.perf_counter() - from_s, time.process_time() - from_cpu_s


@contextmanager
def serving(providers: int, streams: int) -> Iterator[list[str]]:
    """Start the providers in a process of their own. Yields their URLs."""
    program = f"from bench.scale import serve; serve({providers}, {streams})"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=_ROOT, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield msgspec.json.decode(process.stdout.readline(), type=list[str])
        finally:
            process.kill()


def serve(providers: int, streams: int) -> None:
    """Serve until stdin ends, as it does when the measuring process is killed; print the URLs as
    one line of JSON.
    """
    open_files_as_allowed()
    asyncio.run(_serve(providers, streams))


async def _serve(providers: int, streams: int) -> None:
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(_provider(streams)) for _ in range(providers)]
        settle()
        print(msgspec.json.encode(urls).decode(), flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def _provider(streams: int) -> AsyncIterator[str]:
    named = [StreamSettings(cls.lower(), classes=frozenset({cls})) for cls in _CLASSES]
    settings = ProviderSettings(streams=(StreamSettings("others"), *named[: streams - 1]))
    async with Provider(topology_context(_NETWORK, services=_SERVICES), settings) as provider:
        provider.raise_alarms(_ALARMS)
        yield provider.url


def open_files_as_allowed() -> None:
    """Raise the limit of open files to what the system allows this user."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(
    providers: Annotated[int, typer.Option(min=1, help="Providers to follow.")] = 100,
    streams: Annotated[
        int, typer.Option(min=1, max=MAX_STREAMS, help="Streams of each provider.")
    ] = 10,
    settle_s: Annotated[
        float, typer.Option("--settle", min=0.1, help="Seconds from aligned to idle.")
    ] = 60.0,
    idle_s: Annotated[
        float, typer.Option("--idle", min=0.1, help="Seconds of the idle time measured.")
    ] = 60.0,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.TABLE,  # noqa: A002
    strict: Annotated[bool, typer.Option(help="Exit 1 when a target is missed.")] = False,
) -> None:
    """Measure what many streams cost one process: memory of each, time until all are aligned, and
    the share of a core while nothing happens.
    """
    open_files_as_allowed()
    with Console(stderr=True).status(f"{providers} providers of {streams} streams"):
        result = measure_scale(providers, streams, settle_s, idle_s)
    if format is Format.JSONL:
        derived = {
            "stream_bytes": round(result.stream_bytes),
            "idle_core_share": round(result.idle_core_share, 4),
            "met": result.met,
        }
        print(msgspec.json.encode(msgspec.to_builtins(result) | derived).decode())
    else:
        _print(result)
    if strict and not result.met:
        raise typer.Exit(1)


def _print(result: Scale) -> None:
    shown = Table(title=f"{result.providers} providers, {result.streams:,} streams, one process")
    for name in ("measured", "figure", "target", "met"):
        shown.add_column(name, justify="left" if name == "measured" else "right")
    first, last = result.first_aligned_s, result.aligned_s
    shown.add_row("aligned, first and last provider", f"{first:.1f} s, {last:.1f} s")
    shown.add_row("processor time until aligned", f"{result.aligning_cpu_s:.1f} s")
    shown.add_row("entities", f"{result.entities:,}")
    shown.add_row(
        "memory before, aligned, after the idle time",
        ", ".join(
            f"{size / _MIB:.0f} MiB"
            for size in (result.empty_bytes, result.aligned_bytes, result.idle_bytes)
        ),
    )
    shown.add_row(
        "memory of a stream",
        f"{result.stream_bytes / _MIB:.2f} MiB",
        f"{STREAM_BYTES / _MIB:.2f} MiB",
        "yes" if result.stream_bytes <= STREAM_BYTES else "[red]no",
    )
    shown.add_row(
        f"share of a core in the {result.settle_s:.0f} s after that",
        f"{result.settle_cpu_s / result.settle_s:.1%}",
    )
    shown.add_row(
        f"share of a core over {result.idle_s:.0f} idle s",
        f"{result.idle_core_share:.1%}",
        f"{IDLE_CORE_SHARE:.0%}",
        "yes" if result.idle_core_share <= IDLE_CORE_SHARE else "[red]no",
    )
    Console().print(shown)


if __name__ == "__main__":
    typer.run(main)
