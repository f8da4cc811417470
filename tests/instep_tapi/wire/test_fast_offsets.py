"""Places read all at once are what each would be read as by itself."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.wire.fast_offsets import read_offset_columns


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
