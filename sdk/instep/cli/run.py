"""`instep run`: runs the consumers of a configuration until a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.heap import share_one_heap
from instep.cli.log_lines import log_to_stderr, say, set_log_level
from instep.cli.output import Format
from instep.cli.progress_view import LinesView, LiveView, View
from instep.cli.reloader import Reloader
from instep.cli.signals import on_hangup, outlive_hangup, until_signalled
from instep.cli.store import ConfigArgument, ConsumerOption, chosen_of
from instep.cli.systemd import notify, notify_alive
from instep.cli.worker import publisher_of, services_of
from instep.config.file import Configuration, default_path, load
from instep.errors import ConfigurationError, NotAlignedError, UnreadableRecordsError
from instep.model.freshness import FreshnessState
from instep.runtime.group import Group
from instep.runtime.supervision import until_first_ended

if TYPE_CHECKING:
    from instep.metrics.port import OperationsPort

__all__ = ["run"]


def run(
    config: ConfigArgument = None,
    consumer: ConsumerOption = None,
    until_aligned: Annotated[
        bool,
        typer.Option(
            "--until-aligned",
            help="End when every stream is aligned: with 0, or with 3 if records could not be"
            " read.",
        ),
    ] = False,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="With --until-aligned: end with 1 after so many seconds.",
            show_default=False,
        ),
    ] = None,
    period_s: Annotated[
        float,
        typer.Option(
            "--period",
            metavar="SECONDS",
            min=0.1,
            help="The time between two JSON lines of health.",
        ),
    ] = 5.0,
    output: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Default: a live table on a terminal, else JSON lines.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Keep the stores of a configuration in step with their providers.

    SIGTERM and SIGINT stop it within five seconds, and nothing is lost. It ends with 0, or with 1
    if a consumer has failed; the others go on meanwhile. On SIGHUP and `instep reload` it reads its
    configuration again.

    Example: instep run --until-aligned --timeout 60
    """
    if timeout_s is not None and not until_aligned:
        raise ConfigurationError(
            "--timeout was given without --until-aligned",
            where="run",
            hint="add --until-aligned: --timeout says how long it waits",
        )
    outlive_hangup()
    share_one_heap()
    if output is None:
        output = Format.TABLE if sys.stdout.isatty() else Format.JSONL
    log_to_stderr(output)
    configuration = load(config or default_path())
    set_log_level(configuration.operations.log_level)
    # Made first: it imports the plug-ins, and a signal meanwhile has nothing to complete.
    services = {
        one.name: services_of(one) for one in chosen_of(configuration, consumer, or_none=True)
    }
    # --consumer is about that consumer alone.
    publishers = [publisher_of(one) for one in configuration.publishers if consumer is None]
    group = Group([*(each for many in services.values() for each in many), *publishers])
    view = LiveView(group) if output is Format.TABLE else LinesView(group, period_s)
    reloader = Reloader(
        configuration, consumer, group, services, started=view.follow, tell=view.event
    )
    port = _port(configuration, group, reloader, view)
    until_signalled(_run(group, view, reloader, port, until_aligned, timeout_s))


def _port(
    configuration: Configuration, group: Group, reloader: Reloader, view: View
) -> OperationsPort | None:
    """What serves the figures, where that is configured."""
    if not configuration.operations.listen:
        return None
    from instep.metrics.port import OperationsPort

    return OperationsPort(
        lambda: group.consumers,
        configuration.operations.listen,
        f"{configuration.path}: operations.listen",
        about=lambda: {
            "pid": os.getpid(),
            "reload": reloader.last,
            "events": view.recent,
        },
    )


async def _run(
    group: Group,
    view: View,
    reloader: Reloader,
    port: OperationsPort | None,
    until_aligned: bool,
    timeout_s: float | None,
) -> None:
    on_hangup(reloader.request)
    try:
        async with port or nullcontext(), view, group:
            if port is not None:
                say(f"it tells how it does on {port.address}", logger="instep.operations")
            # What start-up has made stays: modules, above all. A garbage collection that looks
            # through all of it holds the event loop up.
            gc.collect()
            gc.freeze()
            work = _aligned(group, timeout_s) if until_aligned else group.wait()
            notify("READY=1")
            try:
                await until_first_ended(work, view.watch(), reloader.run(), notify_alive())
            finally:
                notify("STOPPING=1")
                gc.unfreeze()
    except asyncio.CancelledError:
        # Stopped as asked, but a consumer that failed has not done its work.
        if group.error is not None:
            raise group.error from None
        raise


async def _aligned(group: Group, timeout_s: float | None) -> None:
    try:
        await group.aligned(timeout_s)
    except TimeoutError:
        raise NotAlignedError(
            f"not aligned within {timeout_s:g} s: {'; '.join(_obstacles(group))}",
            where="run --until-aligned",
            hint="`instep status` shows how far each stream has come; a longer --timeout waits on",
        ) from None
    if unreadable := list(_unreadable(group)):
        raise UnreadableRecordsError(
            "; ".join(unreadable),
            where="run --until-aligned",
            hint="`instep quarantine list` shows them; what they state is missing in the store",
        )


def _unreadable(group: Group) -> Iterator[str]:
    """The streams that are aligned but for records that could not be read."""
    for health in group.health():
        for stream in health.streams:
            if stream.freshness.state is FreshnessState.ALIGNED_UNREADABLE:
                yield f"{health.consumer} / {stream.stream} is {stream.freshness.text}"


def _obstacles(group: Group) -> Iterator[str]:
    """What each consumer and stream that is not aligned has come to."""
    for health in group.health():
        if not health.streams:
            why = health.error
            yield f"{health.consumer} is {health.state}{': ' * bool(why)}{why}"
        for stream in health.streams:
            fresh = stream.freshness
            if not fresh.in_step and fresh.state is not FreshnessState.NOT_OFFERED:
                why = stream.refusal or stream.no_progress or stream.last_error
                came = f"{health.consumer} / {stream.stream} is {fresh.text}"
                yield f"{came}, attempt {stream.attempt}{', ' * bool(why)}{why}"
