"""A small BICEPS provider on loopback, of its own make: aiohttp, ElementTree and text. It shares no
code with what it tries.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4
from xml.etree import ElementTree as ET

import aiohttp
from aiohttp import web

__all__ = ["FakeProvider", "FakeSubscription", "providing"]

SDC = "http://standards.ieee.org/downloads/11073/11073-20701-2018"
WSE = "{http://schemas.xmlsoap.org/ws/2004/08/eventing}"
WSA = "{http://www.w3.org/2005/08/addressing}"
SOAP = "{http://www.w3.org/2003/05/soap-envelope}"
ENVELOPE = """<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"
 xmlns:a="http://www.w3.org/2005/08/addressing"
 xmlns:e="http://schemas.xmlsoap.org/ws/2004/08/eventing"
 xmlns:d="http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01"
 xmlns:x="http://schemas.xmlsoap.org/ws/2004/09/mex"
 xmlns:q="urn:oid:1.3.6.1.4.1.19376.1.6.2.10.1.1.1"
 xmlns:sdc="http://standards.ieee.org/downloads/11073/11073-20701-2018"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xmlns:p="http://standards.ieee.org/downloads/11073/11073-10207-2017/participant"
 xmlns:m="http://standards.ieee.org/downloads/11073/11073-10207-2017/message">
<s:Header>{header}</s:Header><s:Body>{body}</s:Body></s:Envelope>"""
UNKNOWN = (
    "<s:Fault><s:Code><s:Value>s:Receiver</s:Value><s:Subcode><s:Value>e:InvalidMessage</s:Value>"
    "</s:Subcode></s:Code><s:Reason><s:Text xml:lang='en'>unknown Subscription identifier"
    "</s:Text></s:Reason></s:Fault>"
)


@dataclass
class FakeSubscription:
    """One subscriber, and the number of its next report."""

    notify_to: str
    end_to: str
    filter: str
    number: int = 1
    name: str = field(default_factory=lambda: uuid4().hex)
    renewed: int = 0


class FakeProvider:
    """An MDIB of metrics, by handle. Reports go out one at a time, to each subscriber."""

    def __init__(self, *, numbered: bool = True, services: int = 1) -> None:
        self.numbered = numbered
        self.services = services
        self.sequence = f"urn:uuid:{uuid4()}"
        self.version = 0
        self.metrics: dict[str, tuple[str, int]] = {"m1": ("0", 0), "m2": ("0", 0)}
        self.subscriptions: dict[str, FakeSubscription] = {}
        self.counts: Counter[str] = Counter()
        self.expires_s = 60.0
        self.failing: Counter[str] = Counter()
        """How many of the next requests of a name are answered 503."""
        self.slow_s = 0.0
        self.url = ""
        self.client: aiohttp.ClientSession | None = None

    # -- what changes ----------------------------------------------------------------------------

    def state(self, handle: str) -> str:
        value, version = self.metrics[handle]
        return (
            f'xsi:type="p:NumericMetricState" DescriptorHandle="{handle}" StateVersion="{version}">'
            f'<p:MetricValue Value="{value}"/>'
        )

    def set(self, handle: str, value: str) -> str:
        """Change a metric; returns the report of it."""
        self.version += 1
        self.metrics[handle] = (value, self.version)
        return self.report(
            "EpisodicMetricReport",
            f"<m:ReportPart><m:MetricState {self.state(handle)}</m:MetricState></m:ReportPart>",
        )

    def remove(self, handle: str) -> str:
        """Remove a metric; returns the report of it."""
        self.version += 1
        del self.metrics[handle]
        return self.report(
            "DescriptionModificationReport",
            '<m:ReportPart ModificationType="Del">'
            f'<m:Descriptor xsi:type="p:NumericMetricDescriptor" Handle="{handle}"/>'
            "</m:ReportPart>",
        )

    def create(self, handle: str, value: str) -> str:
        """Add a metric; returns the report of it."""
        self.version += 1
        self.metrics[handle] = (value, self.version)
        return self.report(
            "DescriptionModificationReport",
            '<m:ReportPart ModificationType="Crt" ParentDescriptor="ch0">'
            f'<m:Descriptor xsi:type="p:NumericMetricDescriptor" Handle="{handle}"/>'
            f"<m:State {self.state(handle)}</m:State></m:ReportPart>",
        )

    def report(self, name: str, parts: str) -> str:
        version = f'MdibVersion="{self.version}" SequenceId="{self.sequence}"'
        return f"<m:{name} {version}>{parts}</m:{name}>"

    def begin_anew(self) -> None:
        """Restart: subscriptions and versions are lost, values are not."""
        self.sequence, self.version = f"urn:uuid:{uuid4()}", 0
        self.metrics = {handle: (value, 0) for handle, (value, _) in self.metrics.items()}
        self.subscriptions.clear()

    # -- what is sent ----------------------------------------------------------------------------

    async def notify(self, body: str, *, skip: bool = False) -> list[int]:
        """Send a report to all; the answers. `skip`: a relay confirms it and loses it."""
        answers = []
        for subscription in list(self.subscriptions.values()):
            if skip:
                subscription.number += 1
                continue
            status = await self.post(subscription, body, subscription.number)
            answers.append(status)
            if 200 <= status < 300:
                subscription.number += 1
        return answers

    async def deliver(self, body: str) -> None:
        """Send a report to all, until each has confirmed it or is gone."""
        for subscription in list(self.subscriptions.values()):
            while subscription.name in self.subscriptions:
                if 200 <= await self.post(subscription, body, subscription.number) < 300:
                    subscription.number += 1
                    break
                await asyncio.sleep(0.002)

    async def post(
        self, subscription: FakeSubscription, body: str, number: int, **headers: str
    ) -> int:
        header = f"<a:MessageID>urn:uuid:{uuid4()}</a:MessageID>"
        if self.numbered:
            header += f'<q:ReportSequence MessageNumber="{number}"/>'
        return await self.send(subscription.notify_to, header, body, **headers)

    async def end(self) -> None:
        """Announce the end to all."""
        for subscription in list(self.subscriptions.values()):
            body = (
                "<e:SubscriptionEnd><e:SubscriptionManager><a:Address>http:127.0.0.1/x</a:Address>"
                "</e:SubscriptionManager><e:Status>SourceShuttingDown</e:Status>"
                "</e:SubscriptionEnd>"
            )
            await self.send(subscription.end_to, "", body)
        self.subscriptions.clear()

    async def send(self, url: str, header: str, body: str, **headers: str) -> int:
        assert self.client is not None
        raw = ENVELOPE.format(header=header, body=body).encode()
        kind = {"Content-Type": "application/soap+xml; charset=utf-8"}
        async with self.client.post(url, data=raw, headers={**kind, **headers}) as answer:
            await answer.read()
            return answer.status

    # -- what is asked ---------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.Response:
        root = ET.fromstring(await request.read())
        action = root.findtext(f"{SOAP}Header/{WSA}Action") or ""
        name = action.rpartition("/")[2]
        self.counts[name] += 1
        if self.failing[name]:
            self.failing[name] -= 1
            return web.Response(status=503)
        body = await getattr(self, f"_{name.lower()}")(root, request.path)
        return web.Response(
            body=ENVELOPE.format(header="", body=body).encode(),
            content_type="application/soap+xml",
        )

    async def _get(self, _root: ET.Element, _path: str) -> str:
        types = ["StateEventService", "DescriptionEventService", "ContextService"]
        hosted = [("Get", ["GetService"])]
        hosted += [("Events", types)] if self.services == 1 else [(one, [one]) for one in types]
        return "<x:Metadata><x:MetadataSection><d:Relationship>{}{}</d:Relationship>{}".format(
            "<d:Host><a:EndpointReference><a:Address>urn:uuid:11111111-1111-1111-1111-111111111111"
            "</a:Address></a:EndpointReference></d:Host>",
            "".join(
                f"<d:Hosted><a:EndpointReference><a:Address>{self.url}/{service}</a:Address>"
                f"</a:EndpointReference><d:Types>{' '.join(f'sdc:{one}' for one in names)}"
                f"</d:Types><d:ServiceId>{service}</d:ServiceId></d:Hosted>"
                for service, names in hosted
            ),
            "</x:MetadataSection></x:Metadata>",
        )

    async def _getmdib(self, _root: ET.Element, _path: str) -> str:
        metrics = "".join(
            f'<p:Metric xsi:type="p:NumericMetricDescriptor" Handle="{handle}"/>'
            for handle in self.metrics
        )
        states = "".join(f"<p:State {self.state(handle)}</p:State>" for handle in self.metrics)
        answer = (
            f'<m:GetMdibResponse MdibVersion="{self.version}" SequenceId="{self.sequence}">'
            '<m:Mdib><p:MdDescription><p:Mds Handle="mds0"><p:Vmd Handle="vmd0">'
            f'<p:Channel Handle="ch0">{metrics}</p:Channel></p:Vmd></p:Mds></p:MdDescription>'
            f"<p:MdState>{states}</p:MdState></m:Mdib></m:GetMdibResponse>"
        )
        await asyncio.sleep(self.slow_s)
        return answer

    async def _getcontextstates(self, _root: ET.Element, _path: str) -> str:
        return (
            f'<m:GetContextStatesResponse MdibVersion="{self.version}"'
            f' SequenceId="{self.sequence}"/>'
        )

    async def _subscribe(self, root: ET.Element, _path: str) -> str:
        wanted = root.find(f"{SOAP}Body/{WSE}Subscribe")
        assert wanted is not None
        subscription = FakeSubscription(
            wanted.findtext(f"{WSE}Delivery/{WSE}NotifyTo/{WSA}Address") or "",
            wanted.findtext(f"{WSE}EndTo/{WSA}Address") or "",
            wanted.findtext(f"{WSE}Filter") or "",
        )
        self.subscriptions[subscription.name] = subscription
        return (
            f"<e:SubscribeResponse><e:SubscriptionManager><a:Address>{self.url}/manager/"
            f"{subscription.name}</a:Address></e:SubscriptionManager>"
            f"<e:Expires>PT{self.expires_s}S</e:Expires></e:SubscribeResponse>"
        )

    async def _renew(self, _root: ET.Element, path: str) -> str:
        subscription = self.subscriptions.get(path.rpartition("/")[2])
        if subscription is None:
            return UNKNOWN
        subscription.renewed += 1
        return f"<e:RenewResponse><e:Expires>PT{self.expires_s}S</e:Expires></e:RenewResponse>"

    async def _getstatus(self, _root: ET.Element, path: str) -> str:
        if path.rpartition("/")[2] not in self.subscriptions:
            return UNKNOWN
        return "<e:GetStatusResponse><e:Expires>PT3.5S</e:Expires></e:GetStatusResponse>"

    async def _unsubscribe(self, _root: ET.Element, path: str) -> str:
        return "" if self.subscriptions.pop(path.rpartition("/")[2], None) else UNKNOWN


@asynccontextmanager
async def providing(*, numbered: bool = True, services: int = 1) -> AsyncIterator[FakeProvider]:
    """A provider on a free port."""
    provider = FakeProvider(numbered=numbered, services=services)
    runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    runner.app.router.add_post("/{path:.*}", provider.answer)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}/device"
        async with aiohttp.ClientSession() as provider.client:
            yield provider
    finally:
        await runner.cleanup()
