"""Tells which of the three forms a message has: by its content, with the media type as a check.

DIDComm Messaging 2.1, "Message Formats": plaintext (JWM), signed (JWS) and encrypted (JWE). The
content decides, since it is what is verified; a media type that says otherwise is a deviation.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from instep_didcomm.problems import MessageRefusedError, Reason

__all__ = ["MEDIA_TYPES", "Form", "form_of", "media_form", "parse_object"]


class Form(StrEnum):
    """The forms of a DIDComm message."""

    PLAIN = "plain"
    SIGNED = "signed"
    ENCRYPTED = "encrypted"


MEDIA_TYPES = {form: f"application/didcomm-{form.value}+json" for form in Form}
"""Form → the media type it is sent with."""

_FORMS = {media_type: form for form, media_type in MEDIA_TYPES.items()}
_JSON = frozenset({"", "application/json", "application/octet-stream"})
"""Said by senders that do not know better: no statement about the form."""


@lru_cache(maxsize=256)
def media_form(content_type: str) -> Form | None:
    """The form that a Content-Type states; None where it states none.

    The prefix ``application/`` may be missing. Raises `MessageRefusedError` for a media type that
    is none of DIDComm's.
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


def parse_object(raw: bytes | str) -> dict[str, Any]:
    """The JSON object of a message. Raises `MessageRefusedError`."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise MessageRefusedError(Reason.UNREADABLE, f"no JSON: {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise MessageRefusedError(Reason.UNREADABLE, "no JSON object")
    return value


def form_of(message: dict[str, Any]) -> Form:
    """The form of a message by its members. Raises `MessageRefusedError` where it is none."""
    if "ciphertext" in message:
        return Form.ENCRYPTED
    if "payload" in message and ("signatures" in message or "signature" in message):
        return Form.SIGNED
    if "id" in message or "type" in message:
        return Form.PLAIN
    raise MessageRefusedError(
        Reason.UNREADABLE, "neither plaintext (id, type) nor a JWS (payload) nor a JWE (ciphertext)"
    )
