"""The form of a message is told by its content; the media type must be one of DIDComm's."""

from __future__ import annotations

from typing import Any

import pytest

from instep.sequencing.transitions import Refusal
from instep_didcomm.problems import MessageRefusedError, Reason, http_status
from instep_didcomm.wire.envelope import Form, form_of, media_form, parse_object


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        ("application/didcomm-plain+json", Form.PLAIN),
        ("application/didcomm-signed+json; charset=utf-8", Form.SIGNED),
        ("Application/DIDComm-Encrypted+JSON", Form.ENCRYPTED),
        ("didcomm-encrypted+json", Form.ENCRYPTED),
        ("application/json", None),
        ("", None),
    ],
)
def test_media_types(content_type: str, form: Form | None) -> None:
    assert media_form(content_type) is form


def test_another_media_type_is_refused_with_415() -> None:
    with pytest.raises(MessageRefusedError, match="text/xml") as caught:
        media_form("text/xml")
    assert caught.value.status == 415


@pytest.mark.parametrize(
    ("message", "form"),
    [
        ({"id": "1", "type": "t"}, Form.PLAIN),
        ({"payload": "", "signatures": []}, Form.SIGNED),
        ({"payload": "", "signature": ""}, Form.SIGNED),
        ({"ciphertext": "", "protected": ""}, Form.ENCRYPTED),
        ({"ciphertext": "", "id": "1", "type": "t"}, Form.ENCRYPTED),
    ],
)
def test_the_content_tells_the_form(message: dict[str, Any], form: Form) -> None:
    assert form_of(message) is form


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(MessageRefusedError) as caught:
        parse_object(raw)
    assert caught.value.reason is Reason.UNREADABLE


def test_an_object_that_is_no_message_is_refused() -> None:
    with pytest.raises(MessageRefusedError, match="neither"):
        form_of({"a": 1})


def test_each_refusal_of_a_sequence_says_whether_to_come_again() -> None:
    assert http_status(Refusal.FULL) == 503
    assert {http_status(refusal) for refusal in Refusal} == {503, 400, 410}
