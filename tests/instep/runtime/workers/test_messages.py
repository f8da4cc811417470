"""What a consumer and its worker processes tell each other."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from instep import StreamInfo
from instep.coordination.lease import LeaseState
from instep.errors import AuthenticationError, InstepError, UnreachableError
from instep.runtime.workers.messages import Assignment, ErrorData, as_frame, read_frame

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("refused", where="http://a", hint="log in"),
        UnreachableError("closed", where="http://a", retriable=False),
    ],
)
async def test_an_error_arrives_as_it_was(error: InstepError) -> None:
    carried = msgspec.msgpack.encode(ErrorData.of(error))
    again = msgspec.msgpack.decode(carried, type=ErrorData).error()
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert (again.retriable, again.stream_only) == (error.retriable, error.stream_only)


async def test_a_mistake_in_a_program_arrives_with_its_name() -> None:
    again = ErrorData.of(ZeroDivisionError("division by zero")).error()
    assert "ZeroDivisionError: division by zero" in str(again)
    assert not again.retriable


async def test_a_frame_is_read_whole_and_half_a_frame_is_the_end() -> None:
    stream = StreamInfo(id="a", origin="a/1", kind="tapi", tombstone_retention_s=float("inf"))
    assignment = Assignment(
        streams=(stream,), assigned=frozenset({"a"}), lease=LeaseState(epoch=3, nonce="n")
    )
    pipe = asyncio.StreamReader()
    pipe.feed_data(as_frame(assignment) + as_frame(b"") + as_frame(b"cut off")[:-1])
    pipe.feed_eof()
    content = await read_frame(pipe)
    assert content is not None
    assert msgspec.msgpack.decode(content, type=Assignment) == assignment
    assert await read_frame(pipe) == b""
    assert await read_frame(pipe) is None
