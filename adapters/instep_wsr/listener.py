"""The WS-Reliability end of a consumer: listens, and answers as a Receiving RMP."""

from __future__ import annotations

import asyncio

from instep.errors import SourceError
from instep.ports.listener import Intake
from instep.runtime.retry import Environment
from instep.sequencing.effects import ReportFault, SequenceEffect
from instep.sequencing.settings import SequencerSettings
from instep_soap import SoapEndpoint
from instep_wsr.callbacks import Callbacks
from instep_wsr.groups import GroupAttributes, group_settings, peer_of, reply_of_fault
from instep_wsr.known_groups import KnownGroups
from instep_wsr.options import Options
from instep_wsr.receiver import ReceivingRmp

__all__ = ["WsrListener"]


class WsrListener:
    """Listens for groups of messages; `instep.ports.listener.Listener`. Raises
    `ConfigurationError`.

    Args:
        options: See `read_options`.
        where: The place of the options in the configuration, for errors.
        fast_path: Whether the usual messages take a shorter way; the responses are the same.
    """

    kind = "wsr"
    opens_implicitly = False
    """The first message of a group opens it, with what it states (S9)."""

    def __init__(
        self,
        options: Options,
        where: str = "wsr",
        environment: Environment | None = None,
        *,
        fast_path: bool = True,
    ) -> None:
        self._fast_path = fast_path
        self._options = options
        self._environment = environment or Environment()
        self._settings = group_settings(GroupAttributes(), options)
        self._server_tls = options.server_tls(where)
        self._client_tls = options.client_tls(where)
        self._endpoint: SoapEndpoint | None = None
        self._groups: KnownGroups | None = None
        self._callbacks: Callbacks | None = None

    def __repr__(self) -> str:
        return f"<WsrListener {self.address or self._options.listen}>"

    @property
    def address(self) -> str:
        """The URL that it listens on, with the real port; empty while it does not listen."""
        return self._endpoint.address if self._endpoint is not None else ""

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - each has its own
        return self._settings

    def peer_of(self, scope: str) -> str:
        """Who sends in a group, as its identifier states it."""
        return peer_of(scope)

    async def serve(self, intake: Intake) -> None:
        endpoints = self._options.allowed_endpoints(self._client_tls)
        callbacks = self._callbacks = Callbacks(endpoints)
        groups = self._groups = KnownGroups(intake, self._options)
        receiver = ReceivingRmp(intake, groups, self._options, callbacks, now=self._environment.now)
        endpoint = self._endpoint = self._options.endpoint(
            receiver.answer,
            self._server_tls,
            addressed=False,
            submit=receiver.submit,
            fast_path=self._fast_path,
        )
        try:
            await endpoint.start()
            await asyncio.Event().wait()
        finally:
            await endpoint.stop()
            await callbacks.close()
            await endpoints.close()

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        """Report what will not be delivered to the ReplyTo of the group (S6). Any other sender
        learns it from the reply to its next message, or to its poll.
        """
        if not isinstance(effect, ReportFault):
            return
        groups, callbacks = self._groups, self._callbacks
        if groups is None or callbacks is None:
            raise SourceError("it does not listen", where=self._options.listen)
        group = await groups.attributes(scope)
        if group is None or not group.reply_to:
            return
        reply = reply_of_fault(scope, group, effect.faulted, effect.reason)
        await callbacks.send(group.reply_to, group.soap_version, [reply])

    async def close(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.stop()
