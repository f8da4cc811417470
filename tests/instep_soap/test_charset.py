"""Which encoding counts, in the order of RFC 7303: mark, header, declaration, UTF-8."""

from __future__ import annotations

import codecs

import pytest

from instep_soap import XmlLimits, read_xml
from instep_soap.charset import as_utf8
from instep_soap.errors import CharsetError, UnknownCharsetError

TEXT = "<o>Größe</o>"


def read(raw: bytes, charset: str = "") -> str | None:
    document = as_utf8(raw, charset)
    # Whoever reads it later has no header.
    assert as_utf8(document) == document
    return read_xml(document, XmlLimits()).text


@pytest.mark.parametrize(
    ("raw", "charset"),
    [
        (TEXT.encode(), ""),
        (TEXT.encode(), "utf-8"),
        (TEXT.encode("latin-1"), "iso-8859-1"),
        (TEXT.encode("latin-1"), "latin1"),
        (b'<?xml version="1.0"?>' + TEXT.encode("latin-1"), "iso-8859-1"),
        (b'<?xml version="1.0" encoding="ISO-8859-1"?>' + TEXT.encode("latin-1"), ""),
        # A proxy that transcodes changes the header, and cannot change the declaration.
        (b'<?xml version="1.0" encoding="ISO-8859-1"?>' + TEXT.encode(), "utf-8"),
        (b'<?xml version="1.0" encoding="UTF-8"?>' + TEXT.encode("latin-1"), "iso-8859-1"),
        (b'<?xml version="1.0" encoding="UTF-16"?>' + TEXT.encode(), "utf-8"),
        (TEXT.encode("cp1252"), "windows-1252"),
        (codecs.BOM_UTF8 + TEXT.encode(), ""),
        (codecs.BOM_UTF8 + TEXT.encode(), "iso-8859-1"),
        (codecs.BOM_UTF8 + b"\n" + TEXT.encode(), "utf-8"),
        (TEXT.encode("utf-16"), ""),
        (TEXT.encode("utf-16"), "utf-16"),
        (TEXT.encode("utf-16"), "us-ascii"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-8"),
        (TEXT.encode("utf-16-be"), "utf-16"),
        (TEXT.encode("utf-16-le"), "utf-16"),
        (TEXT.encode("utf-16-le"), "utf-16le"),
        (TEXT.encode("utf-16-le"), ""),
        (TEXT.encode("utf-16-be"), ""),
        (('<?xml version="1.0" encoding="utf-16"?>' + TEXT).encode("utf-16"), "utf-16"),
        (TEXT.encode("utf-32"), ""),
        (TEXT.encode("cp037"), "ibm037"),
        (('<?xml version="1.0" encoding="cp500"?>' + TEXT).encode("cp500"), "cp500"),
    ],
)
def test_the_text_is_what_was_meant(raw: bytes, charset: str) -> None:
    assert read(raw, charset) == "Größe"


@pytest.mark.parametrize(
    ("raw", "charset"),
    [
        (TEXT.encode("latin-1"), ""),
        (TEXT.encode("latin-1"), "utf-8"),
        (TEXT.encode(), "us-ascii"),
        (TEXT.encode("utf-16-le"), "us-ascii"),
        (TEXT.encode("utf-16-le"), "utf-8"),
        (TEXT.encode("utf-16-be"), "iso-8859-1"),
        (TEXT.encode(), "utf-16"),
        (b"<o>ascii</o>", "utf-16"),
        (b"<o>ascii</o>", "cp037"),
        (b'<?xml version="1.0" encoding="utf-16"?><o/>', ""),
        (TEXT.encode("cp037"), ""),
        (codecs.BOM_UTF8 + TEXT.encode("latin-1"), "iso-8859-1"),
        (b"\xff\xfe<o/>", "utf-8"),
    ],
)
def test_bytes_that_are_not_in_it_are_refused(raw: bytes, charset: str) -> None:
    with pytest.raises(CharsetError, match="the document is not in") as caught:
        read(raw, charset)
    assert not isinstance(caught.value, UnknownCharsetError)


@pytest.mark.parametrize("charset", ["utf-7", "x-user-defined", "rot13", "base64", "idna", "é"])
def test_what_is_no_encoding_of_text_is_not_read(charset: str) -> None:
    with pytest.raises(UnknownCharsetError, match="send UTF-8"):
        read(b"<o>+APY-</o>", charset)
    declared = f'<?xml version="1.0" encoding="{charset}"?><o>+APY-</o>'.encode()
    with pytest.raises(UnknownCharsetError):
        read(declared)
    if charset.isascii():
        assert read(declared, "utf-8") == "+APY-"


def test_nearly_all_documents_are_left_as_they_are() -> None:
    for raw in (b"<o/>", b"<?xml version='1.0' encoding='UTF-8'?>\n<o/>", TEXT.encode()):
        assert as_utf8(raw, "utf-8") is raw
        assert as_utf8(raw) is raw


def test_the_time_is_linear() -> None:
    for raw in (b" " * 2_000_000, b"<?xml " + b" encoding" * 200_000, b"<?xml" + b"?" * 2_000_000):
        as_utf8(raw + b"<o/>")
