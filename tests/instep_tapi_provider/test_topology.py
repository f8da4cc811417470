"""Backbones of topohub as TAPI contexts."""

from collections import Counter

import pytest

from instep.errors import ConfigurationError
from instep_tapi_provider.topology import backbone, topology_context

pytest.importorskip("topohub", reason="the extra `simulator` is not installed")


def test_germany50_has_its_cities_and_fibres() -> None:
    network = backbone("sndlib/germany50")
    context = topology_context("sndlib/germany50", services=100)
    counts = Counter(node.cls for node in context.nodes.values())
    assert (counts["NODE"], counts["LINK"]) == (50, 88)
    assert (counts["CONNECTIVITY_SERVICE"], counts["CONNECTION"]) == (100, 100)
    assert counts["SERVICE_INTERFACE_POINT"] == 200
    names = {n.value["name"][0]["value"] for n in context.nodes.values() if n.cls == "NODE"}
    assert {"Berlin", "Frankfurt"} <= {name.partition(" ")[0] for name in names}
    assert network.demands[0][2] == max(volume for *_, volume in network.demands)


def test_every_reference_points_to_an_entity_that_is_there() -> None:
    context = topology_context("sndlib/polska")
    there = {node.uuid for node in context.nodes.values()}
    referred: list[str] = []

    def collect(value: object) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if name.endswith("-uuid"):
                    referred.append(inner)
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect(context.root)
    assert len(referred) > 500
    assert set(referred) <= there


def test_a_route_is_connected_and_the_shortest() -> None:
    context = topology_context("sndlib/polska")
    links = [
        {end["node-uuid"] for end in n.value["node-edge-point"]}
        for n in context.nodes.values()
        if n.cls == "LINK"
    ]
    for node in context.nodes.values():
        if node.cls != "CONNECTION":
            continue
        hops = [e["node-uuid"] for e in node.value["route"][0]["connection-end-point"]]
        assert hops[0] == hops[1]
        assert hops[-1] == hops[-2]
        for near, far in zip(hops[1:-1:2], hops[2:-1:2], strict=True):
            assert {near, far} in links


def test_uuids_are_the_same_every_time_and_differ_between_backbones() -> None:
    once, again = topology_context("sndlib/polska"), topology_context("sndlib/polska")
    assert list(once.nodes) == list(again.nodes)
    assert not once.nodes.keys() & topology_context("sndlib/abilene").nodes.keys()


@pytest.mark.parametrize("name", ["topozoo/Dfn", "sndlib/nobel-us", "gabriel/25/0"])
def test_other_sources_work_too(name: str) -> None:
    counts = Counter(node.cls for node in topology_context(name).nodes.values())
    assert counts["LINK"] == len(backbone(name).fibres)
    assert counts["CONNECTIVITY_SERVICE"] > 0


@pytest.mark.parametrize("name", ["sndlib/atlantis", "nothing", ""])
def test_an_unknown_backbone_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no such topology"):
        topology_context(name)
