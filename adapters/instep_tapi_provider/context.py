"""A TAPI context as a tree and as the entities in it, kept together as they change.

Every object with a uuid, wherever it is nested, is an entity. A record states it with the
identifiers of its subordinate entities that have records of their own (TR-548 3.10), or as `Nested`
says, and with a parent-address from the highest ancestor to the lowest, the context itself omitted.
RESTCONF reads the tree as it is.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from instep.errors import ConfigurationError
from instep_tapi.facts.names import class_of, strip_module

Json = Any
Object = dict[str, Json]

CONTEXT_MEMBER = "tapi-common:context"
_KEY_SEPARATOR = "+"  # not "/", which in an entity-key leads on to a part of the entity
_LIST_KEYS = ("uuid", "local-id", "value-name")
_GONE = object()


class Nested(StrEnum):
    """What a record states of the entities below its own."""

    OMITTED = "omitted"  # nothing, although the YANG wants the list
    IDENTIFIED = "identified"  # their identifiers, where they have records of their own
    WHOLE = "whole"  # the whole sub-tree, as RESTCONF shows it


@dataclass(slots=True, eq=False)
class Node:
    """One entity in the tree. `holder` is the list or object it sits in, under `member`; `others`
    are the further lists that state it, `parent` is the entity that contains it.
    """

    key: str
    cls: str
    uuid: str
    parent_address: tuple[str, ...]
    value: Object
    holder: Json
    member: str
    parent: "Node | None" = field(default=None, repr=False)
    others: list[list[Json]] = field(default_factory=list, repr=False)

    def line(self) -> "Iterator[Node]":
        """The entity and those that contain it, at its first place, upwards."""
        above: Node | None = self
        while above is not None:
            yield above
            above = above.parent

    def body(
        self, nested: Nested = Nested.OMITTED, carried: Collection[str] | None = None
    ) -> bytes:
        """The entity as encoded JSON. `carried`: the classes that have records of their own; None
        are all.
        """
        match nested:
            case Nested.WHOLE:
                own = self.value
            case Nested.IDENTIFIED:
                own = {name: _identified(v, name, carried) for name, v in self.value.items()}
            case _:
                own = {n: kept for n, v in self.value.items() if (kept := _own(v)) is not _GONE}
        return msgspec.json.encode(own)


def _identified(value: Json, member: str, carried: Collection[str] | None) -> Json:
    """`value` with identifiers in the place of the entities of the carried classes."""
    if isinstance(value, list):
        return [_identified(item, member, carried) for item in value]
    if not isinstance(value, dict):
        return value
    if "uuid" in value and (carried is None or class_of(member) in carried):
        return {"uuid": value["uuid"]}
    return {name: _identified(inner, name, carried) for name, inner in value.items()}


def _own(value: Json) -> Json:
    """`value` without the entities in it; _GONE when it was nothing but entities."""
    if isinstance(value, dict):
        if "uuid" in value:
            return _GONE
        kept = {name: k for name, v in value.items() if (k := _own(v)) is not _GONE}
        return kept if kept or not value else _GONE
    if isinstance(value, list):
        items = [k for v in value if (k := _own(v)) is not _GONE]
        return items if items or not value else _GONE
    return value


class Context:
    """The tree of one TAPI context and an index of its entities by entity-key, parents before
    children.
    """

    def __init__(self, root: Object, where: str = "context") -> None:
        self.root = root
        self.where = where
        self.nodes: dict[str, Node] = {}
        found = list(_walk(root, CONTEXT_MEMBER, (), None))
        self._uuids = Counter(node.uuid for node in found)
        for node in found:
            self._index(node)

    @classmethod
    def load(cls, path: Path) -> "Context":
        """Read a context from a JSON file, with or without module prefixes (RFC 7951 or the RI's
        style).

        Raises ConfigurationError when the file cannot be read or holds no context.
        """
        try:
            data = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise ConfigurationError(
                f"cannot be read: {error.strerror}", where=str(path)
            ) from error
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"is not JSON: {error}", where=str(path)) from error
        return cls(_find_root(data, str(path)), str(path))

    def _index(self, node: Node) -> None:
        # The uuid alone when it is unique; a context may hold one uuid under several parents.
        node.key = node.uuid
        if self._uuids[node.uuid] > 1:
            node.key = _KEY_SEPARATOR.join((*node.parent_address, _address_element(node)))
        if node.key in self.nodes:
            raise ConfigurationError(
                f"two entities of class {node.cls} with uuid {node.uuid} under one parent",
                where=self.where,
                hint="give each its own uuid",
            )
        self.nodes[node.key] = node

    def create(self, parent_key: str | None, path: str, value: Object) -> list[Node]:
        """Add an object with a uuid, and the entities in it, to a list.

        `path`: the members from the parent to the list, such as
        ``tapi-connectivity:cep-list/connection-end-point``. Returns the new nodes, the object's
        own first. Raises KeyError for an unknown parent.
        """
        parent = self.nodes[parent_key] if parent_key is not None else None
        holder = parent.value if parent else self.root
        *containers, member = path.split("/")
        for container in containers:
            holder = holder.setdefault(_member(holder, container), {})
        items = holder.setdefault(_member(holder, member), [])
        address = (*parent.parent_address, _address_element(parent)) if parent else ()
        found = list(_walk(value, member, address, items, parent))
        if not found:
            raise ConfigurationError("an entity needs a uuid", where=path)
        items.append(value)
        self._uuids.update(node.uuid for node in found)
        for node in found:
            self._index(node)
        return found

    def share(self, key: str, parent_key: str, path: str) -> None:
        """State an entity a second time, alike, below another parent, as real controllers do.

        It stays one entity, at its first place; a deletion removes it from all of them. `path` as
        in `create`.
        """
        holder = self.nodes[parent_key].value
        *containers, member = path.split("/")
        for container in containers:
            holder = holder.setdefault(_member(holder, container), {})
        items = holder.setdefault(_member(holder, member), [])
        items.append(self.nodes[key].value)
        self.nodes[key].others.append(items)

    def delete(self, key: str) -> list[Node]:
        """Remove an entity and all below it. Returns what was removed, children before parents."""
        node = self.nodes[key]
        if node.holder is None:
            raise ConfigurationError("the context itself cannot be deleted", where=self.where)
        removed = [n for n in self.nodes.values() if node in n.line()]
        for gone in removed:
            del self.nodes[gone.key]
            for items in gone.others:
                items[:] = [item for item in items if item is not gone.value]
        self._uuids.subtract(gone.uuid for gone in removed)
        if isinstance(node.holder, list):
            node.holder[:] = [item for item in node.holder if item is not node.value]
        else:
            del node.holder[node.member]
        return removed[::-1]


def _find_root(data: Json, where: str) -> Object:
    """The context object in a document, whether wrapped by its name or bare."""
    for _ in range(3):
        if not isinstance(data, dict):
            break
        wrapped = [v for name, v in data.items() if strip_module(name) in ("context", "data")]
        if not wrapped:
            known = {"uuid", "service-interface-point", "topology-context", "topology"}
            if known & {strip_module(name) for name in data}:
                return data
            break
        data = wrapped[0]
    raise ConfigurationError(
        "holds no TAPI context", where=where, hint="expected an object `tapi-common:context`"
    )


def _member(value: Object, name: str) -> str:
    """The member's name as the object spells it, with or without module prefix; else as asked."""
    if name in value:
        return name
    plain = strip_module(name)
    return next((member for member in value if strip_module(member) == plain), name)


def resource(root: Object, path: list[str]) -> tuple[str, Json] | None:
    """The resource at an RFC 8040 path below a context, with its prefixed name; None where there
    is none.

    The segments are still percent-encoded. A list entry comes as a list of one (RFC 8040 4.3).
    """
    value: Json = root
    name, module = CONTEXT_MEMBER, "tapi-common"
    for segment in path:
        wanted, _, key = segment.partition("=")
        if not isinstance(value, dict):
            return None
        member = _member(value, unquote(wanted))
        if member not in value:
            return None
        module = member.rpartition(":")[0] or unquote(wanted).rpartition(":")[0] or module
        name, value = f"{module}:{strip_module(member)}", value[member]
        if key:
            value = _item(value, unquote(key.partition(",")[0]))
            if value is None:
                return None
    if path and "=" in path[-1]:
        return name, [value]
    return name, value


def _item(value: Json, key: str) -> Json:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and any(item.get(name) == key for name in _LIST_KEYS):
            return item
    return None


def _address_element(node: Node) -> str:
    return f"{_kebab(node.cls)}-uuid:{node.uuid}"


def _kebab(cls: str) -> str:
    return cls.lower().replace("_", "-")


def _walk(
    value: Json,
    member: str,
    address: tuple[str, ...],
    holder: Json,
    parent: Node | None = None,
) -> Iterator[Node]:
    """All entities in `value`, a parent before its children."""
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, member, address, value, parent)
        return
    if not isinstance(value, dict):
        return
    cls = class_of(member)
    if "uuid" in value:
        node = Node("", cls, str(value["uuid"]), address, value, holder, member, parent)
        parent = node
        yield node
        if cls != "TAPI_CONTEXT":
            address = (*address, _address_element(node))
    elif "local-id" in value:
        address = (*address, f"{_kebab(cls)}-local-id:{value['local-id']}")
    for name, inner in value.items():
        if isinstance(inner, dict | list):
            yield from _walk(inner, name, address, value, parent)
