"""What is answered to one message, for any transport."""

from __future__ import annotations

import msgspec

__all__ = ["Response"]


class Response(msgspec.Struct, frozen=True):
    """Taken, or refused with the reason (RFC 9457)."""

    status: int = 202
    code: str = ""
    """Why it is refused, for machines; empty where it is not."""
    detail: str = ""
    retry_after_s: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Those of its HTTP response, beside the length."""
        headers = {"Content-Type": "application/problem+json"} if self.code else {}
        if self.retry_after_s:
            headers["Retry-After"] = str(self.retry_after_s)
        return headers

    @property
    def body(self) -> bytes:
        """Nothing flows back with a message that was taken."""
        if not self.code:
            return b""
        problem = {"title": self.code, "status": self.status, "detail": self.detail}
        return msgspec.json.encode(problem)
