"""The revision of tapi-streaming, as a provider states it (RFC 8525, RFC 7895), decides where names
alone show the edition of a stream.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.instep_tapi.hostile_kit import Peer, hostile, source_of
from tests.instep_tapi.small_provider_kit import SmallProvider

pytestmark = pytest.mark.asyncio

RFC_8525 = "/restconf/data/ietf-yang-library:yang-library"
RFC_7895 = "/restconf/data/ietf-yang-library:modules-state"


def library(address: str, revision: str) -> dict[str, Any]:
    modules = [
        {"name": "tapi-common", "revision": "2019-01-01"},
        {"name": "tapi-streaming", "revision": revision, "conformance-type": "implement"},
    ]
    if address == RFC_8525:
        sets = [{"name": "all", "module": modules}]
        return {"ietf-yang-library:yang-library": {"module-set": sets, "content-id": "1"}}
    return {"ietf-yang-library:modules-state": {"module": modules, "module-set-id": "1"}}


class LibraryProvider(SmallProvider):
    """A provider whose streams show their edition by names alone, or by the model of one."""

    def __init__(self, address: str = "", revision: str = "", *, trigger: bool = False) -> None:
        super().__init__("NODE", storage="COMPACTED", records="CHANGE_ONLY")
        self.library = {address: library(address, revision)} if address else {}
        self.trigger = trigger
        self.asked: list[str] = []

    def streams(self, address: str) -> dict[str, Any]:
        found = super().streams(address)
        (kind,) = found["supported-stream-type"]
        kind["stream-type-content"] = ["tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE"]
        del kind["record-content"]
        if self.trigger:
            kind["record-trigger"] = "tapi-streaming:RECORD_TRIGGER_ON_CHANGE"
        return found

    async def serve(self, peer: Peer) -> None:
        if "ietf-yang-library" not in peer.target:
            await super().serve(peer)
            return
        self.asked.append(peer.target)
        if peer.target in self.library:
            await peer.answer(json.dumps(self.library[peer.target]).encode())
        else:
            await peer.answer(b"", status="404 Not Found")


async def found(provider: LibraryProvider) -> tuple[str, str]:
    """The profile for readers, and the edition by which records are read."""
    async with hostile(provider.serve) as url, source_of(url) as source:
        (info,) = await source.discover()
        (again,) = await source.discover()
        assert again == info
        return info.profile, info.details["tapi"]


@pytest.mark.parametrize("address", [RFC_8525, RFC_7895])
@pytest.mark.parametrize(
    ("revision", "tapi"),
    [("2020-06-16", "2.1.3"), ("2022-12-22", "2.6"), ("2024-07-31", "2.6")],
)
async def test_a_stated_revision_decides_before_names(
    address: str, revision: str, tapi: str
) -> None:
    provider = LibraryProvider(address, revision)
    assert await found(provider) == (f"TAPI {tapi}: tapi-streaming is of {revision}", tapi)
    assert provider.asked == ([RFC_8525] if address == RFC_8525 else [RFC_8525, RFC_7895])


async def test_names_alone_do_not_change_what_a_record_means() -> None:
    provider = LibraryProvider()
    assert await found(provider) == ("TAPI 2.6: classes are an OBJECT_TYPE", "2.1.3")


async def test_what_only_one_model_can_state_needs_no_revision() -> None:
    provider = LibraryProvider(RFC_8525, "2020-06-16", trigger=True)
    assert await found(provider) == ("TAPI 2.6: record-trigger is stated", "2.6")
    assert provider.asked == []


async def test_who_states_other_streams_is_asked_again() -> None:
    provider = LibraryProvider(RFC_8525, "2020-06-16")
    async with hostile(provider.serve) as url, source_of(url) as source:
        (before,) = await source.discover()
        provider.library = {RFC_8525: library(RFC_8525, "2024-07-31")}
        provider.stream = {"stream-id": "upgraded"}
        (after,) = await source.discover()
        await source.discover()
    assert (before.details["tapi"], after.details["tapi"]) == ("2.1.3", "2.6")
    assert provider.asked == [RFC_8525, RFC_8525]
