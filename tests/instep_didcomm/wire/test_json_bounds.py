"""JSON is bounded in depth and in values by numbers, wherever in an envelope it stands."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_didcomm.problems import MessageRefusedError
from instep_didcomm.wire.json_bounds import MOST_LEVELS, MOST_VALUES, check_json
from instep_didcomm.wire.pack import Packing
from tests.instep_didcomm.listener_kit import plain, post, serving, until
from tests.instep_didcomm.wire.test_unpack import ALICE, BID, BOB

DEEP = "is nested more than 64 levels deep"
DENSE = "has more than 100,000 values"


def nested(levels: int, opening: str = "[", closing: str = "]", inner: str = "") -> str:
    return opening * levels + inner + closing * levels


def refusal(raw: bytes) -> str:
    with pytest.raises(MessageRefusedError) as caught:
        check_json(raw)
    return caught.value.message


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"[":', "}]")])
def test_the_depth_has_a_bound_that_is_written_down(opening: str, closing: str) -> None:
    each = opening.replace('"["', "").count("[") + opening.count("{")
    levels = MOST_LEVELS // each
    check_json(nested(levels, opening, closing, "1").encode())
    assert DEEP in refusal(nested(levels + 1, opening, closing, "1").encode())
    assert DEEP in refusal((opening * (levels + 1)).encode())


def test_brackets_in_texts_and_side_by_side_are_no_depth() -> None:
    text = "[" * 500 + '{"\\' + "\\" * 3 + '"' * 5
    check_json(json.dumps({text: [text, [], {}] * 200}).encode())
    check_json(json.dumps([[[1]]] * 1000).encode())


def test_the_number_of_values_has_a_bound() -> None:
    check_json(b"[" + b"1," * (MOST_VALUES - 2) + b"1]")
    assert DENSE in refusal(b"[" + b"1," * MOST_VALUES + b"1]")
    assert DENSE in refusal(b"[" + b"[]," * MOST_VALUES + b"1]")
    assert DENSE in refusal(b'["' + b'","' * (2 * MOST_VALUES) + b'"]')
    # A text with many commas is one value.
    check_json(json.dumps({"csv": "a,b\n" * 500_000, "more": [[]] * 100}).encode())


@given(
    st.recursive(
        st.text(max_size=8) | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=30,
    ),
    st.integers(min_value=50, max_value=80),
)
def test_the_levels_are_counted_as_a_decoder_counts_them(value: Any, more: int) -> None:
    def levels(one: Any) -> int:
        if isinstance(one, dict):
            one = list(one.values())
        return 1 + max(map(levels, one), default=0) if isinstance(one, list) else 0

    for _ in range(more):
        value = [value]
    raw = msgspec.json.encode(value)
    if levels(value) > MOST_LEVELS:
        assert DEEP in refusal(raw)
    else:
        check_json(raw)


@given(st.binary(max_size=200), st.sampled_from([b"", b"[" * 65, b'["' * 40]))
def test_what_is_no_json_is_left_to_the_decoder(raw: bytes, before: bytes) -> None:
    try:
        check_json(before + raw)
    except MessageRefusedError:
        return
    try:
        msgspec.json.decode(before + raw)
    except msgspec.MsgspecError:
        return
    except UnicodeDecodeError:
        return


def test_a_long_one_takes_little_memory() -> None:
    worst = [
        b"[" * (4 << 20),
        b'{"a":' * (800_000),
        b'[[],"' + b"\\\\" * (2 << 20),
        b"[" * 65 + b'"a' * 390_000,
    ]
    for raw in worst:
        tracemalloc.start()
        try:
            assert refusal(raw) or True
        except pytest.fail.Exception:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 64 << 20


@pytest.mark.asyncio
async def test_each_layer_of_an_envelope_is_bounded() -> None:
    """Plain, signed, decrypted, and the headers of both kinds of envelopes."""
    good, bad = json.loads(nested(MOST_LEVELS - 2)), json.loads(nested(MOST_LEVELS - 1))
    for content, allowed in ((good, True), (bad, False)):
        message = {**BID, "body": {"deep": content}}
        packed = [
            json.dumps(message).encode(),
            ALICE.sign(message),
            await ALICE.pack(message, BOB.did, Packing.AUTHCRYPT),
            await ALICE.pack(message, BOB.did, Packing.ANONCRYPT),
            await ALICE.pack(ALICE.sign(message), BOB.did, Packing.AUTHCRYPT),
        ]
        for raw in packed:
            if allowed:
                assert (await BOB.unpacker.unpack(raw)).message == message
            else:
                with pytest.raises(MessageRefusedError, match=DEEP):
                    await BOB.unpacker.unpack(raw)
    deep = urlsafe_b64encode(nested(100).encode()).decode()
    jwe = json.loads(await ALICE.pack(BID, BOB.did, Packing.AUTHCRYPT))
    jws = json.loads(ALICE.sign(BID))
    jws["signatures"][0]["protected"] = deep
    for one in ({**jwe, "protected": deep}, jws):
        with pytest.raises(MessageRefusedError, match=DEEP):
            await BOB.unpacker.unpack(json.dumps(one).encode())
    with pytest.raises(MessageRefusedError, match="protected header"):
        await BOB.unpacker.unpack(json.dumps({**jwe, "protected": "e30=" * 20_000}).encode())


@pytest.mark.asyncio
async def test_what_is_refused_is_told_in_our_own_words() -> None:
    async with serving() as (listener, _):
        for raw, said in (
            (nested(65, '{"a":', "}", "1").encode(), DEEP),
            (b'{"id": tru}', "no JSON in UTF-8"),
            (b'{"id": "\xff"}', "no JSON in UTF-8"),
            (b"{", "no JSON in UTF-8"),
            (json.dumps({**plain(), "received_orders": [{"id": 5}]}).encode(), "gap detectors"),
        ):
            status, problem, _ = await post(listener.address, raw)
            assert status == 400
            assert said in problem["detail"]
            for word in ("byte", "Error", "expected", "Expected", "$", "character"):
                assert word not in problem["detail"]


@pytest.mark.asyncio
async def test_a_large_message_is_read_beside_the_loop_and_too_many_are_told_to_wait() -> None:
    async with serving() as (listener, intake):
        large = {**plain(1), "body": {"rows": ["x" * 40] * 20_000}}
        assert (await post(listener.address, large))[0] == 202
        assert intake.numbers("lot-7 did:ex:alice") == [1]
        listener._offload._taken = listener._offload._most
        status, problem, headers = await post(listener.address, {**large, "sender_order": 2})
        assert (status, problem["title"], headers["Retry-After"]) == (503, "busy", "1")
        # A small one is read at once.
        assert (await post(listener.address, plain(2)))[0] == 202
        assert listener.refused == {"busy": 1}
        listener._offload._taken = 0
        jobs = [post(listener.address, {**large, "sender_order": n}) for n in range(3, 9)]
        assert [answer[0] for answer in await asyncio.gather(*jobs)] == [202] * 6
        await until(lambda: len(intake.delivered) == 8)
