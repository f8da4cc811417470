"""Finds sources, sinks and verifiers by entry points, ours and those of others."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from instep.config.entry_points import broken, rule_book
from instep.config.file import ConsumerConfiguration, PluginConfiguration, PublisherConfiguration
from instep.config.options import unknown_classes
from instep.config.shown import masked
from instep.errors import ConfigurationError

if TYPE_CHECKING:
    from instep.coordination.lease import LeaseState
    from instep.model.entities import StreamStatus
    from instep.ports.listener import Listener
    from instep.ports.plugin import SinkPlugin, SourcePlugin, TargetPlugin, VerifierPlugin
    from instep.ports.publish_target import PublishTarget
    from instep.ports.reader import StoreReader
    from instep.ports.sink import Sink
    from instep.ports.source import Source
    from instep.runtime.conformance import LiveConformance

__all__ = [
    "build_conformance",
    "build_sink",
    "build_source",
    "build_target",
    "check",
    "check_publisher",
    "deviations_of",
    "open_reader",
    "quick_status",
    "shown_sink",
    "shown_source",
    "shown_target",
    "sink_plugin",
    "source_plugin",
    "store_plugin",
    "target_plugin",
    "verifier_plugin",
    "warnings_of",
]

_SOURCES: Final = "instep.sources"
_SINKS: Final = "instep.sinks"
_TARGETS: Final = "instep.targets"
_VERIFIERS: Final = "instep.verifiers"
_POSTGRES: Final = 'write kind = "sql" and url = "postgresql://user@host/database"'
_OTHER_NAMES: Final = {
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    "sqlite": 'write kind = "sql" and url = "sqlite:///network.db"',
    "spark": 'write kind = "delta"',
}
"""Kinds of sinks that users guess → what they mean."""
_CORE_DEVIATIONS: Final = {
    "content-changed": "other content came under a number that was received, without a fault",
    "offset-ahead": "an offset far ahead of its partition; it is not used (TR-548 3.10)",
    "append-time-ahead": "an append time far ahead of the provider's clock; it is not used"
    " (TR-548 3.10)",
    "offset-backwards": "an offset went backwards within its partition (TR-548 3.10)",
    "append-time-backwards": "the append time went backwards within a partition (TR-548 3.10)",
}
"""Deviations that the core itself counts, whatever the source."""


def source_plugin(kind: str, where: str = "") -> SourcePlugin:
    """The source of this kind. Raises `ConfigurationError` that lists the installed kinds."""
    found: SourcePlugin = _loaded(_SOURCES, kind, where)
    return found


def sink_plugin(kind: str, where: str = "") -> SinkPlugin:
    """The sink of this kind. Raises `ConfigurationError` that lists the installed kinds."""
    found: SinkPlugin = _loaded(_SINKS, kind, where)
    return found


def target_plugin(kind: str, where: str = "") -> TargetPlugin:
    """The target of this kind. Raises `ConfigurationError` that lists the installed kinds."""
    found: TargetPlugin = _loaded(_TARGETS, kind, where)
    return found


def verifier_plugin(kind: str, where: str = "") -> VerifierPlugin:
    """The verifier of this kind. Raises `ConfigurationError` that lists the installed kinds."""
    found: VerifierPlugin = _loaded(_VERIFIERS, kind, where)
    return found


def store_plugin(url: str) -> SinkPlugin:
    """The sink that reads a `--store URL`. Raises `ConfigurationError` when none does."""
    kinds = sorted(entry_points(group=_SINKS).names)
    failed: ConfigurationError | None = None
    # Most stores are SQL, and the others take a second to import.
    for kind in sorted(kinds, key=lambda kind: kind != "sql"):
        try:
            plugin = sink_plugin(kind, "--store")
        except ConfigurationError as error:
            failed = error
            continue
        if plugin.reads(url):
            return plugin
    if failed is not None:
        raise failed
    # The URL may hold a password: the error shows its scheme only.
    scheme = url.partition(":")[0] if ":" in url else ""
    raise ConfigurationError(
        f"no installed sink reads a URL that begins with {scheme!r}"
        if scheme
        else "this is not a URL",
        where="--store",
        hint=f"for example sqlite:///network.db; sinks installed: {', '.join(kinds)}",
    )


def open_reader(url: str) -> StoreReader:
    """Read access to the store at this URL, beside the process that writes it. `async with` closes
    it. Nothing is read yet.

    Raises `ConfigurationError` where no installed sink reads such a URL. The calls of the reader
    raise `SinkError`, and `NoStoreError` where there is no store.
    """
    return store_plugin(url).reader(url)


def quick_status(url: str) -> tuple[list[StreamStatus], dict[str, LeaseState]] | None:
    """The streams of a store, and the leases by consumer, where its sink has a short cut to them
    (`SinkPlugin`); None where its reader has to be asked. Raises `ConfigurationError` as
    `store_plugin`.
    """
    short_cut = getattr(store_plugin(url), "quick_status", None)
    found: tuple[list[StreamStatus], dict[str, LeaseState]] | None
    found = None if short_cut is None else short_cut(url)
    return found


def build_source(part: PluginConfiguration) -> Source | Listener:
    """The configured source, not yet connected: a provider's streams, or a listener for messages.
    Raises `ConfigurationError`.
    """
    plugin = source_plugin(part.kind, f"{part.where}.kind")
    with _errors_of(part, _SOURCES):
        return plugin.build(part.options, part.where)


def build_sink(part: PluginConfiguration) -> Sink:
    """The configured sink, not yet opened. Raises `ConfigurationError`."""
    plugin = sink_plugin(part.kind, f"{part.where}.kind")
    with _errors_of(part, _SINKS):
        return plugin.build(part.options, part.where)


def build_conformance(
    consumer: ConsumerConfiguration, source: Source | Listener
) -> LiveConformance | None:
    """What judges the peer of this source while the consumer works; None where that is not
    configured. Raises `ConfigurationError` where nothing of this kind can be judged.
    """
    if not consumer.conformance:
        return None
    # `instep status` needs neither.
    from instep.ports.recordable import Recordable  # noqa: PLC0415 - see above
    from instep.runtime.conformance import LiveConformance  # noqa: PLC0415 - see above

    place = consumer.source.where.removesuffix(".source")
    book = rule_book(consumer.source.kind, f"{place}.conformance")
    if not isinstance(source, Recordable):
        raise ConfigurationError(
            f"a source of kind {consumer.source.kind!r} gives nothing that can be judged",
            where=f"{place}.conformance",
            hint="leave conformance out",
        )
    return LiveConformance(book, source, consumer.name)


def build_target(part: PluginConfiguration) -> AbstractAsyncContextManager[PublishTarget]:
    """The configured target of a publisher, not yet connected. Raises `ConfigurationError`."""
    plugin = target_plugin(part.kind, f"{part.where}.kind")
    with _errors_of(part, _TARGETS):
        return plugin.build(part.options, part.where)


def check_publisher(publisher: PublisherConfiguration) -> None:
    """Let the plug-in of its target check its table; connects to nothing. Raises
    `ConfigurationError`.
    """
    part = publisher.target
    plugin = target_plugin(part.kind, f"{part.where}.kind")
    with _errors_of(part, _TARGETS):
        plugin.check(part.options, part.where)


def check(consumer: ConsumerConfiguration) -> None:
    """Let the plug-ins check their tables; connects to nothing. Raises `ConfigurationError`."""
    if consumer.conformance:
        place = consumer.source.where.removesuffix(".source")
        rule_book(consumer.source.kind, f"{place}.conformance")
    for part, group in ((consumer.source, _SOURCES), (consumer.sink, _SINKS)):
        plugin: SourcePlugin | SinkPlugin = _loaded(group, part.kind, f"{part.where}.kind")
        with _errors_of(part, group):
            plugin.check(part.options, part.where)


def warnings_of(consumer: ConsumerConfiguration) -> list[str]:
    """What a good configuration may lose all the same, as its source says it (`SourcePlugin`)."""
    plugin = source_plugin(consumer.source.kind)
    warnings = getattr(plugin, "warnings", None)
    known = getattr(plugin, "classes", None)
    with _errors_of(consumer.source, _SOURCES):
        told = [] if warnings is None else list(warnings(consumer.source.options))
        if known is not None:
            order = consumer.settings.start_order
            told += unknown_classes(order, known, "settings.start_order")
        return told


def shown_source(part: PluginConfiguration) -> dict[str, Any]:
    """The table of a source as it is written, without what may be secret."""
    return _shown(source_plugin(part.kind), part.as_written)


def shown_sink(part: PluginConfiguration) -> dict[str, Any]:
    """The table of a sink as it is written, without what may be secret."""
    return _shown(sink_plugin(part.kind), part.as_written)


def shown_target(part: PluginConfiguration) -> dict[str, Any]:
    """The table of a target as it is written, without what may be secret."""
    return _shown(target_plugin(part.kind), part.as_written)


def deviations_of(kind: str) -> dict[str, str]:
    """What each kind of deviation means, as far as the source documents it.

    A source plug-in may have an attribute `deviations`: kind → one line with its clause.
    """
    explained: dict[str, str] = {}
    with contextlib.suppress(ConfigurationError):
        explained = {
            rule.id: f"{rule.text} ({', '.join(one.text for one in rule.clauses.values())})"
            for rule in (rule_book(kind).rules if kind else ())
        }
    # A store can be read where its source is not installed: then counts have no explanation.
    with contextlib.suppress(ConfigurationError):
        explained |= dict(getattr(source_plugin(kind), "deviations", {}))
    return {**_CORE_DEVIATIONS, **explained}


def _shown(
    plugin: SourcePlugin | SinkPlugin | TargetPlugin, table: Mapping[str, Any]
) -> dict[str, Any]:
    shown = getattr(plugin, "shown", masked)
    return dict(shown(table))


@contextlib.contextmanager
def _errors_of(part: PluginConfiguration, group: str) -> Iterator[None]:
    """Errors of a plug-in about its table: without secrets, and with the extra that it lacks."""
    try:
        yield
    except ConfigurationError as error:
        raise part.redact(error) from None
    except ImportError as error:
        # Options may need what the plug-in itself does not.
        points = {point.name: point for point in entry_points(group=group)}
        raise broken(points[part.kind], _word(group), part.where, error) from error


def _word(group: str) -> str:
    return group.removeprefix("instep.").removesuffix("s")


def _loaded(group: str, kind: str, where: str) -> Any:
    what = _word(group)
    points = {point.name: point for point in entry_points(group=group)}
    if kind not in points:
        other = _OTHER_NAMES.get(kind)
        if other and group == _SINKS:
            raise ConfigurationError(
                f"there is no {what} of kind {kind!r}", where=where, hint=other, kind=kind
            )
        close = difflib.get_close_matches(kind.lower(), points, n=1)
        guess = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigurationError(
            f"there is no {what} of kind {kind!r}",
            where=where,
            hint=f"{guess}{what}s installed: {', '.join(sorted(points)) or 'none'}",
            kind=kind,
            installed=sorted(points),
        )
    try:
        return points[kind].load()
    except Exception as error:  # a plug-in may fail in any way; the reason is shown
        raise broken(points[kind], what, where, error) from error
