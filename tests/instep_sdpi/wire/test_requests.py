"""What is sent, read with ElementTree, and beside what another consumer has sent."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest
from lxml import etree

from instep_sdpi.wire import requests
from instep_sdpi.wire.eventing import read_granted, read_subscribed
from instep_soap import WSA_2005, EndpointReference, XmlError, read_envelope, read_reference
from tests.instep_sdpi.capture_kit import captured, needs_captures
from tests.instep_sdpi.sdpi_kit import envelope

WSA = "{http://www.w3.org/2005/08/addressing}"
WSE = "{http://schemas.xmlsoap.org/ws/2004/08/eventing}"
SOAP = "{http://www.w3.org/2003/05/soap-envelope}"
TO = EndpointReference(WSA_2005, "http://127.0.0.1:1/StateEvent")
US = EndpointReference(WSA_2005, "http://127.0.0.1:2/notify")
ID = "urn:uuid:dfde87dc-57a6-4675-9934-978f470cf73f"


def shape(element: ET.Element) -> Iterator[tuple[str, str]]:
    """The names of the elements, with where they are."""
    for child in element:
        yield element.tag, child.tag
        yield from shape(child)


@needs_captures
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("transfer_get_request", requests.get_metadata(TO, ID)),
        ("getmdib_request", requests.get_mdib(TO, ID)),
        ("getstatus_request", requests.get_status(TO, ID)),
        ("16_renew_request", requests.renew(TO, ID, 10.0)),
        ("unsubscribe_request", requests.unsubscribe(TO, ID)),
    ],
)
def test_a_request_has_the_shape_of_one_that_was_answered(
    name: str, written: tuple[str, bytes]
) -> None:
    (sent,) = captured(name)
    root = sent.headers[0].getroottree().getroot()
    action, raw = written
    found = ET.fromstring(raw)
    theirs = ET.fromstring(etree.tostring(root))
    assert set(shape(theirs)) == set(shape(found))
    header, theirs_header = found.find(f"{SOAP}Header"), theirs.find(f"{SOAP}Header")
    assert header is not None
    assert theirs_header is not None
    assert header.findtext(f"{WSA}Action") == theirs_header.findtext(f"{WSA}Action") == action
    assert header.findtext(f"{WSA}MessageID") == ID
    assert header.findtext(f"{WSA}To") == TO.address


def test_a_subscription_names_what_it_wants_and_where() -> None:
    action, raw = requests.subscribe(
        TO, ID, notify_to=US, end_to=US, actions=["urn:a", "urn:b"], expires_s=90.5
    )
    assert action.endswith("/eventing/Subscribe")
    wanted = ET.fromstring(raw).find(f"{SOAP}Body/{WSE}Subscribe")
    assert wanted is not None
    assert wanted.findtext(f"{WSE}Filter") == "urn:a urn:b"
    assert wanted.findtext(f"{WSE}Expires") == "PT90.5S"
    delivery = wanted.find(f"{WSE}Delivery")
    assert delivery is not None
    assert delivery.get("Mode", "").endswith("/DeliveryModes/Push")
    assert delivery.findtext(f"{WSE}NotifyTo/{WSA}Address") == US.address
    assert wanted.findtext(f"{WSE}EndTo/{WSA}Address") == US.address


def test_the_parameters_of_a_manager_go_back_to_it() -> None:
    stated = etree.fromstring(
        '<m xmlns:a="http://www.w3.org/2005/08/addressing" xmlns:x="urn:x"><a:Address>http://127.0'
        ".0.1:1/</a:Address><a:ReferenceParameters><x:Id>sub-7</x:Id></a:ReferenceParameters></m>"
    )
    _, raw = requests.get_status(read_reference(stated), ID)
    block = ET.fromstring(raw).find(f"{SOAP}Header/{{urn:x}}Id")
    assert block is not None
    assert block.text == "sub-7"
    assert block.get(f"{WSA}IsReferenceParameter") == "true"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT11.8S", 11.8),
        ("", float("inf")),
        ("1970-01-01T00:01:30Z", 30.0),
        ("1970-01-01T00:00:01", 0.0),
    ],
)
def test_how_long_a_subscription_lasts(text: str, seconds: float) -> None:
    expires = f"<wse:Expires>{text}</wse:Expires>" if text else ""
    answer = read_envelope(envelope(f"<wse:RenewResponse>{expires}</wse:RenewResponse>"))
    assert read_granted(answer, "RenewResponse", 60.0) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["soon", "-PT5S", "PT", "1e9"])
def test_an_end_that_cannot_be_read_is_refused(text: str) -> None:
    body = f"<wse:RenewResponse><wse:Expires>{text}</wse:Expires></wse:RenewResponse>"
    with pytest.raises(XmlError, match="Expires"):
        read_granted(read_envelope(envelope(body)), "RenewResponse", 0.0)


@pytest.mark.parametrize("body", ["", "<wse:SubscribeResponse/>", "<wse:RenewResponse/>"])
def test_another_response_is_no_subscription(body: str) -> None:
    with pytest.raises(XmlError):
        read_subscribed(read_envelope(envelope(body)), 0.0)


def test_a_subscription_manager_without_an_address_is_none() -> None:
    body = (
        "<wse:SubscribeResponse><wse:SubscriptionManager><wsa:Address/></wse:SubscriptionManager>"
        "<wse:Expires>PT1H</wse:Expires></wse:SubscribeResponse>"
    )
    with pytest.raises(XmlError, match="no address"):
        read_subscribed(read_envelope(envelope(body)), 0.0)


def test_a_subscription_manager_with_too_long_an_address_is_an_answer_that_cannot_be_read() -> None:
    address = f"<wsa:Address>http://a/{'x' * 3_000}</wsa:Address>"
    body = (
        f"<wse:SubscribeResponse><wse:SubscriptionManager>{address}</wse:SubscriptionManager>"
        "<wse:Expires>PT1H</wse:Expires></wse:SubscribeResponse>"
    )
    with pytest.raises(XmlError):
        read_subscribed(read_envelope(envelope(body)), 0.0)
