"""Envelopes over real HTTP: each refusal is a fault that its sender can read."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession
from lxml.etree import SubElement
from yarl import URL

from instep.errors import SourceError
from instep_soap import (
    SOAP11,
    SOAP12,
    WSA_2005,
    FaultCode,
    SoapFaultError,
    SoapRequest,
    SoapVersion,
    fault_of,
    new_envelope,
    post_envelope,
    read_envelope,
    xml_bytes,
)
from tests.instep_soap.soap_kit import new_client, post, serving

pytestmark = pytest.mark.asyncio


def question(version: SoapVersion) -> bytes:
    root, _, body = new_envelope(version, WSA_2005, "urn:ask", message_id="urn:m:1")
    SubElement(body, "{urn:x}ask").text = "q"
    return xml_bytes(root)


async def answer(request: SoapRequest) -> bytes:
    root, _, body = new_envelope(
        request.envelope.version,
        request.addressing.version,
        request.addressing.action + "Response",
        relates_to=request.addressing.message_id,
    )
    SubElement(body, "{urn:x}answer").text = request.peer
    return xml_bytes(root)


@pytest.mark.parametrize("version", [SOAP11, SOAP12])
async def test_a_question_is_answered_in_its_own_version(version: SoapVersion) -> None:
    async with serving(answer) as endpoint, new_client() as client:
        found = await post_envelope(client, endpoint.address, question(version), version, "urn:ask")
    assert found is not None
    assert found.version is version
    assert found.body[0].text == "127.0.0.1"


async def test_no_envelope_is_202() -> None:
    async def nothing(_: SoapRequest) -> None:
        return None

    async with serving(nothing) as endpoint, new_client() as client:
        url = endpoint.address
        assert await post_envelope(client, url, question(SOAP12), SOAP12, "urn:ask") is None


@pytest.mark.parametrize(
    ("version", "code", "status"),
    [
        (SOAP11, FaultCode.SENDER, 500),
        (SOAP12, FaultCode.SENDER, 400),
        (SOAP12, FaultCode.RECEIVER, 500),
    ],
)
async def test_a_fault_is_the_response(version: SoapVersion, code: FaultCode, status: int) -> None:
    async def refuse(_: SoapRequest) -> None:
        raise SoapFaultError(code, "no", subcode="{urn:p}Wrong", retry_after_s=3)

    async with serving(refuse) as endpoint, new_client() as client:
        with pytest.raises(SoapFaultError) as caught:
            await post_envelope(client, endpoint.address, question(version), version, "urn:ask")
        assert caught.value.subcode == "{urn:p}Wrong"
        raw = question(version)
        got, kind, _ = await post(endpoint.address, raw, version.media_type)
        assert (got, kind) == (status, f"{version.media_type}; charset=utf-8")
        assert endpoint.refused == {"Wrong": 2}


@pytest.mark.parametrize(
    ("media_type", "version"), [("text/xml", SOAP11), ("application/soap+xml", SOAP12)]
)
async def test_what_cannot_be_read_is_answered_as_the_media_type_says(
    media_type: str, version: SoapVersion
) -> None:
    async with serving(answer) as endpoint:
        status, _, body = await post(endpoint.address, b"<broken", media_type)
    read = read_envelope(body)
    fault = fault_of(read)
    assert read.version is version
    assert fault is not None
    assert fault.fault_code is FaultCode.SENDER
    assert status == (500 if version is SOAP11 else 400)


@pytest.mark.parametrize("below", [False, True])
async def test_each_path_is_answered_alike_by_the_fast_path(below: bool) -> None:
    async def at(request: SoapRequest) -> bytes:
        root, _, body = new_envelope(SOAP12, WSA_2005, "urn:at")
        SubElement(body, "{urn:x}at").text = request.path
        return xml_bytes(root)

    found: list[list[tuple[int, bytes]]] = []
    for fast_path in (True, False):
        async with (
            serving(at, below=below, fast_path=fast_path) as endpoint,
            ClientSession(headers={"Content-Type": SOAP12.media_type}) as client,
        ):
            base, answers = URL(endpoint.address), []
            for path in ("/soap", "/soap/", "/soap/a", "/soap/%61", "/soapa", "/", "/soap?q=1"):
                url = base.join(URL(path, encoded=True))
                async with client.post(url, data=question(SOAP12)) as response:
                    answers.append((response.status, await response.read()))
            found.append(answers)
    assert found[0] == found[1]
    assert [status for status, _ in found[0]].count(200) == (5 if below else 2)


async def test_an_error_of_ours_is_a_fault_of_the_receiver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: SoapRequest) -> None:
        raise ZeroDivisionError

    async with serving(fail) as endpoint, new_client() as client:
        with pytest.raises(SoapFaultError) as caught:
            await post_envelope(client, endpoint.address, question(SOAP12), SOAP12, "urn:ask")
    assert caught.value.fault_code is FaultCode.RECEIVER
    assert "ZeroDivisionError" in caplog.text


async def test_a_body_over_the_limit_is_not_read() -> None:
    async with serving(answer, max_body_bytes=1_000) as endpoint:
        status, _, _ = await post(endpoint.address, b"<" * 100_000, "text/xml")
    assert status == 413


async def test_a_response_that_is_no_envelope_is_an_error() -> None:
    async with serving(answer, max_body_bytes=10) as endpoint, new_client() as client:
        with pytest.raises(SourceError, match="413"):
            await post_envelope(client, endpoint.address, question(SOAP12), SOAP12, "urn:ask")
