"""Keeps the names that libxml2 remembers bounded.

libxml2 interns every name that a thread parses, and lxml never forgets them while the thread lives:
a peer that sends new names in each envelope would fill the memory. So only envelopes whose tags are
known, or few, are parsed in our own thread. Any other is parsed in a thread of its own, whose names
go with it; that takes some six times as long.

A document is in UTF-8 here. One that is parsed off the event loop is parsed in a thread of its own,
too: its elements look names up where its thread has interned them, and there must be nobody who
interns others meanwhile.

The value of an attribute is not interned unless it declares a namespace. So values are left out,
and `<SequenceNum number="17"/>` is one tag whatever its number: otherwise 20,000 messages would use
up the room.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["Vocabulary", "parse_apart"]

T = TypeVar("T")

# A tag with its attributes, and the white space after it, which is interned as well. Nothing is
# required at the end, so a match never fails, and the time is linear. Of what is malformed it takes
# more than the parser does, never less.
_TAG: Final = re.compile(rb"""<[^>"']*+(?:(?:"[^"]*+"|'[^']*+')[^>"']*+)*+>?\s*+""")
# The value of an attribute: it hides no tag, for it has no `<`. It may be text that looks like one.
_VALUE: Final = re.compile(rb"""=\s*+(?:"[^"<]*+"|'[^'<]*+')""")
# What is interned of the values: the names of namespaces. It begins with what is searched for fast.
_DECLARATION: Final = re.compile(
    rb"""xmlns(?<=\sxmlns)(?::[^\s"'<>=]*+)?\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+')"""
)
_UNUSUAL: Final = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos|#\w{1,8});)")
_MAX_TAGS: Final = 20_000
_MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_FORMS: Final = 1_000


class Vocabulary:
    """The tags that were parsed in one thread."""

    def __init__(self, max_tags: int = _MAX_TAGS, max_bytes: int = _MAX_BYTES) -> None:
        self._max_tags = max_tags
        self._left_bytes = max_bytes
        self._known: set[bytes] = set()
        self._forms: set[int] = set()
        """Documents without the values of attributes, by their hashes, whose tags are known: most
        messages of a peer differ in nothing else. No peer knows the key of the hashes.
        """

    def __repr__(self) -> str:
        return f"<Vocabulary {len(self._known)} tags>"

    def parse(self, raw: bytes, parse: Callable[[bytes], T], *, known_bytes: int = 0) -> T:
        """Call `parse` with the document, in this thread or in one of its own.

        `known_bytes`: how many of its first bytes have only tags that `learns` has learned; the
        last of them may go on.
        """
        # The last one begins at the `<` before its end.
        new = raw[raw.rfind(b"<", 0, known_bytes) :] if known_bytes else raw
        return parse(raw) if self.learns(new) else parse_apart(raw, parse)

    def learns(self, raw: bytes) -> bool:
        """Whether the tags of a document are known, or there is room for the new ones; then
        they are known from now on.
        """
        if b"&" in raw and _UNUSUAL.search(raw):
            return False
        bare = _VALUE.sub(b'=""', raw)
        declared = _DECLARATION.findall(raw)
        form = hash((bare, *declared))
        if form in self._forms:
            return True
        new = set(_TAG.findall(bare)).union(declared) - self._known
        size_bytes = sum(map(len, new))
        if len(self._known) + len(new) > self._max_tags or size_bytes > self._left_bytes:
            return False
        self._known |= new
        self._left_bytes -= size_bytes
        if len(self._forms) == _MAX_FORMS:
            self._forms.clear()
        self._forms.add(form)
        return True


def parse_apart(raw: bytes, parse: Callable[[bytes], T]) -> T:
    """Call `parse` in a thread of its own, and wait for it."""
    found: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            found.append(parse(raw))
        except Exception as error:  # noqa: BLE001 - it is raised in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="instep-xml")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]
