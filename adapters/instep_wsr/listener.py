"""The WS-Reliability end of a consumer: listens, and answers as a Receiving RMP."""

from __future__ import annotations

import asyncio

from instep.errors import SourceError
from instep.ports.listener import Intake
from instep.sequencing.effects import ReportFault, SequenceEffect
from instep.sequencing.settings import SequencerSettings
from instep_soap import SoapListener
from instep_wsr.callbacks import Callbacks
from instep_wsr.groups import GroupAttributes, group_settings, peer_of, reply_of_fault
from instep_wsr.known_groups import KnownGroups
from instep_wsr.options import Options
from instep_wsr.receiver import ReceivingRmp

__all__ = ["WsrListener"]


class WsrListener(SoapListener[Options]):
    """Listens for groups of messages; see `SoapListener`. The first message of a group opens it,
    with what it states (S9).
    """

    kind = "wsr"
    _groups: KnownGroups | None = None
    _callbacks: Callbacks | None = None

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - each has its own
        return group_settings(GroupAttributes(), self._options)

    def peer_of(self, scope: str) -> str:
        """Who sends in a group, as its identifier states it."""
        return peer_of(scope)

    async def serve(self, intake: Intake) -> None:
        endpoints = self._options.allowed_endpoints(self._client_tls)
        callbacks = self._callbacks = Callbacks(endpoints)
        groups = self._groups = KnownGroups(intake, self._options)
        receiver = ReceivingRmp(intake, groups, self._options, callbacks, now=self._environment.now)
        endpoint = self._new_endpoint(receiver.answer, receiver, addressed=False)
        intake.show_refusals(endpoint.server_refused)
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
