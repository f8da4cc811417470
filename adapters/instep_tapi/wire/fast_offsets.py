"""A short cut to the offsets of many records; the plain reference is
`record_header.partition_and_offset`.

It reads full-log-record-offset-id where it is spelled to the letter (TR-548 3.10) and the texts of
all records differ in the digits of the offset only. It declines another order, other members, an
escape after the offset's digits, numbers in place of texts, and more than one partition.

Processor time for each record, as the benchmark sends them, 50 at once: 0.2 µs here, 0.9 µs by the
reference. tests/instep_tapi/wire/test_fast_offsets.py holds both equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

__all__ = ["read_integers", "read_offset_columns", "split_offset_id"]


class _Partition(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    value_name: Literal["partition"]
    value: str


class _Offset(msgspec.Struct, rename="kebab", gc=False, forbid_unknown_fields=True):
    value_name: Literal["offset"]
    value: str


_offset_id = msgspec.json.Decoder(tuple[_Partition, _Offset])
_AT_ONCE = 200
"""In a longer text, Python searches in a way that prepares itself anew for each find."""
_integers = msgspec.json.Decoder(list[int])


def read_offset_columns(places: Sequence[msgspec.Raw]) -> tuple[str, list[int]] | None:
    """The partition that all of them name, and the offset of each; None where the texts differ.

    Under load they differ in the digits of the offset only. So what stands around these is taken
    from the first, and cut out of all of them in one go: to build objects for each would cost more
    than all else that is read of a header. Raises `ValueError` for what is spelled otherwise.
    """
    first = bytes(places[0])
    partition, before, digits, after = split_offset_id(first)
    numbers = _cut(places, len(first), len(before), len(digits)) or _replaced(places, before, after)
    offsets = read_integers(numbers)
    return (partition, offsets) if len(offsets) == len(places) else None


def split_offset_id(text: bytes) -> tuple[str, bytes, bytes, bytes]:
    """The partition, and what stands before the offset, its digits, and what stands after them.
    Raises `ValueError` for what is spelled otherwise.
    """
    partition, offset = _offset_id.decode(text)
    before, digits, after = text.rpartition(offset.value.encode())
    if not (before.endswith(b'"') and after.startswith(b'"')) or b"\\" in after:
        raise ValueError("these digits may be a part of an escape")
    return partition.value, before, digits, after


def read_integers(numbers: bytes | bytearray) -> list[int]:
    """The values of numbers that commas separate. Raises `ValueError` for what is no JSON."""
    return _integers.decode(b"".join((b"[", numbers, b"]")))


def _cut(places: Sequence[msgspec.Raw], length: int, begin: int, digits: int) -> bytearray | None:
    """The numbers, where all texts are as long as the first and differ in digits only: they are
    read digit by digit, as columns of a table. None otherwise.
    """
    text = bytearray().join(places)
    count = len(places)
    if len(text) != length * count:
        return None
    numbers = bytearray(b",") * (count * (digits + 1) - 1)
    for at in range(digits):
        numbers[at :: digits + 1] = text[begin + at :: length]
        text[begin + at :: length] = bytes(count)
    return numbers if text == text[:length] * count else None


def _replaced(places: Sequence[msgspec.Raw], before: bytes, after: bytes) -> bytes:
    """The numbers of texts of any length. Raises `ValueError` where another text is around one."""
    found: list[bytes] = []
    for start in range(0, len(places), _AT_ONCE):
        # No JSON value can hold the end of one list and the beginning of the next, but for in a
        # text, where the quotation marks would be escaped.
        text = b"".join(places[start : start + _AT_ONCE]).replace(after + before, b",")
        if not (text.startswith(before) and text.endswith(after)):
            raise ValueError("another text around an offset")
        found.append(text[len(before) : len(text) - len(after)])
    return b",".join(found)
