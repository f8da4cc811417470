"""`instep check`: reads a configuration, lets the plug-ins check it, and connects to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from instep.cli.output import plain
from instep.cli.store import ConfigArgument
from instep.config.file import PluginConfiguration, default_path, load
from instep.config.plugins import check as check_plugins
from instep.config.plugins import shown_sink, shown_source
from instep.runtime.settings import ConsumerSettings

__all__ = ["check"]


def check(config: ConfigArgument = None) -> None:
    """Check a configuration without connecting to anything, and say what it would do."""
    configuration = load(config or default_path())
    for consumer in configuration.consumers:
        check_plugins(consumer)
    console = Console(highlight=False)
    for consumer in configuration.consumers:
        table = Table.grid(padding=(0, 2))
        source, sink = consumer.source, consumer.sink
        table.add_row("  reads", *_describe(source, shown_source(source)))
        table.add_row("  commits to", *_describe(sink, shown_sink(sink)))
        changed = ", ".join(_changed(consumer.settings, ConsumerSettings()))
        table.add_row("  settings", Text(changed or "all default"))
        if consumer.workers > 1:
            table.add_row("  workers", Text(f"{consumer.workers} processes"))
        console.print(Text(plain(consumer.name), style="bold"))
        console.print(table)
    count = len(configuration.consumers)
    counted = f"{count} consumer{'s' * (count != 1)}"
    console.print(Text(f"{configuration.path}: good, {counted}; connected to nothing"))


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


def _changed(settings: msgspec.Struct, default: msgspec.Struct, prefix: str = "") -> list[str]:
    changed: list[str] = []
    for name in settings.__struct_fields__:
        value, usual = getattr(settings, name), getattr(default, name)
        if isinstance(value, msgspec.Struct):
            changed += _changed(value, usual, f"{prefix}{name}.")
        elif value != usual:
            changed.append(f"{prefix}{name} = {value}")
    return changed
