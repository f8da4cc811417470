"""The WS-Reliability end of a consumer: listens, and answers as a Receiving RMP."""

from __future__ import annotations

from instep.ports.listener import Intake
from instep.sequencing.effects import ReportFault
from instep.sequencing.settings import SequencerSettings
from instep_soap import AllowedEndpoints, SoapListener
from instep_wsr.groups import GroupAttributes, group_settings, peer_of
from instep_wsr.options import Options, read_options
from instep_wsr.receiver import WsrReceiver

__all__ = ["WsrListener"]


class WsrListener(SoapListener[Options]):
    """Listens for groups of messages; see `SoapListener`. The first message of a group opens it,
    with what it states (S9).
    """

    kind = "wsr"
    read_options = staticmethod(read_options)
    addressed = False
    reported = (ReportFault,)

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - each has its own
        return group_settings(GroupAttributes(), self._options)

    def peer_of(self, scope: str) -> str:
        """Who sends in a group, as its identifier states it."""
        return peer_of(scope)

    def new_receiver(self, intake: Intake, endpoints: AllowedEndpoints) -> WsrReceiver:
        return WsrReceiver(intake, self._options, endpoints, now=self._environment.now)
