"""Reads the number of a report from the header of its envelope (SDPi, `sdpi:ReportSequence`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from lxml.etree import _Element

from instep_sdpi.wire.names import SDPI

__all__ = ["BEYOND_COUNTING", "NumberError", "read_message_number"]

BEYOND_COUNTING: Final = 1 << 62
"""Stands for every number from here on: nobody has sent that many reports."""
_POSITIVE_INTEGER: Final = re.compile(r"[ \t\r\n]*\+?0*([1-9][0-9]*)[ \t\r\n]*", re.ASCII)
_MAX_DIGITS: Final = 18
_HEADER: Final = f"{{{SDPI}}}ReportSequence"
_QUOTED_CHARS: Final = 40


class NumberError(ValueError):
    """The header is there and states no number."""


def read_message_number(headers: Iterable[_Element]) -> int | None:
    """`ReportSequence/@MessageNumber`, an xsd:positiveInteger: ``01``, ``+5`` and `` 7 `` are
    numbers too. None: there is no such header.

    Raises `NumberError`: no number, or the header is there twice.
    """
    found = [block for block in headers if block.tag == _HEADER]
    if not found:
        return None
    if len(found) > 1:
        raise NumberError("ReportSequence is there twice")
    text = found[0].get("MessageNumber")
    if text is None:
        raise NumberError("ReportSequence has no MessageNumber")
    number = _POSITIVE_INTEGER.fullmatch(text)
    if number is None:
        raise NumberError(f"MessageNumber {text[:_QUOTED_CHARS]!r} is no positive integer")
    digits = number[1]
    return int(digits) if len(digits) <= _MAX_DIGITS else BEYOND_COUNTING
