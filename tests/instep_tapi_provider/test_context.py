"""Contexts as trees and as entities, on real contexts where they are at hand."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_tapi.facts.names import class_of
from instep_tapi_provider.context import Context, Nested, resource

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "tapi"
FILES = [
    "odtn_out_tapi_context.json",
    "onf_ri_odu_context.json",
    "onf_ri_ols_context.json",
    "onf_ri_tpnd_context.json",
    "transportpce_tapi24_context.json",
]


def real_context(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the public contexts are not in {DATA}")
    return path


def uuids(value: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    if isinstance(value, dict):
        found.update([value["uuid"]] if "uuid" in value else [])
        for inner in value.values():
            found += uuids(inner)
    elif isinstance(value, list):
        for inner in value:
            found += uuids(inner)
    return found


def places(value: Any, cls: str, path: tuple[str, ...], into: dict[tuple[str, str], Any]) -> None:
    """Where entities of a class sit below one of another: (parent class, class) -> (members, is a
    list).
    """
    for name, inner in value.items():
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, dict) and "uuid" in item:
                into[cls, class_of(name)] = ((*path, name), isinstance(inner, list))
                places(item, class_of(name), (), into)
            elif isinstance(item, dict):
                places(item, cls, (*path, name), into)


def reassembled(context: Context, root_without_uuid: dict[str, Any]) -> dict[str, Any]:
    """The tree built again from bodies and parent-addresses alone, as a client would."""
    where: dict[tuple[str, str], Any] = {}
    places(context.root, "TAPI_CONTEXT", (), where)
    built: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {}
    root = dict(root_without_uuid)
    built[()] = ("TAPI_CONTEXT", root)
    for node in context.nodes.values():
        body = json.loads(node.body())
        if node.cls == "TAPI_CONTEXT":
            root.update(body)
            continue
        parent_cls, parent = built[node.parent_address]
        (*containers, member), is_list = where[parent_cls, node.cls]
        for container in containers:
            parent = parent.setdefault(container, {})
        if is_list:
            parent.setdefault(member, []).append(body)
        else:
            parent[member] = body
        element = f"{node.cls.lower().replace('_', '-')}-uuid:{node.uuid}"
        built[(*node.parent_address, element)] = (node.cls, body)
    return root


@pytest.mark.parametrize("name", FILES)
def test_every_object_with_a_uuid_is_one_entity(name: str) -> None:
    path = real_context(name)
    context = Context.load(path)
    assert Counter(n.uuid for n in context.nodes.values()) == uuids(json.loads(path.read_bytes()))
    stated = [uuids(json.loads(node.body())) for node in context.nodes.values()]
    assert all(sum(count.values()) == 1 for count in stated), "a body holds another entity"


@pytest.mark.parametrize("name", FILES)
def test_parent_addresses_put_the_context_together_again(name: str) -> None:
    path = real_context(name)
    document = json.loads(path.read_bytes())
    context = Context.load(path)
    original = document.get("tapi-common:context", document)
    scaffold: dict[str, Any] = (
        {} if "uuid" in original else {"tapi-connectivity:connectivity-context": {}}
    )
    assert reassembled(context, scaffold) == original


def a_context() -> Context:
    return Context(
        {
            "uuid": "c",
            "tapi-topology:topology-context": {
                "topology": [
                    {
                        "uuid": "t",
                        "node": [
                            {"uuid": "n1", "owned-node-edge-point": [{"uuid": "p"}]},
                            {"uuid": "n2", "owned-node-edge-point": [{"uuid": "p"}]},
                        ],
                    }
                ]
            },
        }
    )


def test_keys_are_uuids_where_unique_and_qualified_by_parents_where_not() -> None:
    assert list(a_context().nodes) == [
        "c",
        "t",
        "n1",
        "topology-uuid:t+node-uuid:n1+node-edge-point-uuid:p",
        "n2",
        "topology-uuid:t+node-uuid:n2+node-edge-point-uuid:p",
    ]


def test_parent_address_goes_from_the_highest_and_omits_the_context() -> None:
    node = a_context().nodes["topology-uuid:t+node-uuid:n1+node-edge-point-uuid:p"]
    assert node.cls == "NODE_EDGE_POINT"
    assert node.parent_address == ("topology-uuid:t", "node-uuid:n1")


def test_local_objects_between_entities_are_in_the_address() -> None:
    context = Context({"uuid": "c", "holder": [{"local-id": "h1", "equipment": {"uuid": "e"}}]})
    assert context.nodes["e"].parent_address == ("holder-local-id:h1",)


def test_create_and_delete_keep_tree_and_index_together() -> None:
    context = a_context()
    path = "tapi-connectivity:cep-list/connection-end-point"
    (cep,) = context.create(
        "topology-uuid:t+node-uuid:n1+node-edge-point-uuid:p", path, {"uuid": "e"}
    )
    assert cep.parent_address == ("topology-uuid:t", "node-uuid:n1", "node-edge-point-uuid:p")
    found = resource(
        context.root, ["topology-context", "topology=t", "node=n1", "owned-node-edge-point=p"]
    )
    assert found == (
        "tapi-topology:owned-node-edge-point",
        [{"uuid": "p", "tapi-connectivity:cep-list": {"connection-end-point": [{"uuid": "e"}]}}],
    )
    assert [node.uuid for node in context.delete("n1")] == ["e", "p", "n1"]
    assert not {"n1", "e"} & context.nodes.keys()
    assert resource(context.root, ["topology-context", "topology=t", "node=n1"]) is None


def test_a_created_subtree_is_several_entities() -> None:
    context = a_context()
    nodes = context.create("t", "node", {"uuid": "n3", "owned-node-edge-point": [{"uuid": "q"}]})
    assert [(n.key, n.cls) for n in nodes] == [("n3", "NODE"), ("q", "NODE_EDGE_POINT")]


@pytest.mark.parametrize("document", ["[]", "{}", '{"a": 1}', "nothing"])
def test_a_file_without_a_context_is_refused_by_name(tmp_path: Path, document: str) -> None:
    path = tmp_path / "context.json"
    path.write_text(document)
    with pytest.raises(ConfigurationError, match=r"context\.json"):
        Context.load(path)
    with pytest.raises(ConfigurationError, match=r"missing\.json"):
        Context.load(tmp_path / "missing.json")


def test_two_entities_in_one_place_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two entities of class NODE with uuid n"):
        Context({"uuid": "c", "node": [{"uuid": "n"}, {"uuid": "n"}]})


def test_an_entity_may_be_stated_in_two_places_and_is_one() -> None:
    """As real controllers do: below each of two parents, alike."""
    nodes = [{"uuid": f"n{n}", "owned-node-edge-point": [{"uuid": f"p{n}"}]} for n in (1, 2)]
    context = Context(
        {"uuid": "c", "topology-context": {"topology": [{"uuid": "t", "node": nodes}]}}
    )
    context.create("p1", "cep-list/connection-end-point", {"uuid": "e"})
    context.share("e", "p2", "cep-list/connection-end-point")
    assert list(context.nodes) == ["c", "t", "n1", "p1", "n2", "p2", "e"]
    assert uuids(context.root)["e"] == 2
    assert [node.uuid for node in context.delete("n2")] == ["p2", "n2"]
    assert context.nodes["e"].parent_address[-1] == "node-edge-point-uuid:p1"
    context.share("e", "n1", "other")
    context.delete("e")
    assert uuids(context.root)["e"] == 0


@pytest.mark.parametrize(
    ("nested", "ports"),
    [
        (Nested.OMITTED, {}),
        (Nested.IDENTIFIED, {"owned-node-edge-point": [{"uuid": "p1"}]}),
        (Nested.WHOLE, {"owned-node-edge-point": [{"uuid": "p1", "x": 1}]}),
    ],
)
def test_what_a_record_states_of_the_entities_below_its_own(
    nested: Nested, ports: dict[str, Any]
) -> None:
    node = {"uuid": "n", "owned-node-edge-point": [{"uuid": "p1", "x": 1}]}
    context = Context(
        {"uuid": "c", "topology-context": {"topology": [{"uuid": "t", "node": [node]}]}}
    )
    assert json.loads(context.nodes["n"].body(nested)) == {"uuid": "n", **ports}
    # What no stream carries cannot be stated elsewhere.
    if nested is Nested.IDENTIFIED:
        assert json.loads(context.nodes["n"].body(nested, {"NODE"})) == node
