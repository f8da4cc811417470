"""Divides what is posted as JSON into requests of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["joined_within"]


def joined_within(items: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Items of JSON with commas between them, in parts of about so many bytes. One item is never
    divided; without any there is no part.
    """
    part: list[bytes] = []
    size_bytes = 0
    for item in items:
        if part and size_bytes + len(item) > max_bytes:
            yield b",".join(part)
            part, size_bytes = [], 0
        part.append(item)
        size_bytes += len(item)
    if part:
        yield b",".join(part)
