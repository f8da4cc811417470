"""Content codings: what is taken, what is refused, and how much is ever inflated."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_http.content_coding import BodyTooBigError, CorruptBodyError, coding_of, inflate
from instep_http.offload import Offload
from tests.instep_http.server_kit import answer, connected, request, serving

BODY = b"<a>" + bytes(range(256)) * 1_000 + b"</a>"


def raw_deflate(body: bytes) -> bytes:
    """RFC 1951 without the wrapping of RFC 1950, as some clients send it."""
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


async def inflated(coding: str, raw: bytes, limit_bytes: int = 1_000_000) -> bytes:
    return await inflate(coding, raw, limit_bytes, Offload())


@pytest.mark.asyncio
@pytest.mark.parametrize("body", [b"", b"x", BODY, b"y" * 999_999])
@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)],
)
async def test_each_coding_is_inflated(
    coding: str, compress: Callable[[bytes], bytes], body: bytes
) -> None:
    assert await inflated(coding, compress(body)) == body
    assert await inflated(coding, b"") == b""


@pytest.mark.asyncio
async def test_gzip_may_have_members() -> None:
    members = gzip.compress(b"a") + gzip.compress(b"") + gzip.compress(BODY) + gzip.compress(b"b")
    assert await inflated("gzip", members) == b"a" + BODY + b"b"
    many = b"".join(gzip.compress(b"%d" % number) for number in range(1_024))
    assert len(await inflated("gzip", many)) > 1_024
    with pytest.raises(CorruptBodyError):
        await inflated("gzip", many + gzip.compress(b"one too many"))


@pytest.mark.asyncio
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_what_is_cut_off_changed_or_longer_is_corrupt(coding: str) -> None:
    raw = gzip.compress(BODY) if coding == "gzip" else zlib.compress(BODY)
    changed = bytearray(raw)
    changed[-5] ^= 1  # of the checksum
    for bad in (raw[:-1], raw[: len(raw) // 2], raw[:1], bytes(changed), raw + b"x", b"no"):
        with pytest.raises(CorruptBodyError):
            await inflated(coding, bad)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 1_000, 70_000, 300_000])
async def test_a_body_of_the_limit_is_taken_and_one_byte_more_is_not(size: int) -> None:
    assert len(await inflated("gzip", gzip.compress(b" " * size), size)) == size
    with pytest.raises(BodyTooBigError):
        await inflated("gzip", gzip.compress(b" " * (size + 1)), size)


@given(st.lists(st.tuples(st.binary(max_size=50), st.integers(1, 5_000)), max_size=4))
def test_what_is_inflated_is_what_was_compressed(parts: list[tuple[bytes, int]]) -> None:
    bodies = [some * times for some, times in parts]
    raw = b"".join(map(gzip.compress, bodies))
    assert asyncio.run(inflated("gzip", raw)) == b"".join(bodies)


@pytest.mark.parametrize(
    ("fields", "coding"),
    [
        ([], ""),
        (["identity"], ""),
        ([""], ""),
        (["gzip"], "gzip"),
        (["GZip"], "gzip"),
        (["x-gzip"], "gzip"),
        (["identity, gzip"], "gzip"),
        (["identity", " deflate "], "deflate"),
        (["gzip, gzip"], None),
        (["gzip", "deflate"], None),
        (["br"], None),
        (["zstd"], None),
        (["x-deflate"], None),
        (["gzip;q=1"], None),
    ],
)
def test_the_coding_is_read(fields: list[str], coding: str | None) -> None:
    assert coding_of(fields) == coding


@pytest.mark.asyncio
async def test_a_coding_that_is_unknown_is_415_and_names_what_is_taken() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        for coding in ("br", "zstd", "gzip, gzip", "nonsense"):
            writer.write(request(b"x", f"Content-Encoding: {coding}"))
            status, headers, body = await answer(reader)
            assert (status, headers["accept-encoding"]) == (415, "gzip, deflate")
            assert b"gzip, deflate" in body
        assert server.refused == {"coding": 4}
        for coding, raw in (
            ("gzip", gzip.compress(BODY)),
            ("X-Gzip", gzip.compress(BODY)),
            ("deflate", zlib.compress(BODY)),
            ("deflate", raw_deflate(BODY)),
            ("identity", BODY),
        ):
            writer.write(request(raw, f"Content-Encoding: {coding}"))
            assert (await answer(reader))[::2] == (200, BODY)


@pytest.mark.asyncio
async def test_a_corrupt_body_is_400_and_says_no_word_of_a_library() -> None:
    for raw in (gzip.compress(BODY)[:-1], b"no gzip", gzip.compress(BODY) + b"more"):
        async with serving() as server, connected(server) as (reader, writer):
            writer.write(request(raw, "Content-Encoding: gzip"))
            status, _, body = await answer(reader)
            assert status == 400
            assert b"the body cannot be decoded" in body
