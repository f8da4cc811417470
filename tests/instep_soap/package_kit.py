"""Packages as senders write them (RFC 2387), by hand."""

from __future__ import annotations

BOUNDARY = "uuid:0a-B"


def part(head: str, content: bytes, *, end: str = "\r\n") -> bytes:
    """A part, as it stands between the delimiters."""
    return head.replace("\n", end).encode() + (end * 2).encode() + content


def package(*parts: bytes, boundary: str = BOUNDARY, end: bytes = b"\r\n") -> bytes:
    """The body of a multipart message."""
    delimiter = b"--" + boundary.encode()
    lines = [end.join((delimiter, one)) for one in parts]
    return end.join([*lines, delimiter + b"--", b""])


def related(start_info: str = "text/xml", *, more: str = "", boundary: str = BOUNDARY) -> str:
    """The Content-Type of a package of XOP."""
    return (
        f'multipart/related; type="application/xop+xml"; boundary="{boundary}"; '
        f'start-info="{start_info}"{more}'
    )


def xop_root(envelope: bytes, version: str = "text/xml", name: str = "root@x") -> bytes:
    head = (
        f'Content-Type: application/xop+xml; charset=UTF-8; type="{version}"\n'
        f"Content-Transfer-Encoding: binary\nContent-ID: <{name}>"
    )
    return part(head, envelope)


def attached(name: str, content: bytes, head: str = "") -> bytes:
    named = f"Content-ID: <{name}>" if name else "X-Nothing: here"
    return part(f"Content-Type: application/octet-stream\n{named}{head}", content)
