"""The edition of TAPI streaming that a stream follows, from what its provider states of it: 2.1.3
(TR-548 v1.1), or 2.4 to 2.6 (TR-548 v3.2). Pure.

Providers mix names of one edition with the meaning of the other. So the first line of `_SIGNS` that
holds decides: what only one edition's model can state comes before names that are found in both.
Where there are names alone, a stated revision of the module decides (RFC 8525); and what the
editions read otherwise is decided clause by clause (`DECISIONS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from instep_tapi.facts.names import short_identity, strip_module

__all__ = ["DECISIONS", "TAPI_2_1_3", "TAPI_2_6", "Decision", "StreamProfile", "profile_of"]

TAPI_2_1_3: Final = "2.1.3"
TAPI_2_6: Final = "2.6"
"""The name for 2.4 to 2.6: each is compatible with the one before it."""


class StreamProfile(NamedTuple):
    """An edition, and what is stated that shows it."""

    tapi: str = TAPI_2_1_3
    evidence: str = "no sign of TAPI 2.4 or later"
    by_names: bool = False
    """Whether names alone show it, which providers of 2.1.3 have taken over from 2.4, or nothing
    does.
    """

    @property
    def tapi_of_records(self) -> str:
        """The edition by which a CREATE_UPDATE of a CHANGE_ONLY stream is read: see `DECISIONS`."""
        return TAPI_2_1_3 if self.by_names else self.tapi

    def with_revision(self, revision: str) -> StreamProfile:
        """The profile where the provider states this revision of tapi-streaming; empty: it states
        none.
        """
        if not (self.by_names and revision):
            return self
        tapi = TAPI_2_6 if revision >= _FIRST_REVISION_OF_2_4 else TAPI_2_1_3
        return StreamProfile(tapi, f"tapi-streaming is of {revision}", by_names=False)


class Decision(NamedTuple):
    """One question on which the editions differ, and what answers it for a stream."""

    clause: str
    """Of TR-548 v3.2."""
    question: str
    in_2_1_3: str
    in_2_6: str
    decided_by: str


DECISIONS: Final = (
    Decision(
        "3.7.2",
        "connection-address",
        "one text, each alternative in it in turn",
        "a list, each in turn",
        "its form",
    ),
    Decision(
        "3.7.1",
        "no log-storage-strategy is stated",
        "not known: a baseline is read",
        "COMPACTED, the default",
        "whether compacted-log-details are stated",
    ),
    Decision(
        "3.7.1.1",
        "no connection-protocol is stated",
        "not followed",
        "WebSocket, the default",
        "the edition",
    ),
    Decision("5.2", "CHANGE", "merged, lists entire", "the same", "the record type"),
    Decision("5.2", "CREATE, UPDATE", "whole", "the same", "the record type"),
    Decision(
        "5.2",
        "CREATE_UPDATE of a CHANGE_ONLY stream",
        "a part, merged",
        "whole, replaces",
        "the edition, unless names alone show it: then 2.1.3",
    ),
    Decision("3.10", "INFORMATION", "states no entity", "the same", "the record type"),
    Decision(
        "3.10",
        "no record-type is stated",
        "unreadable",
        "INFORMATION, the default; unreadable with an entity",
        "the edition, unless names alone show it: then 2.1.3",
    ),
    Decision(
        "3.10", "parent-address", "any spelling, put into one form", "the same", "its own form"
    ),
    Decision(
        "4.5",
        "the state of an alarm",
        "condition-detector",
        "detected-condition",
        "its form",
    ),
    Decision(
        "4.5",
        "whether a GET proves alarms",
        "no",
        "active-condition, where it is there",
        "the edition, and the resource",
    ),
    Decision(
        "3.18", "where the monitor has its ids", "stream-monitor", "dynamic-stream-data", "its form"
    ),
)
"""All that is read otherwise by the edition, clause by clause: so providers that mix them are read
as each clause of theirs shows. The documentation has this table.
"""
_FIRST_REVISION_OF_2_4: Final = "2022-12-22"
"""Of tapi-streaming."""


_Members = Mapping[str, Any]


class _Sign(NamedTuple):
    evidence: str
    tapi: str
    holds: Callable[[_Members, _Members], bool]
    """Of the members of available-stream and of supported-stream-type, without modules."""
    by_names: bool = False


def _inner(type_: _Members, container: str) -> set[str]:
    inner = type_.get(container)
    return {strip_module(name) for name in inner} if isinstance(inner, Mapping) else set()


def _texts(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _protocols(stream: _Members, type_: _Members) -> list[str]:
    details = type_.get("connection-protocol-details")
    allowed = details.get("allowed-connection-protocols") if isinstance(details, Mapping) else None
    return _texts(stream.get("connection-protocol")) + _texts(allowed)


_SIGNS: Final = (
    _Sign("record-trigger is stated", TAPI_2_6, lambda _, type_: "record-trigger" in type_),
    _Sign(
        "log-record-strategy is WHOLE_ENTITY",
        TAPI_2_6,
        lambda _, type_: (
            "WHOLE_ENTITY" in map(short_identity, _texts(type_.get("log-record-strategy")))
        ),
    ),
    _Sign(
        "encoding-format is stated",
        TAPI_2_6,
        lambda _, type_: "encoding-format" in _inner(type_, "connection-protocol-details"),
    ),
    _Sign(
        "the delay or lag of compaction is stated",
        TAPI_2_6,
        lambda _, type_: (
            not {"max-allowed-segment-roll-delay", "max-compaction-lag"}.isdisjoint(
                _inner(type_, "compacted-log-details")
            )
        ),
    ),
    # From 2.4 on the member is stream-type-content; some of 2.1.3 call it so, too.
    _Sign("record-content is stated", TAPI_2_1_3, lambda _, type_: "record-content" in type_),
    _Sign(
        "classes are an OBJECT_TYPE",
        TAPI_2_6,
        lambda _, type_: any(
            "OBJECT_TYPE_" in text for text in _texts(type_.get("stream-type-content"))
        ),
        by_names=True,
    ),
    _Sign(
        "connection-protocol is an identity",
        TAPI_2_6,
        lambda stream, type_: any(
            strip_module(text).startswith("CONNECTION_PROTOCOL_")
            for text in _protocols(stream, type_)
        ),
        by_names=True,
    ),
    _Sign(
        "connection-address is a list",
        TAPI_2_6,
        lambda stream, _: isinstance(stream.get("connection-address"), list),
        by_names=True,
    ),
)


def profile_of(stream: _Members, type_: _Members) -> StreamProfile:
    """The profile of an available-stream with its supported-stream-type; member names come without
    modules.
    """
    for sign in _SIGNS:
        if sign.holds(stream, type_):
            return StreamProfile(sign.tapi, sign.evidence, sign.by_names)
    return StreamProfile(by_names=True)
