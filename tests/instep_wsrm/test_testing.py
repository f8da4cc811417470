"""The source of the kit: it numbers, sends again, cancels, fills and ends its sequence."""

from __future__ import annotations

import pytest

from instep.errors import SourceError
from instep_soap import SOAP11, SOAP12, WSA_2004, WSA_2005, SoapFaultError, SoapVersion, WsaVersion
from instep_wsrm.testing import WsrmSource
from instep_wsrm.wire.names import RM10, RM11, RmVersion
from tests.instep_wsrm.rm_kit import running, until

pytestmark = pytest.mark.asyncio
ORDER = "urn:shop/order"


def order(number: int) -> bytes:
    return f"<order xmlns='urn:shop'>{number}</order>".encode()


@pytest.mark.parametrize("version", [RM10, RM11])
@pytest.mark.parametrize("soap", [SOAP11, SOAP12])
@pytest.mark.parametrize("wsa", [WSA_2004, WSA_2005])
async def test_the_whole_life_of_a_sequence(
    version: RmVersion, soap: SoapVersion, wsa: WsaVersion
) -> None:
    async with running() as site:
        source = site.source(version=version, soap=soap, wsa=wsa)
        await source.create(expires_s=60)
        assert source.expires == "PT60S"
        for number in (1, 2, 5):
            await source.send(order(number), ORDER, number=number)
        source.write(order(6), ORDER)  # it never arrived
        assert source.unacknowledged == [6]
        await source.resend()
        assert source.unacknowledged == []
        await source.send(order(7), ORDER, cancel=[(3, 3)], fill=[(4, 4)])
        assert list(source.acknowledged.pairs()) == [(1, 2), (4, 7)]
        assert list(source.cancelled.pairs()) == [(3, 3)]
        if version is RM10:
            await source.last_message(cancel=[(3, 3)])
            assert list(source.acknowledged.pairs()) == [(1, 2), (4, 8)]
            with pytest.raises(SoapFaultError) as caught:
                await source.send(order(9), ORDER)
            assert caught.value.subcode == version.name("LastMessageNumberExceeded")
        else:
            await source.close()
            assert source.final
            with pytest.raises(SoapFaultError) as caught:
                await source.send(order(8), ORDER)
            assert caught.value.subcode == version.name("SequenceClosed")
        await source.terminate()
        assert await site.numbers(source.identifier) == [1, 2, 5, 6, 7]


async def test_what_a_terminated_sequence_has_cancelled_is_reclaimed() -> None:
    async with running(sequence={"keep_ended_s": 0.1}) as site:
        source = site.source()
        await source.create()
        await source.cancel((1, 5), (8, 9))
        await source.terminate()
        intake = site.receiver._intake
        assert intake is not None

        async def reclaimed() -> bool:
            return await intake.state(source.identifier) is None

        await until(reclaimed)
        with pytest.raises(SoapFaultError) as caught:
            await source.ask()
        assert caught.value.subcode == RM11.name("UnknownSequence")


async def test_a_destination_that_is_away_is_an_error_that_may_be_tried_again() -> None:
    async with running() as site:
        source = WsrmSource("http://127.0.0.1:9/rm", site.client)
        with pytest.raises(SourceError) as caught:
            await source.create()
        assert caught.value.retriable
