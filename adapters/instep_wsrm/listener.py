"""The WS-ReliableMessaging end of a consumer: listens, and answers as an RM destination."""

from __future__ import annotations

from instep.errors import SourceError
from instep.ports.listener import Intake
from instep.sequencing.effects import AskResend, SequenceEffect, SequenceEnded, SequenceFailed
from instep.sequencing.settings import SequencerSettings
from instep_soap import AllowedEndpoints, SoapListener, xml_bytes
from instep_soap.envelope import fault_envelope
from instep_wsrm.acknowledger import Acknowledger
from instep_wsrm.answers import nacks_envelope
from instep_wsrm.destination import Destination
from instep_wsrm.options import Options, sequence_settings
from instep_wsrm.responder import Responder
from instep_wsrm.sequences import KnownSequences, peer_of
from instep_wsrm.wire.faults import terminated

__all__ = ["WsrmListener"]


class WsrmListener(SoapListener[Options]):
    """Listens for sequences; see `SoapListener`. A sequence is opened with CreateSequence (S9)."""

    kind = "wsrm"
    _sequences: KnownSequences | None = None
    _endpoints: AllowedEndpoints | None = None

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - each has its own
        return sequence_settings(self._options)

    def peer_of(self, scope: str) -> str:
        """What stands for the source in the identifier: see `new_identifier`."""
        return peer_of(scope)

    async def serve(self, intake: Intake) -> None:
        options = self._options
        endpoints = self._endpoints = options.allowed_endpoints(self._client_tls)
        acknowledger = Acknowledger(intake, endpoints, options.acknowledgement_interval_s)
        sequences = self._sequences = KnownSequences(intake)
        responder = Responder(endpoints)
        destination = Destination(
            intake,
            sequences,
            options,
            endpoints,
            acknowledger,
            responder,
            now=self._environment.now,
            address=lambda: self.address,
        )
        endpoint = self._new_endpoint(destination.answer, destination)
        intake.show_refusals(endpoint.server_refused)
        try:
            await endpoint.start()
            await acknowledger.run()
        finally:
            await endpoint.stop()
            await responder.close()
            await endpoints.close()

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        """Report to an AcksTo that is an address. Any other source learns it from the answer to its
        next message.
        """
        sequences, endpoints = self._sequences, self._endpoints
        if not isinstance(effect, (AskResend, SequenceFailed, SequenceEnded)):
            return
        if sequences is None or endpoints is None:
            raise SourceError("it does not listen", where=self._options.listen)
        attributes = await sequences.attributes(scope)
        if attributes is None or not attributes.acks_to:
            return
        endpoint, soap = attributes.acks_endpoint(), attributes.soap_version
        if isinstance(effect, AskResend):
            envelope, action = nacks_envelope(scope, attributes, effect.missing)
        else:
            why = f"The Sequence has been terminated: {effect.reason}."
            fault = terminated(attributes.version, scope, why)
            action = fault.action or endpoint.version.fault_action
            root = fault_envelope(fault, soap, endpoint.version, to=endpoint)
            envelope = xml_bytes(root, to=endpoint)
        await endpoints.send(endpoint, envelope, soap, action)
