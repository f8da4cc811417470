"""The WS-ReliableMessaging end of a consumer: listens, and answers as an RM destination."""

from __future__ import annotations

from instep.ports.listener import Intake
from instep.sequencing.effects import AskResend, SequenceEnded, SequenceFailed
from instep.sequencing.settings import SequencerSettings
from instep_soap import AllowedEndpoints, SoapListener
from instep_wsrm.options import Options, read_options, sequence_settings
from instep_wsrm.receiver import WsrmReceiver
from instep_wsrm.sequences import peer_of

__all__ = ["WsrmListener"]


class WsrmListener(SoapListener[Options]):
    """Listens for sequences; see `SoapListener`. A sequence is opened with CreateSequence (S9)."""

    kind = "wsrm"
    read_options = staticmethod(read_options)
    reported = (AskResend, SequenceFailed, SequenceEnded)

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - each has its own
        return sequence_settings(self._options)

    def peer_of(self, scope: str) -> str:
        """What stands for the source in the identifier: see `new_identifier`."""
        return peer_of(scope)

    def new_receiver(self, intake: Intake, endpoints: AllowedEndpoints) -> WsrmReceiver:
        return WsrmReceiver(
            intake,
            self._options,
            endpoints,
            now=self._environment.now,
            address=lambda: self.address,
        )
