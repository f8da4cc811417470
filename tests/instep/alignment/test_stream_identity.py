"""Streams of another instance under the ids of the store (TR-548 ST-4.2)."""

from __future__ import annotations

from instep import StreamInfo
from instep.alignment.stream_identity import match_streams


def stream(id_: str, endpoint: str = "a", uuid: str = "", **changes: object) -> StreamInfo:
    fields = {"id": id_, "origin": f"{endpoint} {uuid}", "kind": "k", "endpoint": endpoint}
    return StreamInfo(**(fields | {"uuid": uuid} | changes))  # type: ignore[arg-type]


def ids(known: list[StreamInfo], offered: list[StreamInfo]) -> list[str]:
    return [found.id for found in match_streams(known, offered)]


def test_the_id_counts_before_the_uuid() -> None:
    known = [stream("x", uuid="1"), stream("y", uuid="2")]
    assert ids(known, [stream("y", "b", "1"), stream("x", "b", "2")]) == ["y", "x"]


def test_a_stream_with_our_uuid_keeps_our_id() -> None:
    known = [stream("nodes", uuid="1", classes=("NODE",))]
    [found] = match_streams(known, [stream("1", "b", "1", classes=("LINK",))])
    assert (found.id, found.endpoint, found.classes) == ("nodes", "b", ("LINK",))


def test_the_only_stream_of_the_same_content_is_ours_under_another_name() -> None:
    known = [stream("x", uuid="1", classes=("NODE", "LINK")), stream("z", classes=("OTHER",))]
    offered = [stream("y", "b", "2", classes=("LINK", "NODE")), stream("w", "b", classes=("NEW",))]
    assert ids(known, offered) == ["x", "w"]


def test_two_of_the_same_content_are_not_guessed_at() -> None:
    known = [stream("x", uuid="1"), stream("y", uuid="2")]
    assert ids(known, [stream("v", "b", "3")]) == ["v"]
    assert ids(known[:1], [stream("v", "b", "3"), stream("w", "b", "4")]) == ["v", "w"]


def test_one_endpoint_gives_its_streams_names_that_differ_for_a_reason() -> None:
    assert ids([stream("x", uuid="1")], [stream("y", uuid="2")]) == ["y"]


def test_another_log_strategy_is_another_stream() -> None:
    known = [stream("x", variant="COMPACTED")]
    assert ids(known, [stream("y", "b", variant="TRUNCATED")]) == ["y"]


def test_nothing_is_known_at_first() -> None:
    offered = [stream("x", uuid="1"), stream("y", uuid="2")]
    assert match_streams([], offered) == offered
