"""`record-authenticity-token` (TR-548 3.10): what nobody vouches for is kept, and not read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ConfigurationError
from instep.model.records import RecordChunk
from instep.model.streams import Start
from instep.ports.plugin import Verifier
from instep_tapi.deviations import DEVIATIONS
from instep_tapi.options import read_options
from instep_tapi.plugin import source as plugin
from instep_tapi.wire.authenticity import Hmac, HmacOptions
from instep_tapi.wire.decoder import FrameDecoder
from instep_tapi_provider import RecordStyle, Wrapper
from tests.instep.third_party_kit import install
from tests.instep_tapi.log_record_kit import log_record, only, read
from tests.instep_tapi.source_kit import (
    DEADLINE_S,
    NODES,
    following,
    one_stream,
    receive,
    same,
    serving,
)
from tests.instep_tapi.source_kit import only as only_stream

ENDPOINT = {"endpoints": ["http://h"]}
HMAC = Hmac(HmacOptions("s3cret"))


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def signed(record: dict[str, Any], verifier: Hmac = HMAC) -> bytes:
    token = verifier.sign(compact(record))
    header = {**record["log-record-header"], "record-authenticity-token": token}
    return compact({**record, "log-record-header": header})


def checked(*frames: Any, verifier: Verifier = HMAC) -> RecordChunk:
    return read(*frames, verifier=verifier)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_record_with_its_token_is_read(wrapped: bool) -> None:
    record = signed(log_record())
    chunk = checked(b"[%b]" % record if wrapped else record)
    assert only(chunk) == only(read(record))
    assert not chunk.deviations


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
@pytest.mark.parametrize("encoding", ["base64", "hex"])
def test_each_algorithm_and_encoding(algorithm: Any, encoding: Any) -> None:
    verifier = Hmac(HmacOptions("k", algorithm, encoding))
    assert only(checked(signed(log_record(), verifier), verifier=verifier)).token
    assert not checked(signed(log_record()), verifier=verifier).records


def test_the_token_may_stand_anywhere_and_blanks_beside_members_do_not_matter() -> None:
    record = json.loads(signed(log_record()))
    header = record["log-record-header"]
    first = {"tapi-streaming:record-authenticity-token": header.pop("record-authenticity-token")}
    body = compact(record["log-record-body"]).decode()
    text = f' {{ "log-record-header" : {{ {json.dumps(first)[1:-1]} , '
    text += " , ".join(
        f"{json.dumps(name)} : {compact(value).decode()}" for name, value in header.items()
    )
    text += f' }} , "log-record-body" : {body} }} '
    assert only(checked(text.encode())).token == header["token"]


@pytest.mark.parametrize(
    ("token", "deviation"),
    [
        (None, "authenticity-missing"),
        ("", "authenticity-failed"),
        ("AAAA", "authenticity-failed"),
        ("\u2603 no base64", "authenticity-failed"),
        (Hmac(HmacOptions("other")).sign(b"{}"), "authenticity-failed"),
        (7, "authenticity-failed"),
    ],
)
def test_what_nobody_vouches_for_is_kept_and_counted(token: Any, deviation: str) -> None:
    record = log_record(**{"record-authenticity-token": token})
    chunk = checked(record, signed(log_record(token="good")))
    assert [one.token for one in chunk.records] == ["good"]
    [unreadable] = chunk.unreadable
    assert "record-authenticity-token" in unreadable.reason
    assert json.loads(unreadable.raw) == record
    assert chunk.deviations == {deviation: 1}
    assert deviation in DEVIATIONS


@given(st.data())
def test_no_byte_can_be_changed(data: st.DataObject) -> None:
    raw = signed(log_record())
    place = data.draw(st.integers(0, len(raw) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != raw[place]))
    forged = raw[:place] + bytes([byte]) + raw[place + 1 :]
    # Blanks between members are the one thing that may change; the content is the same.
    records = checked(forged).records
    assert not records or records == read(raw).records


@pytest.mark.parametrize(
    ("authenticity", "reason"),
    [
        ({"kind": "hmac"}, "secret"),
        ({"kind": "hmac", "secret": ""}, "the secret is empty"),
        ({"kind": "hmac", "secret": "s", "algorithm": "md5"}, "algorithm"),
        ({"kind": "hmac", "secret": "s", "salt": "x"}, "salt"),
        ({"kind": "rot13"}, "no verifier of kind 'rot13'"),
        ({"secret": "s"}, "a table with a kind is needed"),
        ("hmac", "a table with a kind is needed"),
    ],
)
def test_settings_that_cannot_work_are_refused(authenticity: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as raised:
        plugin.check({**ENDPOINT, "authenticity": authenticity}, "source")
    assert "source.authenticity" in raised.value.where


def test_the_secret_is_never_shown() -> None:
    options = read_options(
        {**ENDPOINT, "authenticity": {"kind": "hmac", "secret": "s3cret"}}, "source"
    )
    assert "s3cret" not in f"{options!r} {options.authenticity} {HMAC!r} {HmacOptions('s3cret')}"


def test_a_verifier_of_another_kind_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = """
class Plugin:
    def check(self, options, where): pass
    def build(self, options, where): return self
    def verify(self, record, token): return token == "open"
plugin = Plugin()
"""
    install(tmp_path, {"sesame": module}, "[instep.verifiers]\nsesame = sesame:plugin\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    plugin.check({**ENDPOINT, "authenticity": {"kind": "sesame"}}, "source")


@pytest.mark.asyncio
async def test_a_provider_that_signs_is_followed_and_its_records_are_not_replayed_unchecked() -> (
    None
):
    style = RecordStyle(Wrapper.STREAM_RECORD, 10, sign=HMAC.sign)
    right = {"kind": "hmac", "secret": "s3cret"}
    async with serving(one_stream(style), authenticity=right) as (provider, source):
        info = await only_stream(source)
        async with source.feed(info, Start.OLDEST) as feed:
            records = await receive(feed, 2 * NODES + 1)
            assert same(records, provider.entities("network"))
            provider.delete("n1")
            assert len(await receive(feed, 1)) >= 1
        replayed = plugin.decode(signed(log_record()), info)
        assert not replayed.records
        assert "realign instead" in replayed.unreadable[0].reason
        async with following(provider, authenticity={**right, "secret": "wrong"}) as other:
            info = await only_stream(other)
            async with other.feed(info, Start.OLDEST) as feed:
                chunk = await feed.receive()
        assert not chunk.records
        assert chunk.deviations["authenticity-failed"] == len(chunk.unreadable) > 0
        assert DEADLINE_S


def test_a_reader_without_a_verifier_does_not_care() -> None:
    assert only(FrameDecoder("s").read([signed(log_record())])).token
