"""Selection: which streams are followed, and the reason for each that is not."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from instep.errors import DiscoveryError, TlsError
from instep.model.streams import Mode, StreamState
from instep_tapi.endpoints.selection import (
    SSE,
    WEBSOCKET,
    kept_classes,
    log_mode,
    may_be_emulated,
    protocol_of,
    select,
    stream_address,
)
from instep_tapi.facts.stream_profile import StreamProfile
from instep_tapi.options import StreamOptions
from instep_tapi.wire.stream_context import AvailableStream, StreamContext, StreamType

V2_6 = StreamProfile("2.6")


def stream(id_: str, *classes: str, storage: str = "COMPACTED", **changes: Any) -> AvailableStream:
    type_ = StreamType(
        uuid=f"type-{id_}",
        classes=classes,
        storage_strategy=storage,
        compacted_details=changes.pop("details", storage == "COMPACTED"),
        protocols=changes.pop("protocols", ()),
        encoding=changes.pop("encoding", ""),
    )
    stated: dict[str, Any] = {
        "uuid": f"uuid-{id_}",
        "stream_id": id_,
        "state": StreamState.ACTIVE,
        "addresses": ("wss://h/s",),
        "protocol": "websockets",
        "type": type_,
    }
    return AvailableStream(**{**stated, **changes})


def chosen(*streams: AvailableStream, **wanted: tuple[str, ...]) -> dict[str, str | None]:
    """The id of each stream: None where it is chosen, else the reason why not."""
    choices = select(StreamContext(streams), StreamOptions(**wanted))
    assert all(choice.reason for choice in choices)
    return {choice.id: None if choice.chosen else choice.reason for choice in choices}


def test_all_that_can_be_connected_to_by_default() -> None:
    states = {state: stream(state, "NODE", state=state) for state in StreamState}
    judged = chosen(*states.values())
    assert judged.pop("terminated") == "its state is TERMINATED"
    assert set(judged.values()) == {None}


@pytest.mark.parametrize(
    "protocol",
    [
        "websocket",
        "websockets",
        "WebSockets",
        "CONNECTION_PROTOCOL_WEBSOCKETS",
        "tapi-streaming:CONNECTION_PROTOCOL_WEBSOCKETS",
        " WSS ",
        "web-socket",
        "",
    ],
)
def test_websocket_in_every_spelling(protocol: str) -> None:
    assert chosen(stream("a", protocol=protocol)) == {"a": None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol": "gnmi"}, "its protocol 'gnmi' is neither WebSocket nor SSE"),
        (
            {"protocol": "", "addresses": ("http://h",)},
            "its protocol 'is not declared' is neither WebSocket nor SSE",
        ),
        ({"addresses": ()}, "it has no connection-address"),
        (
            {"addresses": ("grpc://h:1", "grpc://h:2")},
            "its address 'grpc://h:1' is none of a stream over WebSocket",
        ),
        ({"type": None}, "its supported-stream-type is not stated"),
    ],
)
def test_what_cannot_be_followed(changes: dict[str, Any], reason: str) -> None:
    assert chosen(stream("a", **changes)) == {"a": reason}


@pytest.mark.parametrize(
    ("allowed", "profile", "protocol"),
    [
        (("CONNECTION_PROTOCOL_WEBSOCKETS",), V2_6, WEBSOCKET),
        (("tapi-streaming:CONNECTION_PROTOCOL_SSE",), V2_6, SSE),
        (("CONNECTION_PROTOCOL_GNMI",), V2_6, ""),
        (
            ("CONNECTION_PROTOCOL_SSE", "CONNECTION_PROTOCOL_WEBSOCKETS"),
            V2_6,
            WEBSOCKET,
        ),
        (("CONNECTION_PROTOCOL_SSE", "CONNECTION_PROTOCOL_GNMI"), V2_6, ""),
        ((), V2_6, WEBSOCKET),
        (("sse",), StreamProfile(), SSE),
        (("websockets", "sse"), StreamProfile(), ""),
        ((), StreamProfile(), ""),
    ],
)
def test_3_7_1_a_protocol_that_only_the_type_states(
    allowed: tuple[str, ...], profile: StreamProfile, protocol: str
) -> None:
    offered = stream("a", protocol="", addresses=("/s",), protocols=allowed, profile=profile)
    assert protocol_of(offered) == protocol


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [
        ("", None),
        ("JSON", None),
        ("PROTOBUF", "its encoding-format is PROTOBUF: only JSON is read"),
    ],
)
def test_3_7_1_an_encoding_that_is_not_read(encoding: str, reason: str | None) -> None:
    assert chosen(stream("a", encoding=encoding)) == {"a": reason}


def test_a_scheme_within_a_relative_address_is_none_of_its_own() -> None:
    assert chosen(stream("a", addresses=("/s?from=grpc://h",))) == {"a": None}


def test_by_class_by_id_and_by_strategy() -> None:
    streams = (
        stream("net", "NODE", "LINK"),
        stream("alarms", "CONDITION_DETECTOR"),
        stream("all", "ANY_CLASS", storage="TRUNCATED"),
    )
    assert chosen(*streams, classes=("CONDITION_DETECTOR",)) == {
        "net": "it carries none of the classes that are asked for",
        "alarms": None,
        "all": "alarms carries its classes, by a better log strategy",
    }
    assert chosen(*streams, ids=("uuid-net", "all")) == {
        "net": None,
        "alarms": "other ids are asked for",
        "all": None,
    }
    assert chosen(*streams, strategies=("LOG_STORAGE_STRATEGY_TRUNCATED",)) == {
        "net": "its strategy COMPACTED is not asked for",
        "alarms": "its strategy COMPACTED is not asked for",
        "all": None,
    }


def test_compacted_is_preferred_where_two_carry_the_same_classes() -> None:
    truncated = stream("t", "NODE", storage="TRUNCATED")
    history = stream("h", "NODE", storage="FULL_HISTORY")
    compacted = stream("c", "NODE", "LINK")
    claimed = stream("x", "NODE", details=False)
    assert [
        id_ for id_, why in chosen(truncated, history, claimed, compacted).items() if not why
    ] == ["c"]
    assert chosen(truncated, history)["t"] == "h carries its classes, by a better log strategy"
    assert chosen(truncated, claimed)["t"] == "x carries its classes, by a better log strategy"


def test_two_of_one_strategy_are_both_followed() -> None:
    assert chosen(stream("east", "NODE"), stream("west", "NODE")) == {"east": None, "west": None}


def test_a_stream_that_carries_more_is_followed_too() -> None:
    streams = (stream("c", "NODE"), stream("t", "NODE", "LINK", storage="TRUNCATED"))
    assert chosen(*streams) == {"c": None, "t": None}
    assert chosen(*streams, classes=("NODE",))["t"] is not None


def test_ids_that_are_not_unique_give_way_to_uuids() -> None:
    twin = stream("a", uuid="uuid-2")
    assert set(chosen(stream("a"), twin, stream("b"))) == {"uuid-a", "uuid-2", "b"}


@pytest.mark.parametrize(
    ("storage", "details", "trust", "mode"),
    [
        ("COMPACTED", True, False, Mode.LOG),
        ("COMPACTED", False, False, Mode.BASELINE),
        ("COMPACTED", False, True, Mode.LOG),
        ("FULL_HISTORY", False, False, Mode.LOG),
        ("FULL_HISTORY_WITH_PERIODIC_BASELINE", False, False, Mode.LOG),
        ("TRUNCATED", False, True, Mode.BASELINE),
        ("SOMETHING_NEW", False, True, Mode.BASELINE),
        ("", False, True, Mode.BASELINE),
    ],
)
def test_whether_the_log_alone_gives_state(
    storage: str, details: bool, trust: bool, mode: Mode
) -> None:
    type_ = StreamType(uuid="t", storage_strategy=storage, compacted_details=details)
    assert log_mode(type_, trust_compacted=trust) is mode


@pytest.mark.parametrize(
    ("storage", "delay_s", "tombstones_s", "may_be"),
    [
        ("COMPACTED", 600.0, 600.0, True),
        ("COMPACTED", None, None, True),
        ("COMPACTED", 600.0, 14_400.0, False),
        ("FULL_HISTORY", None, None, False),
    ],
)
def test_only_a_log_with_one_time_for_both_may_begin_with_a_snapshot(
    storage: str, delay_s: float | None, tombstones_s: float | None, may_be: bool
) -> None:
    type_ = StreamType(
        uuid="t",
        storage_strategy=storage,
        compaction_delay_s=delay_s,
        tombstone_retention_s=tombstones_s,
    )
    assert may_be_emulated(type_) is may_be


@pytest.mark.parametrize(
    "storage", ["FULL_HISTORY", "FULL_HISTORY_WITH_PERIODIC_BASELINE", "COMPACTED"]
)
@pytest.mark.parametrize("trust", [False, True])
def test_a15_4_3_5_a_log_that_forgets_live_entities_cannot_give_state(
    storage: str, trust: bool
) -> None:
    type_ = StreamType(
        uuid="t", storage_strategy=storage, forgets=True, compacted_details=storage == "COMPACTED"
    )
    assert log_mode(type_, trust_compacted=trust) is Mode.BASELINE


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("wss://o:28014/x%3Dy?a=b%2Fc", "wss://o:28014/x%3Dy?a=b%2Fc"),
        ("/tapi/s", "wss://h:8443/tapi/s"),
        ("https://o/s", "wss://o/s"),
    ],
)
def test_the_address_is_taken_as_it_is(address: str, url: str) -> None:
    assert str(stream_address(address, URL("https://h:8443"), hosts={"o"})) == url


@pytest.mark.parametrize(
    ("address", "hosts", "refused"),
    [
        ("wss://o/s", (), "o"),
        ("wss://o/s", ("p",), "o"),
        ("wss://O./s", ("o",), ""),
        ("wss://h:1/s", (), ""),
        ("wss://H./s", (), ""),
        ("wss://h.evil/s", (), "h.evil"),
        ("wss://127.0.0.1/s", (), "127.0.0.1"),
        ("wss://[::1]/s", (), "::1"),
        ("wss://[::1]/s", ("::1",), ""),
        ("//o/s", (), "o"),
        ("/s", (), ""),
    ],
)
def test_a_stream_at_another_host_is_refused_unless_allowed_by_name(
    address: str, hosts: tuple[str, ...], refused: str
) -> None:
    endpoint = URL("https://h:8443")
    if not refused:
        stream_address(address, endpoint, hosts=hosts)
        return
    with pytest.raises(DiscoveryError, match="read at another host") as raised:
        stream_address(address, endpoint, hosts=hosts)
    assert f'stream_hosts = ["{refused}"]' in raised.value.hint


@pytest.mark.parametrize("address", ["ws://o:81/s", "http://o:81/s"])
def test_a_stream_in_clear_under_a_secure_endpoint_is_refused_unless_allowed_by_name(
    address: str,
) -> None:
    endpoint = URL("https://h:8443")
    with pytest.raises(TlsError, match=r"without TLS.*ws://o:81") as refused:
        stream_address(address, endpoint, hosts={"o"})
    assert "tls.insecure_websocket" in str(refused.value.hint)
    allowed = stream_address(address, endpoint, hosts={"o"}, insecure=True)
    assert str(allowed) == "ws://o:81/s"
    assert str(stream_address(address, URL("http://o"))) == "ws://o:81/s"


@pytest.mark.parametrize("address", ["mailto:x", "wss://", "kafka://h/topic"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match=r"no address|Invalid|host"):
        stream_address(address, URL("https://h:8443"))


def test_3_12_a_stream_of_nothing_that_is_kept_is_not_followed() -> None:
    judged = chosen(
        stream("a", "NODE", "LINK"), stream("b", "LINK"), stream("c"), only_classes=("NODE",)
    )
    assert judged == {"a": None, "b": "it carries none of the classes that are kept", "c": None}


@pytest.mark.parametrize(
    ("carried", "only", "kept"),
    [
        (("NODE", "LINK"), ("LINK", "PATH"), ("LINK",)),
        (("NODE", "LINK"), (), ()),
        ((), ("LINK", "NODE"), ("LINK", "NODE")),
        (("ANY_CLASS",), ("tapi-streaming:LINK",), ("LINK",)),
    ],
)
def test_3_12_the_classes_that_are_kept(
    carried: tuple[str, ...], only: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    type_ = stream("a", *carried).type
    assert type_ is not None
    assert kept_classes(type_, StreamOptions(only_classes=only)) == kept
