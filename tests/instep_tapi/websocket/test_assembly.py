"""Messages are assembled whole from frames, or the peer's violation is reported."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.websocket.assembly import (
    BrokenMessage,
    MessageAssembler,
    MessageTooBig,
    offered_extensions,
)

LIMIT_BYTES = 1_000


def deflated(*assembler: bytes) -> list[bytes]:
    """As a server sends them that keeps its window from one message to the next (RFC 7692)."""
    pack = zlib.compressobj(wbits=-15)
    return [
        (pack.compress(one) + pack.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")
        for one in assembler
    ]


@given(parts=st.lists(st.binary(max_size=20), min_size=1, max_size=6))
def test_fragments_are_joined(parts: list[bytes]) -> None:
    assembler = MessageAssembler(LIMIT_BYTES)
    for _ in range(2):
        found = [
            assembler.add(part, first=n == 0, last=n == len(parts) - 1, deflated=False)
            for n, part in enumerate(parts)
        ]
        assert found == [None] * (len(parts) - 1) + [b"".join(parts)]


@pytest.mark.parametrize("parameters", ["", "; client_max_window_bits=12"])
def test_messages_are_inflated_with_the_window_of_those_before(parameters: str) -> None:
    assembler = MessageAssembler(LIMIT_BYTES, f"permessage-deflate{parameters}")
    messages = [b"the same again " * 9] * 3
    packed = deflated(*messages)
    assert len(packed[1]) < len(packed[0])
    assert [assembler.add(one, first=True, last=True, deflated=True) for one in packed] == messages


def test_a_compressed_message_may_come_in_fragments() -> None:
    assembler = MessageAssembler(LIMIT_BYTES, "permessage-deflate")
    [packed] = deflated(b"0123456789" * 20)
    assert assembler.add(packed[:5], first=True, last=False, deflated=True) is None
    whole = assembler.add(packed[5:], first=False, last=True, deflated=False)
    assert whole == b"0123456789" * 20


def test_what_is_over_the_limit_is_refused() -> None:
    [bomb] = deflated(bytes(LIMIT_BYTES + 1))
    with pytest.raises(MessageTooBig):
        MessageAssembler(LIMIT_BYTES, "permessage-deflate").add(
            bomb, first=True, last=True, deflated=True
        )
    assembler = MessageAssembler(LIMIT_BYTES)
    assembler.add(bytes(LIMIT_BYTES), first=True, last=False, deflated=False)
    with pytest.raises(MessageTooBig):
        assembler.add(b"x", first=False, last=False, deflated=False)


@pytest.mark.parametrize(
    ("chosen", "frames"),
    [
        ("", [(b"", False, True, False)]),
        ("", [(b"", True, False, False), (b"", True, True, False)]),
        ("", [(b"\0", True, True, True)]),
        ("permessage-deflate", [(b"\xff\xff", True, True, True)]),
    ],
)
def test_a_frame_that_cannot_be_is_refused(
    chosen: str, frames: list[tuple[bytes, bool, bool, bool]]
) -> None:
    assembler = MessageAssembler(LIMIT_BYTES, chosen)
    for payload, first, last, compressed in frames[:-1]:
        assembler.add(payload, first=first, last=last, deflated=compressed)
    payload, first, last, compressed = frames[-1]
    with pytest.raises(BrokenMessage):
        assembler.add(payload, first=first, last=last, deflated=compressed)


@pytest.mark.parametrize(
    "chosen",
    ["x-other", "permessage-deflate, permessage-deflate", "permessage-deflate; odd=1", ";;"],
)
def test_an_extension_that_was_not_offered_is_refused(chosen: str) -> None:
    assert offered_extensions().startswith("permessage-deflate")
    with pytest.raises(BrokenMessage, match="extension"):
        MessageAssembler(LIMIT_BYTES, chosen)
