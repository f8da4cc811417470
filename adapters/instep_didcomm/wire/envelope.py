"""Detects the form of a message by its content, and checks the media type against it.

DIDComm Messaging 2.1, "Message Formats": plaintext (JWM), signed (JWS) and encrypted (JWE). The
content decides, because it is what is verified. A media type of another form is a deviation.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.wire.json_bounds import check_json

__all__ = ["MEDIA_TYPES", "Form", "form_of", "media_form", "parse_object"]


class Form(StrEnum):
    """The forms of a DIDComm message."""

    PLAIN = "plain"
    SIGNED = "signed"
    ENCRYPTED = "encrypted"


MEDIA_TYPES = {form: f"application/didcomm-{form.value}+json" for form in Form}
"""Form → media type."""

_FORMS = {media_type: form for form, media_type in MEDIA_TYPES.items()}
_decode: Final = msgspec.json.Decoder().decode
_JSON = frozenset({"", "application/json", "application/octet-stream"})
"""The generic JSON media type, which does not state a form."""


@lru_cache(maxsize=256)
def media_form(content_type: str) -> Form | None:
    """The form that a Content-Type states; None if it states none.

    The prefix ``application/`` may be missing. Raises `MessageRefusedError` for a media type that
    is not one of DIDComm's.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _JSON:
        return None
    form = _FORMS.get(media_type) or _FORMS.get(f"application/{media_type}")
    if form is None:
        raise MessageRefusedError(
            Reason.MEDIA_TYPE, f"the media type {media_type[:80]!r} is none of DIDComm"
        )
    return form


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object of a message, within the bounds of `json_bounds`. Raises
    `MessageRefusedError`.
    """
    check_json(raw)
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise MessageRefusedError(Reason.UNREADABLE, "no JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise MessageRefusedError(Reason.UNREADABLE, "no JSON object")
    return value


def form_of(message: dict[str, Any]) -> Form:
    """The form of a message by its members. Raises `MessageRefusedError` if it has none of the
    forms.
    """
    if "ciphertext" in message:
        return Form.ENCRYPTED
    if "payload" in message and ("signatures" in message or "signature" in message):
        return Form.SIGNED
    if "id" in message or "type" in message:
        return Form.PLAIN
    raise MessageRefusedError(
        Reason.UNREADABLE, "neither plaintext (id, type) nor a JWS (payload) nor a JWE (ciphertext)"
    )
