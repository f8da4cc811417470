"""Finds the texts that vary in bytes which are else as those before."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["VaryingTexts"]

_TEXT: Final = rb"([!#-%(-;=?-~]{1,256})(?=[\"<])"
"""Printable ASCII but space, quotes, ``&``, ``<`` and ``>``, up to what ends a text or a value."""
_text_at: Final = re.compile(_TEXT).match


class VaryingTexts:
    """The first text behind each of some names.

    Args:
        names: What stands before a text that varies, ``MessageNumber>`` or `` number="``.
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        self._names = tuple(names)
        alternatives = b"|".join(map(re.escape, self._names))
        self._find_all = re.compile(rb"(?:%b)%b" % (alternatives, _TEXT)).findall

    def cut(self, raw: bytes, end: int) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """What is around the texts, the names of those that are there, and the texts: of the bytes
        up to `end`, in their order. A name ends what is before its text.
        """
        found = []
        for name in self._names:
            at = raw.find(name, 0, end)
            text = _text_at(raw, at + len(name), end) if at >= 0 else None
            if text is not None:
                found.append((*text.span(), name))
        found.sort()
        around, names, texts, at = [], [], [], 0
        for begin, stop, name in found:
            around.append(raw[at:begin])
            names.append(name)
            texts.append(raw[begin:stop])
            at = stop
        around.append(raw[at:end])
        return around, names, texts

    def are_all(self, raw: bytes, end: int, texts: list[bytes]) -> bool:
        """Whether these are all the texts behind a name, so that each is there once at most."""
        return bool(self._find_all(raw[:end]) == texts)
