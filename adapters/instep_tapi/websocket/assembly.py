"""Puts whole messages together from WebSocket frames (RFC 6455 5.4) and inflates them (RFC 7692).

The usual frame is a whole message as it stands and never comes here.
"""

from __future__ import annotations

from typing import Final

from websockets.exceptions import InvalidHeader, NegotiationError, PayloadTooBig, ProtocolError
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory,
    PerMessageDeflate,
)
from websockets.frames import Frame, Opcode
from websockets.headers import build_extension, parse_extension

__all__ = ["BrokenMessage", "MessageAssembler", "MessageTooBig", "offered_extensions"]

_MAX_FRAGMENTS: Final = 65_536
"""Most frames of one message: empty ones have no size that could be bounded."""
_deflate = ClientPerMessageDeflateFactory(client_max_window_bits=True)


class BrokenMessage(Exception):
    """The peer breaks the protocol; the text describes how."""


class MessageTooBig(Exception):
    """A message exceeds the limit, as received or inflated."""


def offered_extensions() -> str:
    """The extension that the handshake offers: permessage-deflate."""
    return build_extension([(_deflate.name, _deflate.get_request_params())])


class MessageAssembler:
    """Assembles the messages of one connection.

    Args:
        limit_bytes: Most bytes of one message, inflated. It bounds an unfinished message as well.
        extensions: What the peer has chosen of the offer (Sec-WebSocket-Extensions).

    Raises `BrokenMessage` for an extension that was not offered.
    """

    def __init__(self, limit_bytes: int, extensions: str = "") -> None:
        self._limit_bytes = limit_bytes
        self._inflate: PerMessageDeflate | None = None
        self._unfinished: bytearray | None = None
        self._fragments = 0
        try:
            for name, parameters in parse_extension(extensions) if extensions else ():
                if name != _deflate.name or self._inflate is not None:
                    raise BrokenMessage(f"it chose an extension that was not offered: {name}")
                self._inflate = _deflate.process_response_params(parameters, [])
        except (InvalidHeader, NegotiationError) as error:
            raise BrokenMessage(f"it chose an extension badly: {error}") from None

    @property
    def unfinished_bytes(self) -> int:
        """Size of the message whose last fragment has not come yet, inflated; 0 without one."""
        return len(self._unfinished or b"")

    def add(self, payload: bytes, *, first: bool, last: bool, deflated: bool) -> bytes | None:
        """The message that this data frame completes. Raises `BrokenMessage`, `MessageTooBig`."""
        if first == (self._unfinished is not None):
            raise BrokenMessage("a frame that does not continue the message before it")
        if self._inflate is None:
            if deflated:
                raise BrokenMessage("a compressed frame, and no compression was agreed on")
        else:
            payload = self._inflated(self._inflate, payload, first, last, deflated)
        if first and last:
            return payload
        if first:
            self._unfinished = bytearray()
            self._fragments = 0
        assert self._unfinished is not None
        self._fragments += 1
        if self._fragments > _MAX_FRAGMENTS:
            raise BrokenMessage(f"a message in more than {_MAX_FRAGMENTS:,} fragments")
        self._unfinished += payload
        if len(self._unfinished) > self._limit_bytes:
            raise MessageTooBig
        if not last:
            return None
        message, self._unfinished = bytes(self._unfinished), None
        return message

    def _inflated(
        self,
        inflate: PerMessageDeflate,
        payload: bytes,
        first: bool,  # noqa: FBT001 - internal
        last: bool,  # noqa: FBT001
        deflated: bool,  # noqa: FBT001
    ) -> bytes:
        frame = Frame(Opcode.TEXT if first else Opcode.CONT, payload, fin=last, rsv1=deflated)
        try:
            return bytes(inflate.decode(frame, max_size=self._limit_bytes).data)
        except PayloadTooBig:
            raise MessageTooBig from None
        except ProtocolError as error:
            raise BrokenMessage(str(error)) from None
