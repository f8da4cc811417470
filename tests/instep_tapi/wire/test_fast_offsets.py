"""Places read all at once are what `partition_and_offset` reads of each."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.wire.fast_offsets import read_offset_columns
from instep_tapi.wire.record_header import NameValue, partition_and_offset
from tests.instep_tapi.wire.frames_kit import places


def place(partition: str, offset: object, **more: object) -> msgspec.Raw:
    members = [
        {"value-name": "partition", "value": partition},
        {"value-name": "offset", "value": offset, **more},
    ]
    return msgspec.Raw(json.dumps(members, separators=(",", ":")).encode())


_OFFSETS = st.lists(st.integers(0, 2**63), min_size=1) | st.lists(st.integers(10, 99), min_size=1)


@given(partition=st.text(max_size=8), offsets=_OFFSETS)
def test_alike_places(partition: str, offsets: list[int]) -> None:
    assert read_offset_columns([place(partition, str(one)) for one in offsets]) == (
        partition,
        offsets,
    )


@pytest.mark.parametrize(
    "other",
    [
        place("1", "2"),
        place("0", 2),
        place("0", "02"),
        place("0", "2,3"),
        place("2", "0"),
        place("0", "x"),
        place("0", ""),
        place("0", "2", more=1),
        place('0"},{"value-name":"offset","value":"', "2"),
        msgspec.Raw(b'[{"value-name":"offset","value":"2"}]'),
        msgspec.Raw(b"null"),
        msgspec.Raw(b"2"),
    ],
)
def test_one_that_is_spelled_otherwise_is_left_to_the_closer_look(other: msgspec.Raw) -> None:
    usual = place("0", "1")
    for some in ([usual, other], [usual, other, usual], [other, usual]):
        try:
            found = read_offset_columns(some)
        except ValueError:
            continue
        assert found is None


@given(texts=places())
def test_fast_is_as_the_reference(texts: list[bytes]) -> None:
    try:
        found = read_offset_columns([msgspec.Raw(text) for text in texts])
    except ValueError:
        return
    if found is None or min(found[1]) < 0:  # below 0, `in_order` declines
        return
    deviations: list[str] = []
    members = [msgspec.json.decode(text, type=list[NameValue]) for text in texts]
    expected = [partition_and_offset(one, deviations) for one in members]
    assert [(found[0], offset) for offset in found[1]] == expected
    assert not deviations


def test_another_partition_where_a_search_begins_anew_is_no_offset_of_this_one() -> None:
    usual = [place("0", str(offset)) for offset in range(200)]
    for other in (place("1", "200"), msgspec.Raw(bytes(place("0", "200"))[:-2] + b" ]")):
        assert _declined([*usual, other])


def test_a_member_that_counts_along_is_no_offset() -> None:
    assert _declined([place("0", "5", more="5"), place("0", "5", more="6")])


def test_an_escape_that_counts_along_is_no_offset() -> None:
    texts = [rb'[{"value-name":"partition","value":"0"},{"value":"0","value\u002dname":"offset"}]']
    texts.append(texts[0].replace(b"002d", b"012d"))
    assert _declined([msgspec.Raw(text) for text in texts])


def _declined(texts: list[msgspec.Raw]) -> bool:
    try:
        return read_offset_columns(texts) is None
    except ValueError:
        return True
