"""Which stream an offered one is: by names where these suffice, else by what it carries (A20)."""

from __future__ import annotations

import pytest

from instep import StreamInfo
from instep.alignment.stream_identity import StreamCandidate, choose_place, match_streams, unused_id


def stream(id_: str, endpoint: str = "a", uuid: str = "", **changes: object) -> StreamInfo:
    fields = {"id": id_, "origin": f"{endpoint} {uuid}", "kind": "k", "endpoint": endpoint}
    return StreamInfo(**(fields | {"uuid": uuid} | changes))  # type: ignore[arg-type]


def ids(known: list[StreamInfo], offered: list[StreamInfo]) -> list[str]:
    return [found.id for found in match_streams(known, offered).named]


def doubtful(known: list[StreamInfo], offered: list[StreamInfo]) -> list[str]:
    return [found.id for found in match_streams(known, offered).doubtful]


def test_the_id_counts_where_no_other_stream_can_be_meant() -> None:
    known = [stream("x", uuid="1"), stream("y", uuid="2", classes=("NODE",))]
    offered = [stream("x", uuid="3"), stream("y", "b", "4", classes=("NODE",))]
    assert ids(known, offered) == ["x", "y"]


@pytest.mark.parametrize("endpoint", ["a", "b"])
def test_an_id_alone_does_not_say_which_of_two_regions_it_is(endpoint: str) -> None:
    """They were numbered anew: x is what y was."""
    known = [stream("x", uuid="1"), stream("y", uuid="2")]
    offered = [stream("x", endpoint, "3"), stream("y", endpoint, "4")]
    assert ids(known, offered) == []
    assert doubtful(known, offered) == ["x", "y"]


def test_the_uuid_says_which_of_two_regions_it_is() -> None:
    known = [stream("x", uuid="1"), stream("y", uuid="2")]
    assert ids(known, [stream("y", "b", "1"), stream("x", "b", "2")]) == ["x", "y"]


def test_a_stream_with_our_uuid_keeps_our_id() -> None:
    known = [stream("nodes", uuid="1", classes=("NODE",))]
    [found] = match_streams(known, [stream("1", "b", "1", classes=("LINK",))]).named
    assert (found.id, found.endpoint, found.classes) == ("nodes", "b", ("LINK",))


def test_an_id_of_other_content_at_another_instance_is_another_stream() -> None:
    """Instances that number their streams do not number them alike."""
    known = [stream("1", uuid="u1", classes=("NODE",)), stream("2", uuid="u2", classes=("LINK",))]
    offered = [
        stream("1", "b", "v1", classes=("LINK",)),
        stream("2", "b", "v2", classes=("NODE",)),
        stream("3", "b", "v3", classes=("PATH",)),
    ]
    found = match_streams(known, offered)
    assert [one.id for one in found.doubtful] == ["1", "2"]
    assert [one.id for one in found.named] == ["3"]
    assert [one.id for one in found.missing] == ["1", "2"]


@pytest.mark.parametrize("endpoint", ["a", "b"])
def test_a20_the_only_stream_of_the_same_content_is_doubtful_under_another_name(
    endpoint: str,
) -> None:
    known = [stream("x", uuid="1", classes=("NODE", "LINK")), stream("z", classes=("OTHER",))]
    offered = [
        stream("y", endpoint, "2", classes=("LINK", "NODE")),
        stream("w", endpoint, classes=("NEW",)),
    ]
    assert (ids(known, offered), doubtful(known, offered)) == (["w"], ["y"])
    assert [one.id for one in match_streams(known, offered).missing] == ["x", "z"]


def test_another_log_strategy_is_another_stream() -> None:
    known = [stream("x", variant="COMPACTED")]
    assert ids(known, [stream("y", "b", variant="TRUNCATED")]) == ["y"]


def test_a_stream_beside_one_that_is_still_offered_is_another_one() -> None:
    known = [stream("x", uuid="1")]
    assert ids(known, [stream("x", uuid="1"), stream("y", uuid="2")]) == ["x", "y"]


def test_what_was_shown_once_needs_no_second_reading() -> None:
    known = [stream("x", uuid="1"), stream("y", uuid="2")]
    offered = [stream("y", "b", "3"), stream("x", "b", "4")]
    found = match_streams(known, offered, {"3": "x", "4": "y", "5": "gone"})
    assert [one.id for one in found.named] == ["x", "y"]


def test_nothing_is_known_at_first() -> None:
    offered = [stream("x", uuid="1"), stream("y", uuid="2")]
    assert list(match_streams([], offered).named) == offered


def test_two_new_ones_under_the_id_of_another_have_ids_of_their_own() -> None:
    assert unused_id(stream("x", uuid="1"), {"x"}) == "1"
    assert unused_id(stream("x"), {"x"}) == "x-2"
    assert unused_id(stream("x"), {"x", "x-2"}) == "x-3"


@pytest.mark.parametrize(
    ("stored", "stated", "common", "agrees"),
    [
        (10, 10, 5, True),
        (10, 10, 4, False),
        (100, 4, 2, True),
        (4, 100, 1, False),
        (0, 9, 0, False),
    ],
)
def test_half_of_the_smaller_side_must_agree(
    stored: int, stated: int, common: int, *, agrees: bool
) -> None:
    assert StreamCandidate("x", stored, stated, common).agrees is agrees


def test_a20_the_stream_that_agrees_most_is_taken() -> None:
    candidates = [StreamCandidate("east", 10, 10, 5), StreamCandidate("west", 10, 10, 9)]
    assert choose_place(candidates, only=False) == "west"
    assert choose_place([StreamCandidate("east", 10, 10, 4)], only=True) is None


def test_an_empty_side_agrees_only_where_no_other_stream_can_be_meant() -> None:
    assert choose_place([StreamCandidate("x", 0, 9, 0)], only=True) == "x"
    assert choose_place([StreamCandidate("x", 9, 0, 0)], only=True) == "x"
    assert choose_place([StreamCandidate("x", 9, 0, 0)], only=False) is None
    two = [StreamCandidate("x", 0, 9, 0), StreamCandidate("y", 0, 9, 0)]
    assert choose_place(two, only=True) is None
    # An id decides where nothing is stored: of two empty streams of alarms, for example.
    assert choose_place(two, only=False, id_="y") == "y"
    assert choose_place([StreamCandidate("y", 9, 0, 0)], only=False, id_="y") is None
