"""A small patient monitor, for the example that follows one: a pulse, and an alert when it is high.

It is built on the stack sdc11073 (`pip install sdc11073`) and is a process of its own, since that
stack has threads. It prints its address, and ends when its standard input ends.
"""

import logging
import os
import sys
import threading
import time
import uuid
from decimal import Decimal

from sdc11073.definitions_sdc import SdcV1Definitions  # noqa: F401 - makes the protocol known
from sdc11073.mdib import ProviderMdib
from sdc11073.provider import SdcProvider
from sdc11073.provider.providerimpl import provider_components_async_factory
from sdc11073.xml_types import pm_types
from sdc11073.xml_types.dpws_types import ThisDeviceType, ThisModelType

MDIB = b"""<?xml version="1.0" encoding="UTF-8"?>
<msg:GetMdibResponse SequenceId="urn:uuid:0c178815-bb05-42c8-9698-3d062866e345" MdibVersion="0"
 xmlns:msg="http://standards.ieee.org/downloads/11073/11073-10207-2017/message"
 xmlns:pm="http://standards.ieee.org/downloads/11073/11073-10207-2017/participant"
 xmlns:ext="http://standards.ieee.org/downloads/11073/11073-10207-2017/extension"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><msg:Mdib MdibVersion="0"
 SequenceId="urn:uuid:0c178815-bb05-42c8-9698-3d062866e345"><pm:MdDescription>
<pm:Mds Handle="mds" SafetyClassification="MedA"><pm:AlertSystem Handle="alerts"
 SelfCheckPeriod="PT5S" SafetyClassification="MedA"><pm:AlertCondition Handle="pulse-high"
 Kind="Phy" Priority="Hi" SafetyClassification="MedA"><pm:Source>pulse</pm:Source>
</pm:AlertCondition></pm:AlertSystem><pm:Vmd Handle="vmd" SafetyClassification="MedA">
<pm:Channel Handle="channel" SafetyClassification="MedA">
<pm:Metric xsi:type="pm:NumericMetricDescriptor" Handle="pulse"
 SafetyClassification="MedA" MetricCategory="Msrmt" MetricAvailability="Cont"
 Resolution="1"><pm:Unit Code="264864"/></pm:Metric></pm:Channel></pm:Vmd></pm:Mds>
</pm:MdDescription></msg:Mdib></msg:GetMdibResponse>"""


class NoDiscovery:
    """The gateway is given the address: nothing is announced in the network."""

    active_address = "127.0.0.1"

    def publish_service(self, *_: object) -> None:
        pass

    def clear_service(self, *_: object) -> None:
        pass


def main() -> None:
    logging.disable()
    mdib = ProviderMdib.from_string(MDIB)
    model = ThisModelType("Example", "", "Monitor", "1", "", "")
    device = SdcProvider(
        ws_discovery=NoDiscovery(),
        epr=uuid.uuid4(),
        this_model=model,
        this_device=ThisDeviceType("Monitor", "1", "1"),
        device_mdib_container=mdib,
        components=provider_components_async_factory(),
    )
    device.start_all(start_rtsample_loop=False)
    print(device.get_xaddrs()[0], flush=True)
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    pulse = 70
    while not ended.wait(0.2):
        pulse = 70 if pulse > 120 else pulse + 15
        with mdib.metric_state_transaction() as change:
            state = change.get_state("pulse")
            if state.MetricValue is None:
                state.mk_metric_value()
            state.MetricValue.Value = Decimal(pulse)
            state.MetricValue.Validity = pm_types.MeasurementValidity.VALID
            state.MetricValue.DeterminationTime = time.time()
            state.ActivationState = pm_types.ComponentActivation.ON
        with mdib.alert_state_transaction() as change:
            alert = change.get_state("pulse-high")
            alert.ActivationState = pm_types.AlertActivation.ON
            alert.Presence = pulse > 120
    device.stop_all()
    os._exit(0)  # threads of the stack may be left


if __name__ == "__main__":
    main()
