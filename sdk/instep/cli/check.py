"""`instep check`: reads a configuration, lets the plug-ins check it, and connects to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from instep.cli.output import Format, FormatOption, json_line, plain
from instep.cli.store import ConfigArgument
from instep.config.file import (
    ConsumerConfiguration,
    Isolation,
    PluginConfiguration,
    PublisherConfiguration,
    default_path,
    load,
)
from instep.config.plugins import check as check_plugins
from instep.config.plugins import (
    check_publisher,
    shown_sink,
    shown_source,
    shown_target,
    store_plugin,
    warnings_of,
)
from instep.config.shown import shown_text
from instep.runtime.settings import ConsumerSettings

__all__ = ["check"]

_LABEL_WIDTH: Final = len("  commits to")


def check(config: ConfigArgument = None, output: FormatOption = Format.TABLE) -> None:
    """Check a configuration without connecting to anything, and say what it would do.

    Example: instep check instep.toml
    """
    configuration = load(config or default_path())
    for consumer in configuration.consumers:
        check_plugins(consumer)
    for publisher in configuration.publishers:
        store_plugin(publisher.table.store)
        check_publisher(publisher)
    if output is Format.JSONL:
        for consumer in configuration.consumers:
            json_line(_facts(consumer))
        for publisher in configuration.publishers:
            json_line(_publisher_facts(publisher))
        return
    console = Console(highlight=False)
    for consumer in configuration.consumers:
        # Plug-ins have a column for their kind; a long warning must not be squeezed into it.
        plugins, table = (Table.grid(padding=(0, 2)) for _ in range(2))
        for grid in (plugins, table):
            grid.add_column(min_width=_LABEL_WIDTH)
        source, sink = consumer.source, consumer.sink
        plugins.add_row("  reads", *_describe(source, shown_source(source)))
        plugins.add_row("  commits to", *_describe(sink, shown_sink(sink)))
        settings = _changed(consumer.settings, ConsumerSettings())
        changed = ", ".join(f"{name} = {value}" for name, value in settings)
        table.add_row("  settings", Text(changed or "all default"))
        for warning in warnings_of(consumer):
            table.add_row("  warning", Text(plain(warning), style="yellow"))
        for name, value in _how_it_runs(consumer):
            table.add_row(f"  {name}", Text(value))
        console.print(Text(plain(consumer.name), style="bold"))
        console.print(plugins)
        console.print(table)
    for publisher in configuration.publishers:
        table = Table.grid(padding=(0, 2))
        store = shown_text(publisher.table.store)
        table.add_row("  reads", Text("store"), Text(plain(store)))
        table.add_row(
            "  publishes to", *_describe(publisher.target, shown_target(publisher.target))
        )
        chosen = ", ".join(f"{name} = {_written(one)}" for name, one in _chosen(publisher))
        table.add_row("  chooses", Text(plain(chosen) or "all changes"))
        console.print(Text(plain(publisher.name), style="bold"))
        console.print(table)
    counts = [("consumer", len(configuration.consumers))]
    if configuration.publishers:
        counts.append(("publisher", len(configuration.publishers)))
    counted = ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts)
    console.print(Text(f"{configuration.path}: good, {counted}; connected to nothing"))


def _how_it_runs(consumer: ConsumerConfiguration) -> Iterator[tuple[str, str]]:
    if consumer.workers > 1:
        yield "workers", f"{consumer.workers} processes"
    if consumer.conformance:
        yield "conformance", "while it works"
    if consumer.isolation is Isolation.PROCESS:
        limit = consumer.memory_limit_bytes
        yield "isolation", "process" + (f", {limit:,} bytes" if limit else "")


def _facts(consumer: ConsumerConfiguration) -> dict[str, Any]:
    source, sink = consumer.source, consumer.sink
    return {
        "consumer": consumer.name,
        "source": {"kind": source.kind, **_jsonable(shown_source(source))},
        "sink": {"kind": sink.kind, **_jsonable(shown_sink(sink))},
        "workers": consumer.workers,
        "isolation": consumer.isolation,
        "memory_limit_bytes": consumer.memory_limit_bytes,
        "conformance": consumer.conformance,
        "settings": dict(_changed(consumer.settings, ConsumerSettings())),
        "warnings": warnings_of(consumer),
    }


def _publisher_facts(publisher: PublisherConfiguration) -> dict[str, Any]:
    target = publisher.target
    return {
        "publisher": publisher.name,
        "store": shown_text(publisher.table.store),
        "publishes_to": {"kind": target.kind, **_jsonable(shown_target(target))},
        "filters": dict(_chosen(publisher)),
    }


def _chosen(publisher: PublisherConfiguration) -> Iterator[tuple[str, Any]]:
    """What of the changes is published, as far as it is not all of them."""
    for name in ("consumer", "stream", "classes", "below", "from_now"):
        if value := getattr(publisher.table, name):
            yield name, list(value) if isinstance(value, tuple) else value


def _jsonable(value: Any) -> Any:
    """The value as JSON has it; a `Secret` as asterisks."""
    if isinstance(value, Mapping):
        return {key: _jsonable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_jsonable(one) for one in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _describe(part: PluginConfiguration, shown: Mapping[str, Any]) -> tuple[Text, Text]:
    options = [plain(f"{key} = {_written(value)}") for key, value in shown.items()]
    return Text(plain(part.kind)), Text("\n".join(options))


def _written(value: Any) -> str:
    """A value as it is written in the file; a `Secret` as asterisks."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changed(
    settings: msgspec.Struct, default: msgspec.Struct, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The settings that are not the default ones, with their values."""
    for name in settings.__struct_fields__:
        value, usual = getattr(settings, name), getattr(default, name)
        if isinstance(value, msgspec.Struct):
            yield from _changed(value, usual, f"{prefix}{name}.")
        elif value != usual:
            yield f"{prefix}{name}", value
