"""Bodies that stay undecoded until a batch is compacted: which ones count, and which cannot be
decoded.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from instep import Mode, Position
from instep.alignment.commit_batches import decode_chunk
from instep.alignment.machine import Alignment
from instep.model.batches import Batch
from instep.model.records import Record, RecordChunk
from instep.model.streams import StreamInfo
from instep_tapi.wire.decoder import FrameDecoder
from tests.instep_tapi.log_record_kit import APPENDED_US, log_record

# Only who looks for the state of the alarm sees that it cannot be read: no float is so large.
UNREADABLE = {
    "record-content": "CONDITION_DETECTOR",
    "event-time-stamp": "2021-04-28T14:14:20.000Z",
    "condition-detector": {"CLEAR": "1e400"},
}
STREAM = StreamInfo(id="s", origin="o", kind="tapi", one_class=True)


def stated(offset: int, key: str = "a", **changes: Any) -> dict[str, Any]:
    place = [
        {"value-name": "partition", "value": "0"},
        {"value-name": "offset", "value": str(offset)},
    ]
    return log_record(
        **{
            "token": f"t{offset}",
            "entity-key": key,
            "record-type": "RECORD_TYPE_CREATE_UPDATE",
            "full-log-record-offset-id": place,
            **changes,
        }
    )


def dumped(value: object) -> bytes:
    return json.dumps(value).encode().replace(b'"1e400"', b"1e400")


def experienced() -> FrameDecoder:
    """A decoder that has a template of `stated`, bare and in a list."""
    reader = FrameDecoder("s")
    reader.read([dumped(stated(0)), dumped([stated(0)])])
    return reader


def peeked(*frames: object, reader: FrameDecoder | None = None) -> RecordChunk:
    return (reader or experienced()).scan([dumped(frame) for frame in frames])


def tokens(records: Any) -> list[str]:
    return [record.token for record in records]


def test_a_body_is_looked_into_only_when_it_is_opened() -> None:
    chunk = peeked(stated(1, body=UNREADABLE))
    assert tokens(chunk.records) == ["t1"]
    assert not isinstance(chunk.records[0], Record)
    assert not chunk.unreadable
    assert not chunk.decode().records
    assert len(chunk.decode().unreadable) == 1


@pytest.mark.parametrize("in_list", [False, True])
def test_opened_later_is_what_is_read_at_once(in_list: bool) -> None:
    each = [
        stated(1),
        stated(2, body=UNREADABLE),
        stated(3, "b", **{"record-type": "RECORD_TYPE_TOMBSTONE", "body": None}),
        stated(4, "c", **{"record-type": "UPDATE"}),
    ]
    frames = [dumped(each)] if in_list else [dumped(one) for one in each]
    chunk = FrameDecoder("s").scan(frames)
    later, once = chunk.decode(), FrameDecoder("s").read(frames)
    assert list(later.records) == list(once.records)
    assert tokens(later.records) == ["t1", "t3", "t4"]
    assert [*chunk.unreadable, *later.unreadable] == list(once.unreadable)
    [bad] = once.unreadable
    assert (bad.raw, bad.token) == (dumped(each[1]), "t2")


def test_of_a_storm_only_what_counts_is_opened() -> None:
    chunk = peeked([stated(offset, "ab"[offset % 2]) for offset in range(10)])
    content = decode_chunk(STREAM, chunk, chunk.records, {}, latest_only=True)
    assert sorted(tokens(content.records)) == ["t8", "t9"]
    assert len(decode_chunk(STREAM, chunk, chunk.records, {}, latest_only=False).records) == 10


def test_the_statement_before_one_that_cannot_be_opened_counts() -> None:
    chunk = peeked(stated(1), [stated(2), stated(3, body=UNREADABLE), stated(4, "b")])
    content = decode_chunk(STREAM, chunk, chunk.records, {}, latest_only=True)
    assert {record.key: record.token for record in content.records} == {"a": "t2", "b": "t4"}
    [bad] = content.unreadable
    assert (bad.raw, bad.token) == (dumped(stated(3, body=UNREADABLE)), "t3")


def test_what_was_left_out_is_not_opened_with_its_frame() -> None:
    chunk = peeked([stated(1, "b"), stated(2), stated(3, body=UNREADABLE)])
    content = decode_chunk(STREAM, chunk, chunk.records[1:], {}, latest_only=True)
    assert tokens(content.records) == ["t2"]


def test_a_change_is_never_compacted_away() -> None:
    chunk = peeked(stated(1, **{"record-type": "CHANGE"}), stated(2))
    assert not chunk.whole
    assert tokens(decode_chunk(STREAM, chunk, chunk.records, {}, latest_only=True).records) == [
        "t1",
        "t2",
    ]


@pytest.mark.parametrize(
    ("info", "latest_only", "kept"),
    [
        ({"one_class": True}, True, ["t2"]),
        ({"one_class": True}, False, ["t1", "t2"]),
        ({}, True, ["t1", "t2"]),
        ({"one_class": True, "partial_updates": True}, True, ["t1", "t2"]),
        ({"one_class": True, "mode": Mode.BASELINE}, True, ["t1", "t2"]),
    ],
)
def test_a_batch_is_compacted_only_where_nobody_needs_every_statement(
    info: dict[str, Any],
    latest_only: bool,
    kept: list[str],
) -> None:
    stream = StreamInfo(id="s", origin="o", kind="tapi", **info)
    core = Alignment(stream, Position(), latest_only=latest_only)
    core.start(APPENDED_US)
    core.opened(APPENDED_US)
    batch = core.receive(peeked([stated(1), stated(2)]), APPENDED_US)
    assert isinstance(batch, Batch)
    assert tokens(batch.records) == kept
    assert (batch.position.token, batch.position.records) == ("t2", 2)


def in_a_storm() -> FrameDecoder:
    """A decoder from which few bodies were requested recently."""
    reader = FrameDecoder("s")
    chunk = peeked(*[stated(offset) for offset in range(5)], reader=reader)
    chunk.decode(chunk.records[-1:])
    return reader


def ended(kind: str, **changes: Any) -> dict[str, Any]:
    return stated(20, "a", **{"record-type": f"RECORD_TYPE_{kind}", **changes})


def compact(value: object, **changes: bytes) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    for old, new in changes.items():
        text = text.replace(old.encode(), new)
    return text


ODD_FRAMES = {
    "as the others": compact(stated(20)),
    "a longer header": compact(stated(2000)),
    "an end without body": compact(ended("TOMBSTONE", body=None)),
    "an end": compact(ended("DELETE")),
    "no body where one is due": compact(stated(20, body=None)),
    "a body that is null": compact(stated(20, body=None))[:-1] + b',"log-record-body":null}',
    "a body cut off": compact(stated(20))[:-9],
    "a body that is no JSON": compact(stated(20), NODE=b"", ODU=b'"'),
    "members after the body": compact(stated(20))[:-1] + b',"more":1}',
    "members after the record": compact(stated(20)) + b"}",
    "something else than the body": compact(stated(20)).replace(
        b"log-record-body", b"log-record-bodi"
    ),
    "the body's name within the header": compact(stated(20, more={"log-record-body": {}})),
    "the body's name as a value": compact(stated(20, more="log-record-body")),
    "another member than the header": compact(stated(20)).replace(b"header", b"headed", 1),
    "another end": compact(stated(20))[:-1] + b"]",
    "another end without body": compact(ended("TOMBSTONE", body=None))[:-1] + b"]",
    "a header cut off": compact(stated(20))[:60],
    "another class": compact(stated(20), CONDITION_DETECTOR=b"NODE"),
    "a body that is not UTF-8": compact(stated(20), ODU=b"\xff"),
}


@pytest.mark.parametrize("unusual", ODD_FRAMES.values(), ids=ODD_FRAMES)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_what_is_read_does_not_depend_on_what_was_asked_for_before(
    unusual: bytes, before: int
) -> None:
    frames = [compact(stated(offset, f"k{offset}")) for offset in range(10, 10 + before)]
    frames += [unusual, compact(stated(3000, "z"))]
    found, once = in_a_storm().read(frames), FrameDecoder("s").read(frames)
    assert list(found.records) == list(once.records)
    assert list(found.unreadable) == list(once.unreadable)
    assert found.deviations == once.deviations
