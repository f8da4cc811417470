"""Headers are read liberally where the field is liberal; the rest is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.model.messages import CONTENT_BYTES
from instep_didcomm.problems import MessageRefusedError
from instep_didcomm.wire.headers import digest_of, read_headers
from instep_didcomm.wire.received_orders import GapDetector
from tests.instep_didcomm.listener_kit import plain


def read(message: dict[str, Any]) -> tuple[Any, list[str]]:
    deviations: list[str] = []
    return read_headers(message, deviations.append), deviations


def test_what_is_not_stated_has_the_meaning_of_the_specification() -> None:
    headers, deviations = read({"id": "m1", "type": "t"})
    assert (headers.thid, headers.sent_count, headers.sender_order) == ("m1", 1, 0)
    assert (headers.sender, headers.to, headers.expires_time_s) == ("", (), 0)
    assert deviations == []


def test_everything_stated_is_read() -> None:
    headers, deviations = read(
        plain(
            4,
            pthid="auction",
            sent_count=2,
            to=["did:ex:carol#key-1"],
            created_time=1_700_000_000.0,
            expires_time=1_800_000_000,
            received_orders=[{"id": "did:ex:bob", "last": 4, "gaps": [2, 3]}],
            please_ack=[""],
        )
    )
    assert headers.to == ("did:ex:carol",)
    assert headers.sender_order == 4
    assert headers.sent_count == 2
    assert headers.created_time_s == 1_700_000_000
    assert headers.expires_time_s == 1_800_000_000
    assert headers.received_orders == (GapDetector("did:ex:bob", 4, [2, 3]),)
    assert headers.please_ack
    assert headers.pthid == "auction"
    assert deviations == []


def test_headers_nested_under_custom_headers_are_found() -> None:
    headers, deviations = read(
        plain(custom_headers={"sender_order": 3, "id": "no"}, sender_order=None)
    )
    assert headers.sender_order == 3
    assert headers.id == "bid-1"
    assert deviations == ["custom-headers-nested"]


def test_an_id_as_long_as_a_uuid_is_taken_and_told() -> None:
    headers, deviations = read(plain(id="1" * 36))
    assert headers.id == "1" * 36
    assert deviations == ["id-long"]


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"id": None}, "id is missing"),
        ({"id": ""}, "id is missing"),
        ({"id": 5}, "id is no text"),
        ({"id": "a b"}, "id has blanks"),
        ({"id": "x" * 256}, "id has more than 255"),
        ({"type": None}, "type is missing"),
        ({"thid": "a\nb"}, "thid has blanks"),
        ({"from": "alice"}, "from is no DID"),
        ({"from": "did:ex:alice bob"}, "from is no DID"),
        ({"to": [1]}, "to is no list"),
        ({"sender_order": 0}, "sender_order counts from 1"),
        ({"sender_order": -1}, "sender_order is no whole number"),
        ({"sender_order": True}, "sender_order is no whole number"),
        ({"sender_order": "1"}, "sender_order is no whole number"),
        ({"sender_order": 1.5}, "sender_order is no whole number"),
        ({"sender_order": 2**63}, "sender_order is no whole number"),
        ({"sent_count": 0}, "sent_count counts from 1"),
        ({"expires_time": "soon"}, "expires_time is no whole number"),
        ({"received_orders": [{"id": "a", "last": 1, "gaps": [1] * 100_001}]}, "has more than 100"),
        ({"received_orders": {}}, "received_orders is no list"),
        ({"received_orders": [{"id": "did:ex:a"}]}, "received_orders is no list"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(headers: dict[str, Any], named: str) -> None:
    message = {**plain(), **headers}
    with pytest.raises(MessageRefusedError, match=named) as caught:
        read({name: value for name, value in message.items() if value is not None})
    assert caught.value.status == 400


def test_a_second_sending_has_the_same_digest_and_other_content_has_not() -> None:
    first = plain(2, body={"a": 1, "b": 2})
    again = {**plain(2, body={"b": 2, "a": 1}), "sent_count": 2, "please_ack": [""]}
    assert digest_of(first) == digest_of(again)
    assert digest_of(first) != digest_of(plain(2, body={"a": 1, "b": 3}))
    assert digest_of(first) != digest_of({**first, "id": "another"})


def test_other_headers_change_the_end_of_the_digest_alone() -> None:
    first, again = digest_of(plain(2)), digest_of(plain(2, lang="en"))
    assert first[:CONTENT_BYTES] == again[:CONTENT_BYTES]
    assert first != again


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["id", "type", "thid", "from", "to", "sender_order", "sent_count", "received_orders"]


@given(st.dictionaries(st.sampled_from([*NAMES, "custom_headers", "please_ack"]), JSON))
def test_nothing_but_a_refusal_comes_of_any_json(message: dict[str, Any]) -> None:
    try:
        headers, _ = read({"id": "1", "type": "t", **message})
    except MessageRefusedError:
        return
    assert headers.thid
    assert headers.sent_count >= 1
    assert digest_of(message)


SAID = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**64),
    st.sampled_from([1.0, 1.5, "", "m1", "a b", "t#1", "did:ex:a", "did:ex:a#k", "did:ex:ä", "é"]),
    st.sampled_from(["x" * 32, "x" * 33, "x" * 255, "x" * 256, "did:" + "x" * 4096]),
    st.just(["m1"]),
)
NAMED = ("id", "type", "thid", "from", "sender_order", "sent_count", "created_time", "expires_time")


@pytest.mark.hypothesis
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMED, SAID)))
def test_what_is_usual_is_read_as_everything_is(changes: dict[str, Any]) -> None:
    """The short way for nearly every message says what the long one does."""

    def outcome(message: dict[str, Any]) -> Any:
        try:
            headers, deviations = read(message)
        except MessageRefusedError as error:
            return str(error)
        return msgspec.structs.asdict(headers), deviations

    message = {**plain(), **changes}
    # A header that says nothing, and that the short way does not know.
    assert outcome(message) == outcome({**message, "pthid": None})
