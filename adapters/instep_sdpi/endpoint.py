"""Where a provider sends its reports: one server, with a path for each subscription."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from yarl import URL

from instep_http import ServerLimits, read_listen
from instep_http.offload import Busy
from instep_sdpi.options import Options
from instep_sdpi.session import ReportSession
from instep_sdpi.wire.report_templates import ReportTemplates
from instep_sdpi.wire.reports import NumberedReport, read_numbered_report
from instep_soap import (
    Addressing,
    Envelope,
    FaultCode,
    HeaderReading,
    SoapAnswer,
    SoapEndpoint,
    SoapFaultError,
    SoapRequest,
    XmlLimits,
)

__all__ = ["NotificationEndpoint"]

_STOP_S: Final = 2.0


class NotificationEndpoint:
    """Listens while a subscription needs it. The path of a subscription is a secret of both sides:
    whoever knows it can report. TLS with certificates of both keeps others out.

    A report comes to the path that was given out: that of `notify_to`, or, from a proxy that
    rewrites it, that of `listen`, and the name of the subscription.
    """

    def __init__(self, options: Options, tls: ssl.SSLContext | None, where: str) -> None:
        self._listen = read_listen(options.listen, f"{where}.listen")
        self._notify_to = options.notify_to
        self._sessions = _Sessions(
            self._listen, *([URL(self._notify_to)] if self._notify_to else [])
        )
        self._starting = asyncio.Lock()
        self._started = False
        self._endpoint = SoapEndpoint(
            self._listen,
            self._receive,
            ServerLimits(max_body_bytes=options.max_report_bytes, stop_timeout_s=_STOP_S),
            xml_limits=XmlLimits(max_elements=options.max_report_elements),
            tls=tls,
            below=True,
            allow_hosts=frozenset(filter(None, [URL(options.notify_to).host])),
            usual=_Reports(self._sessions),
        )

    @property
    def address(self) -> str:
        """The URL that it listens on, with the real port; empty while it does not listen."""
        return self._endpoint.address

    async def register(self, session: ReportSession) -> str:
        """Let a session receive reports; returns the address that it is sent to.

        Raises `SourceError` if nothing can be received.
        """
        async with self._starting:
            if not self._started:
                await self._endpoint.start()
                self._started = True
        name = session.feed.session
        self._sessions.by_name[name] = session
        return str(URL(self._notify_to or self._endpoint.address) / name)

    def unregister(self, session: ReportSession) -> None:
        """Let a session receive nothing any more."""
        self._sessions.by_name.pop(session.feed.session, None)

    async def stop(self) -> None:
        """Stop listening; a second call does nothing."""
        async with self._starting:
            self._started = False
            await self._endpoint.stop()

    async def _receive(self, request: SoapRequest) -> None:
        session = self._sessions.at(request)
        if session is None:
            raise SoapFaultError(FaultCode.SENDER, "no subscription has this address", status=404)
        try:
            await session.receive(request, self._endpoint.offload)
        except Busy:
            session.feed.refused_unread()
            raise SoapFaultError(
                FaultCode.RECEIVER,
                "too many large reports are being read: send it again",
                status=503,
                retry_after_s=1,
            ) from None


class _Reports:
    """The same for a report of a subscription (`UsualMessages`)."""

    def __init__(self, sessions: _Sessions) -> None:
        self._sessions = sessions

    def templates(
        self,
        read: Callable[[bytes], HeaderReading[NumberedReport] | None],
        limits: XmlLimits,
    ) -> ReportTemplates:
        return ReportTemplates(read, limits)

    def read_usual(self, envelope: Envelope, _addressing: Addressing) -> NumberedReport | None:
        return read_numbered_report(envelope)

    def submit(self, request: SoapRequest, headers: NumberedReport, answer: SoapAnswer) -> bool:
        session = self._sessions.at(request)
        if session is None:
            return False
        session.submit(headers, request, answer)
        return True


class _Sessions:
    """The sessions that can receive reports, by name, below each of these addresses."""

    def __init__(self, *bases: URL) -> None:
        self._bases = frozenset(base.raw_path.rstrip("/") for base in bases)
        self.by_name: dict[str, ReportSession] = {}

    def at(self, request: SoapRequest) -> ReportSession | None:
        """The session whose path this is, exactly; None where another sender than its provider
        uses it.
        """
        base, _, name = request.path.rpartition("/")
        session = self.by_name.get(name) if base in self._bases else None
        return session if session is not None and session.admits(request.identity) else None
