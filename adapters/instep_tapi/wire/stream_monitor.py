"""Reads a stream monitor: what a provider says of its clients (TR-548 3.18). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from instep_tapi.facts.names import strip_module

__all__ = ["MEMBERS", "MonitorEntry", "entries_of", "lag_of", "of_client"]

_IN_ADMIN: Final[dict[str, Any]] = {"stream-monitor": {}}
MEMBERS: Final = {"stream-admin-context": _IN_ADMIN, **_IN_ADMIN}
"""The members that `entries_of` reads."""
_MAX_ENTRIES: Final = 10_000
_MAX_TEXT_CHARS: Final = 256


class MonitorEntry(msgspec.Struct, frozen=True):
    """One connection of a client to a stream, as its provider sees it."""

    stream: str
    """The uuid of the available-stream."""
    client_id: str
    client_address: str
    read_id: str
    written_id: str


def entries_of(document: Any, stream: str) -> list[MonitorEntry]:
    """The entries of one stream, by its uuid."""
    return [one for one in _entries(document) if one.stream == stream]


def _entries(document: Any) -> Iterator[MonitorEntry]:
    members = _members(document)
    admin = members.get("stream-admin-context")
    if isinstance(admin, dict):
        members = _members(admin)
    listed = members.get("stream-monitor")
    for item in (listed if isinstance(listed, list) else [listed])[:_MAX_ENTRIES]:
        if not isinstance(item, dict):
            continue
        own = _members(item)
        # From 2.4 on the ids have a container of their own.
        ids = own | _members(own.get("dynamic-stream-data"))
        yield MonitorEntry(
            stream=_text(_members(own.get("available-stream")).get("available-stream-uuid")),
            client_id=_text(own.get("client-id")),
            client_address=_text(own.get("client-address")),
            read_id=_text(ids.get("id-of-last-record-read-from-log")),
            written_id=_text(ids.get("id-of-last-record-written-to-log")),
        )


def of_client(
    entries: Sequence[MonitorEntry], hosts: Collection[str]
) -> tuple[list[MonitorEntry], bool]:
    """The entries of a client with these addresses, `host:port` or hosts, and whether they are
    known to be its own: by their ports, or by a client-id that such an entry has.
    """
    ours = [one for one in entries if one.client_address in hosts and _has_port(one)]
    if ours:
        ids = {one.client_id for one in ours} - {""}
        return [one for one in entries if one in ours or one.client_id in ids], True
    return [one for one in entries if one.client_address in hosts], False


def _has_port(entry: MonitorEntry) -> bool:
    host, colon, _ = entry.client_address.rpartition(":")
    return bool(colon) and (":" not in host or host.endswith("]"))


def lag_of(entry: MonitorEntry) -> int | None:
    """How many records the client is behind, where both ids are numbers."""
    if not (entry.read_id.isdecimal() and entry.written_id.isdecimal()):
        return None
    return max(0, int(entry.written_id) - int(entry.read_id))


def _members(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {strip_module(name): inner for name, inner in value.items()}


def _text(value: Any) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    text = str(value) if number else value
    return text[:_MAX_TEXT_CHARS] if isinstance(text, str) and "\0" not in text else ""
