"""Reads the usual headers by their bytes: as one that was read before, with other texts.

The envelopes of a source have the same bytes up to the Body, but for a number, an identifier or a
time. The texts that vary have none of the characters that mean anything to XML, so all else that a
header says is the same, too, and only those texts are read. The document is parsed all the same:
its Body is needed, and it may be no XML.

A template is made of a header that came twice. It is kept only if a *probe* is read as it says: the
same bytes with other texts, and with an end just after the Header. So a varying text that stands in
a comment or in another element, or a Header that goes on, makes no template.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from instep_soap.addressing import Addressing
from instep_soap.envelope import Envelope
from instep_soap.names import SoapVersion
from instep_soap.varying_texts import VaryingTexts
from instep_soap.xml import XmlError, XmlLimits, read_xml, tags_known

__all__ = ["HeaderReading", "HeaderTemplates"]

H = TypeVar("H")

_BODY: Final = b"Body"
_ROOT: Final = re.compile(rb"<([A-Za-z][\w.:-]*)")
_MAX_BYTES: Final = 65_536
"""A larger envelope is parsed off the loop."""
_MAX_HEAD_BYTES: Final = 4_096
_MAX_TEMPLATES: Final = 1_024


class HeaderReading(msgspec.Struct, Generic[H], frozen=True, gc=False):
    """What the headers of an envelope say: to SOAP, and to an adapter."""

    version: SoapVersion
    addressing: Addressing
    headers: H


class _Template(msgspec.Struct, Generic[H], frozen=True):
    reading: HeaderReading[H]
    order: tuple[int, ...]
    """Of each varying text, its place among those of the header."""


class HeaderTemplates(Generic[H]):
    """The headers that were read before.

    Args:
        varying: What stands before a text that varies, ``MessageNumber>`` or `` number="``, and a
            text for the probe. Each is there once.
        vary: Returns a reading with other texts, in the order of `varying`; None: they are not as
            usual.
        read: Reads an envelope; None: it is not usual.
        limits: The bounds of an envelope.
    """

    def __init__(
        self,
        varying: Mapping[str, str],
        vary: Callable[[HeaderReading[H], Sequence[str]], HeaderReading[H] | None],
        read: Callable[[bytes], HeaderReading[H] | None],
        limits: XmlLimits,
    ) -> None:
        self._names = [name.encode() for name in varying]
        self._probes = [text.encode() for text in varying.values()]
        self._vary = vary
        self._read = read
        self._limits = limits
        self._varying = VaryingTexts(self._names)
        self._templates = OrderedDict[tuple[bytes, ...], _Template[H]]()
        self._seen = OrderedDict[int, None]()
        """Hashes of headers that came once, or made no template."""

    def __repr__(self) -> str:
        return f"<HeaderTemplates {len(self._templates)}>"

    def find(self, raw: bytes) -> tuple[HeaderReading[H], Envelope] | None:
        """Read an envelope in UTF-8 by a template; None: there is none for it, or it is not usual.
        The envelope has the Body alone.
        """
        end = raw.find(_BODY, 0, _MAX_HEAD_BYTES)
        if end < 0 or len(raw) > _MAX_BYTES:
            return None
        around, _, texts = self._varying.cut(raw, end)
        key = tuple(around)
        template = self._templates.get(key)
        if template is None:
            return None
        self._templates.move_to_end(key)
        reading = self._vary(template.reading, [texts[at].decode() for at in template.order])
        if reading is None:
            return None
        try:
            root = read_xml(raw, self._limits, known_bytes=end)
        except XmlError:
            return None
        body = root[1]
        if body.tag != reading.version.name(_BODY.decode()):
            return None
        return reading, Envelope(reading.version, [], list(body))

    def learn(self, raw: bytes, reading: HeaderReading[H]) -> None:
        """Make a template of a usual envelope and its `reading`, if it came before."""
        end = max(0, raw.find(_BODY, 0, _MAX_HEAD_BYTES))
        around, names, texts = self._varying.cut(raw, end)
        key = tuple(around)
        each_once = len(names) == len(self._names) and self._varying.are_all(raw, end, texts)
        if not each_once or not self._came_before(key):
            return
        order = tuple(names.index(name) for name in self._names)
        if self._is_right(around, reading, texts, order):
            self._templates[key] = _Template(reading, order)
            if len(self._templates) > _MAX_TEMPLATES:
                self._templates.popitem(last=False)

    def _came_before(self, key: tuple[bytes, ...]) -> bool:
        """Whether this key came once before. Of one that made no template this is asked anew."""
        hashed = hash(key)
        if self._seen.pop(hashed, hashed) is None:
            return True
        self._seen[hashed] = None
        if len(self._seen) > _MAX_TEMPLATES:
            self._seen.popitem(last=False)
        return False

    def _is_right(
        self,
        around: list[bytes],
        reading: HeaderReading[H],
        texts: list[bytes],
        order: tuple[int, ...],
    ) -> bool:
        """Whether the probe is read as the template says."""
        root = _ROOT.search(around[0])
        if root is None or any(texts[at] == self._probes[n] for n, at in enumerate(order)):
            return False
        for place, probe in zip(order, self._probes, strict=True):
            around[place] += probe
        probe = b"%b%b/></%b>" % (b"".join(around), _BODY, root[1])
        if not tags_known(probe):
            return False
        varied = self._vary(reading, [one.decode() for one in self._probes])
        return varied is not None and self._read(probe) == varied
