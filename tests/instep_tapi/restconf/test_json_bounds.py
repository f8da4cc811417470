"""Answers are decoded whole, or refused where they would take too much."""

from __future__ import annotations

import gc
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.restconf import json_bounds
from instep_tapi.restconf.json_bounds import decode_bounded, decode_members
from instep_tapi.wire.stream_context import MEMBERS

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


@given(value=_VALUES, indent=st.sampled_from([None, 1]), slice_bytes=st.integers(0, 50))
def test_in_slices_the_value_is_the_same(
    value: object, indent: int | None, slice_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bounds, "_SLICE_BYTES", max(1, slice_bytes))
        assert decode_bounded(json.dumps(value, indent=indent).encode()) == value


@pytest.mark.asyncio
async def test_no_piece_of_a_large_answer_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a piece is decoded no other thread runs, and no Pong is sent."""
    pieces: list[int] = []

    class Recording:
        def decode(self, view: memoryview) -> Any:
            pieces.append(view.nbytes)
            return msgspec.json.decode(view)

    node = {"uuid": "u" * 36, "owned-node-edge-point": [{"uuid": "p" * 36}] * 50}
    document = {"context": {"topology": [{"node": [node] * 2_000}, {"node": [node] * 10}]}}
    body = json.dumps(document).encode()
    assert len(body) > 4 << 20
    monkeypatch.setattr(json_bounds, "_anything", Recording())
    assert await decode_members(body, {}) == document
    assert max(pieces) <= 1 << 20
    assert gc.isenabled()


@pytest.mark.asyncio
async def test_many_small_values_are_refused_before_they_are_decoded() -> None:
    body = b"[" + b"[]," * 1_600_000 + b"[]]"
    with pytest.raises(ValueError, match="more than 1,300,000 JSON values in 4,800,004 bytes"):
        await decode_members(body, {})


def test_a_large_answer_that_is_no_json_leaves_the_collector_as_it_was() -> None:
    for body in (b"[" + b"1" * (2 << 20), b"[" * (2 << 20), b'{"a":' + b" " * (2 << 20)):
        with pytest.raises(ValueError, match=r"."):
            decode_bounded(body)
        assert gc.isenabled()


def test_only_the_members_that_are_asked_for_are_decoded() -> None:
    path: dict[str, Any] = {"context": {"streams": {}}, "streams": {}}
    streams = {"tapi-streaming:streams": [{"context": 1}]}
    document = {"tapi-common:context": {"uuid": "c", **streams}, "other": 1}
    body = b" \n" + json.dumps(document).encode()
    assert decode_bounded(body, path) == {"tapi-common:context": streams}
    assert decode_bounded(json.dumps(streams).encode(), path) == streams
    for other in ([1], 1, "context", None, {"context": [1]}):
        assert decode_bounded(json.dumps(other).encode(), path) == other
    with pytest.raises(ValueError, match=r"."):
        decode_bounded(body[:-1], path)


@pytest.mark.asyncio
async def test_of_a_large_context_only_its_streams_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest is looked over once, and no object is made of it."""
    decoded: list[int] = []

    class Recording:
        def decode(self, view: memoryview) -> Any:
            decoded.append(view.nbytes)
            return msgspec.json.decode(view)

    monkeypatch.setattr(json_bounds, "_anything", Recording())
    streams = {"available-stream": [{"uuid": "u"}]}
    nodes = [{"uuid": "n" * 36}] * 50_000
    document = {"context": {"topology-context": nodes, "stream-context": streams}}
    found = await decode_members(json.dumps(document).encode(), MEMBERS)
    assert found == {"context": {"stream-context": streams}}
    assert sum(decoded) < 100
