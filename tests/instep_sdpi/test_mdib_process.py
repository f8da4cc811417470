"""Large MDIBs are read in a process of their own, with the same result as in this one."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from instep_sdpi import mdib_process
from instep_sdpi.mdib_process import stated_pages
from instep_sdpi.wire.entities import Entity, MdibVersion, UnreadableEntity
from instep_sdpi.wire.mdib import MdibRequest
from instep_soap import XmlError, XmlLimits
from tests.instep_sdpi.sdpi_kit import SEQUENCE, envelope

pytestmark = pytest.mark.asyncio

FAULT = """<s12:Fault><s12:Code><s12:Value>s12:Receiver</s12:Value></s12:Code>
  <s12:Reason><s12:Text xml:lang="en">not now</s12:Text></s12:Reason></s12:Fault>"""


def mdib(metrics: int, more: str = "") -> bytes:
    described = "".join(
        f'<dom:Metric xsi:type="dom:NumericMetricDescriptor" Handle="m{n}"/>'
        for n in range(metrics)
    )
    states = "".join(
        f'<dom:State xsi:type="dom:NumericMetricState" DescriptorHandle="m{n}"/>'
        for n in range(metrics)
    )
    return envelope(
        f'<msg:GetMdibResponse MdibVersion="7" SequenceId="{SEQUENCE}"><msg:Mdib>'
        f'<dom:MdDescription><dom:Mds Handle="mds0"><dom:Vmd Handle="v0">'
        f'<dom:Channel Handle="c0">{described}</dom:Channel></dom:Vmd></dom:Mds>'
        f"</dom:MdDescription><dom:MdState>{states}{more}</dom:MdState></msg:Mdib>"
        "</msg:GetMdibResponse>"
    )


async def read(
    raw: bytes, asked: MdibRequest = MdibRequest.GET_MDIB
) -> tuple[list[Entity], list[UnreadableEntity], list[MdibVersion]]:
    entities, unreadable, versions = [], [], []
    async with aclosing(stated_pages(raw, asked, XmlLimits())) as pages:
        async for page in pages:
            entities += page.entities
            unreadable += page.unreadable
            versions.append(page.version)
    return entities, unreadable, versions


@pytest.fixture
def by_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdib_process, "_INLINE_BYTES", 0)


async def test_a_child_reads_what_the_process_itself_would(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = mdib(1_500, '<dom:State DescriptorHandle="m1"/>')
    here = await read(raw)
    monkeypatch.setattr(mdib_process, "_INLINE_BYTES", 0)
    assert await read(raw) == here
    entities, unreadable, versions = here
    assert len(entities) == 3_003
    assert [one.reason for one in unreadable] == ["State has no xsi:type"]
    assert versions == [MdibVersion(SEQUENCE, None, 7)] * 4


@pytest.mark.usefixtures("by_child")
async def test_a_page_comes_though_nothing_is_in_it() -> None:
    raw = envelope(f'<msg:GetContextStatesResponse MdibVersion="3" SequenceId="{SEQUENCE}"/>')
    found = await read(raw, MdibRequest.GET_CONTEXT_STATES)
    assert found == ([], [], [MdibVersion(SEQUENCE, None, 3)])


@pytest.mark.usefixtures("by_child")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (mdib(3)[:-20], "no XML"),
        (b"", "no envelope"),
        (envelope("<msg:Other/>"), "no GetMdibResponse"),
        (envelope(FAULT), "refuses GetMdib: not now"),
    ],
)
async def test_what_a_child_cannot_read_is_an_error_with_its_reason(raw: bytes, text: str) -> None:
    with pytest.raises(XmlError, match=text):
        await read(raw)


@pytest.mark.usefixtures("by_child")
async def test_a_child_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(XmlError, match="has ended"):
        await read(mdib(3))


@pytest.mark.usefixtures("by_child")
async def test_without_an_interpreter_to_start_it_is_done_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "")
    assert len((await read(mdib(10)))[0]) == 23
