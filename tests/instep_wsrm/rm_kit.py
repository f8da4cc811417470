"""A destination over the real store, a source, raw envelopes, and the schemas."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from lxml import etree
from lxml.etree import _Element

from instep import Handler, IntakeSettings, StoredMessage
from instep.conformance import Event, JudgingBudget
from instep.runtime.conformance import LiveConformance
from instep.runtime.receiver import Receiver
from instep.runtime.settings import ConsumerSettings
from instep_http import ClientSettings, GuardedClient
from instep_sql import SqlStore
from instep_wsrm import WsrmListener, read_options
from instep_wsrm.conformance import wsrm_rules
from instep_wsrm.testing import WsrmSource

S11 = "http://schemas.xmlsoap.org/soap/envelope/"
S12 = "http://www.w3.org/2003/05/soap-envelope"
RM_10 = "http://schemas.xmlsoap.org/ws/2005/02/rm"
RM_11 = "http://docs.oasis-open.org/ws-rx/wsrm/200702"
WSA_04 = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
WSA_05 = "http://www.w3.org/2005/08/addressing"
ANONYMOUS = f"{WSA_05}/anonymous"
NOTIFY = "urn:rmpeer/notify"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "wsrm"

# What the schemas of WS-RM need of WS-Addressing, from the text of the recommendation.
_WSA_SCHEMA = f"""
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="{WSA_05}"
    targetNamespace="{WSA_05}" elementFormDefault="qualified">
  <xs:complexType name="AttributedURIType"><xs:simpleContent><xs:extension base="xs:anyURI">
    <xs:anyAttribute namespace="##other" processContents="lax"/>
  </xs:extension></xs:simpleContent></xs:complexType>
  <xs:complexType name="Any"><xs:sequence>
    <xs:any namespace="##any" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>
  </xs:sequence></xs:complexType>
  <xs:complexType name="EndpointReferenceType"><xs:sequence>
    <xs:element name="Address" type="AttributedURIType"/>
    <xs:element name="ReferenceParameters" type="Any" minOccurs="0"/>
    <xs:element name="Metadata" type="Any" minOccurs="0"/>
    <xs:any namespace="##other" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>
  </xs:sequence></xs:complexType>
</xs:schema>
"""


def shared() -> Path:
    """The folder of the captures and schemas."""
    if not SHARED.is_dir():
        pytest.skip("the captures of WS-RM are not beside this checkout")
    return SHARED


class _Local(etree.Resolver):
    def resolve(self, system_url: Any, pubid: Any, context: Any, /) -> Any:  # type: ignore[override]
        del pubid
        if not system_url.endswith("/ws-addr.xsd"):
            return None
        return self.resolve_string(_WSA_SCHEMA, context, base_url=system_url)


@cache
def schema(namespace: str) -> etree.XMLSchema:
    """The schema of a version of WS-RM."""
    parser = etree.XMLParser()
    parser.resolvers.add(_Local())
    name = {RM_10: "wsrm-1.0-wsa15.xsd", RM_11: "wsrm-1.1.xsd"}[namespace]
    return etree.XMLSchema(etree.parse(str(shared() / "xsd" / name), parser))


def check_valid(raw: bytes) -> int:
    """Check every RM element of an envelope against its schema; returns how many there are. What
    the cancellation proposal adds is in no schema.
    """
    root = etree.fromstring(raw)
    found = 0
    for part in root:
        for element in part:
            name = etree.QName(element)
            if name.namespace in (RM_10, RM_11) and not name.localname.startswith("SequenceCancel"):
                alone = etree.fromstring(etree.tostring(element))
                schema(str(name.namespace)).assertValid(alone)
                found += 1
    return found


class Answer:
    """The response of a destination to raw bytes."""

    def __init__(self, status: int, raw: bytes) -> None:
        self.status = status
        self.raw = raw
        self.root: _Element | None = etree.fromstring(raw) if raw else None
        if raw and SHARED.is_dir():
            check_valid(raw)

    def __repr__(self) -> str:
        return f"<Answer {self.status} {self.raw.decode()}>"

    def all(self, local: str) -> list[_Element]:
        """Every element of this name, in whatever namespace."""
        return [] if self.root is None else list(self.root.iter(f"{{*}}{local}", local))

    def text(self, local: str) -> str:
        found = self.all(local)
        return (found[0].text or "") if found else ""

    def ranges(self, local: str = "SequenceAcknowledgement") -> list[tuple[int, int]] | None:
        """The ranges of an acknowledgement; None: there is none."""
        found = self.all(local)
        if not found:
            return None
        pairs = [one for one in found[0] if one.get("Lower")]
        return [(int(one.get("Lower", "")), int(one.get("Upper", ""))) for one in pairs]

    @property
    def cancelled(self) -> list[tuple[int, int]] | None:
        return self.ranges("SequenceCancelAcknowledgement")

    @property
    def final(self) -> bool:
        return bool(self.all("Final"))

    @property
    def fault(self) -> str:
        """The local name of the fault's most specific code; empty: it is no fault."""
        for local in ("FaultCode", "faultcode"):
            if self.all(local):
                return self.text(local).rpartition(":")[2]
        values = self.all("Value")
        return (values[-1].text or "").rpartition(":")[2] if values else ""


class Site:
    """A running destination, and ways to speak to it and to look at what it delivered."""

    def __init__(self, receiver: Receiver, listener: WsrmListener, store: SqlStore) -> None:
        self.receiver, self.listener, self.store = receiver, listener, store
        self.conformance: LiveConformance | None = None
        self.client = GuardedClient(
            ClientSettings(total_timeout_s=30.0), ssl.create_default_context()
        )

    @property
    def url(self) -> str:
        return self.listener.address

    def source(self, **changes: Any) -> WsrmSource:
        return WsrmSource(self.url, self.client, **changes)

    async def post(self, raw: bytes, content_type: str = "application/soap+xml") -> Answer:
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url, data=raw, headers={"Content-Type": content_type}) as answer,
        ):
            return Answer(answer.status, await answer.read())

    async def say(self, headers: str = "", body: str = "", **changes: str) -> Answer:
        return await self.post(envelope(headers, body, **changes))

    async def create(self, **changes: str) -> str:
        """Create a sequence with an anonymous AcksTo; returns its identifier."""
        answer = await self.say(body=create(**changes), **changes)
        assert answer.status == 200, answer
        return answer.text("Identifier")

    async def delivered(self, identifier: str | None = None) -> list[StoredMessage]:
        return [one async for one in self.store.reader.messages(stream=identifier)]

    async def numbers(self, identifier: str | None = None) -> list[int]:
        return [one.number for one in await self.delivered(identifier)]


def envelope(
    headers: str = "",
    body: str = "",
    *,
    soap: str = S12,
    rm: str = RM_11,
    wsa: str = WSA_05,
    action: str = NOTIFY,
    message_id: str = "urn:uuid:m",
    **_: str,
) -> bytes:
    stated = f"<a:Action>{action}</a:Action>" if action else ""
    stated += f"<a:MessageID>{message_id}</a:MessageID>" if message_id else ""
    return (
        f'<s:Envelope xmlns:s="{soap}" xmlns:a="{wsa}" xmlns:w="{rm}"><s:Header>{stated}{headers}'
        f"</s:Header><s:Body>{body}</s:Body></s:Envelope>"
    ).encode()


def create(acks_to: str = ANONYMOUS, more: str = "", **_: str) -> str:
    return (
        f"<w:CreateSequence><w:AcksTo><a:Address>{acks_to}</a:Address></w:AcksTo>{more}"
        "</w:CreateSequence>"
    )


def message(number: object) -> str:
    return f"<n:notify xmlns:n='urn:rmpeer'><index>{number}</index></n:notify>"


def sequence(identifier: str, number: object, more: str = "", *, must: str = "") -> str:
    stated = f' s:mustUnderstand="{must}"' if must else ""
    return (
        f"<w:Sequence{stated}><w:Identifier>{identifier}</w:Identifier>"
        f"<w:MessageNumber>{number}</w:MessageNumber>{more}</w:Sequence>"
    )


def about(local: str, identifier: str, more: str = "") -> str:
    """An element that names a sequence: AckRequested, SequenceCancel, CloseSequence …."""
    return f"<w:{local}><w:Identifier>{identifier}</w:Identifier>{more}</w:{local}>"


def ranges(*pairs: tuple[object, object], local: str = "MessageRange") -> str:
    return "".join(f'<w:{local} Upper="{high}" Lower="{low}"/>' for low, high in pairs)


@asynccontextmanager
async def running(
    url: str = "sqlite://",
    *,
    handler: Handler | None = None,
    intake: dict[str, Any] | None = None,
    fast_path: bool = True,
    recorder: Callable[[Event], None] | None = None,
    budget: JudgingBudget | None = None,
    **options: Any,
) -> AsyncIterator[Site]:
    """A destination on a free port of loopback."""
    given = {"listen": "http://127.0.0.1:0/rm", "acknowledgement_interval_s": 0.0, **options}
    listener = WsrmListener(read_options(given, "test"), fast_path=fast_path)
    if recorder is not None:
        listener.record(recorder)
    conformance = None
    if budget is not None:
        conformance = LiveConformance(wsrm_rules(), listener, "rm", budget)
    store = SqlStore(url)
    settings = ConsumerSettings(
        intake=IntakeSettings(poll_s=0.05, handler_retry_initial_s=0.01, **(intake or {}))
    )
    async with Receiver(
        "rm", listener, store, settings, handler=handler, conformance=conformance
    ) as receiver:
        await receiver.aligned(10)
        site = Site(receiver, listener, store)
        site.conformance = conformance
        try:
            yield site
        finally:
            await site.client.close()


async def until(done: Callable[[], Awaitable[Any]], timeout_s: float = 15.0) -> Any:
    """Poll an async question until its answer is true."""
    async with asyncio.timeout(timeout_s):
        while not (found := await done()):
            await asyncio.sleep(0.01)
        return found
