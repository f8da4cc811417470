"""Sends SOAP envelopes over HTTP and reads the responses."""

from __future__ import annotations

import asyncio
from typing import Final

from yarl import URL

from instep.errors import SourceError
from instep_http import NO_REDIRECTS, Answer, GuardedClient, retry_later, shown
from instep_soap.content import read_content
from instep_soap.endpoint import content_type
from instep_soap.envelope import Envelope, fault_of, read_envelope
from instep_soap.errors import SoapFaultError
from instep_soap.names import SOAP11, SoapVersion
from instep_soap.xml import XmlLimits

__all__ = ["post_envelope", "read_answer", "send_envelope"]

_LONG_BYTES: Final = 256 * 1024
"""From this length on a response is parsed in a thread: it would hold up the loop."""


async def post_envelope(
    client: GuardedClient,
    url: URL | str,
    envelope: bytes,
    version: SoapVersion,
    action: str,
    *,
    limits: XmlLimits | None = None,
) -> Envelope | None:
    """POST an envelope; returns the envelope of the response, or None where there is none.

    See `send_envelope` and `read_answer`, also for what is raised.
    """
    answer = await send_envelope(client, url, envelope, version, action)
    return await read_answer(answer, limits)


async def send_envelope(
    client: GuardedClient, url: URL | str, envelope: bytes, version: SoapVersion, action: str
) -> Answer:
    """POST an envelope; returns the response as it came. An empty `action` states no purpose.

    Redirects are not followed: a message is sent where it was meant to go, or not at all. Raises
    `SourceError`: no response.
    """
    headers = {"Content-Type": content_type(version)}
    if version is SOAP11:
        headers["SOAPAction"] = f'"{action}"'
    elif action:
        headers["Content-Type"] += f'; action="{action}"'
    return await client.send("POST", url, headers=headers, data=envelope, redirects=NO_REDIRECTS)


async def read_answer(answer: Answer, limits: XmlLimits | None = None) -> Envelope | None:
    """The envelope of a response; None: it has none.

    Raises:
        SoapFaultError: The response is a fault.
        SourceError: It cannot be used; `retriable` says whether to try again.
    """
    found: Envelope | None = None
    if answer.body.strip():
        try:
            found = await _read(answer, limits)
        except SoapFaultError as error:
            if 200 <= answer.status < 300:
                raise SourceError(
                    f"the response is no envelope: {error.message}", where=shown(answer.url)
                ) from None
    if found is not None and (fault := fault_of(found)) is not None:
        raise fault
    if not 200 <= answer.status < 300:
        raise SourceError(
            f"the peer answers {answer.status}",
            where=shown(answer.url),
            retriable=retry_later(answer.status),
            status=answer.status,
        )
    return found


async def _read(answer: Answer, limits: XmlLimits | None) -> Envelope:
    document = read_content(answer.body, answer.headers.get("Content-Type", "")).document
    if len(document) < _LONG_BYTES:
        return read_envelope(document, limits)
    return await asyncio.to_thread(read_envelope, document, limits, apart=True)
