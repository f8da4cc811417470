"""What differs between two readings of a configuration, and what of it a running process takes
over. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from instep.config.file import Configuration, ConsumerConfiguration

__all__ = ["Difference", "changed_keys", "differences"]


class Difference(msgspec.Struct, frozen=True):
    """What has changed of one consumer that both have."""

    before: ConsumerConfiguration
    after: ConsumerConfiguration
    settings: tuple[str, ...]
    """Keys of `settings`: "alignment.sweep_guard_share"."""
    source: tuple[str, ...]
    """Keys of the source, but where its kind is another one."""
    restart: tuple[str, ...]
    """What nothing but a restart takes over: "sink.url"."""


def differences(before: Configuration, after: Configuration) -> list[Difference]:
    """Of each consumer that both have and that has changed, in the order of the file."""
    known = {one.name: one for one in before.consumers}
    found = (_difference(known[one.name], one) for one in after.consumers if one.name in known)
    return [one for one in found if one.settings or one.source or one.restart]


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The keys at the top of two tables that differ, in alphabetical order."""
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


def _difference(before: ConsumerConfiguration, after: ConsumerConfiguration) -> Difference:
    source: list[str] = []
    restart = [
        key
        for key in ("workers", "isolation", "memory_limit_bytes", "conformance")
        if getattr(before, key) != getattr(after, key)
    ]
    for part in ("source", "sink"):
        old, new = getattr(before, part), getattr(after, part)
        keys = changed_keys(old.options, new.options)
        if old.kind != new.kind:
            restart.append(f"{part}.kind")
        elif part == "source":
            source = keys
        else:
            restart += [f"{part}.{key}" for key in keys]
    settings = tuple(_changed_settings(before.settings, after.settings))
    return Difference(before, after, settings, tuple(source), tuple(restart))


def _changed_settings(before: Any, after: Any, place: str = "") -> Iterator[str]:
    for name in before.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, msgspec.Struct):
            yield from _changed_settings(old, new, f"{place}{name}.")
        else:
            yield f"{place}{name}"
