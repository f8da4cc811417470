"""Every key of `instep.toml`, with type, default and meaning, from the structs that it is read
into: those of the core, and those of the plug-ins that are installed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, EnumMeta
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from instep.config.attribute_docs import attribute_docs
from instep.config.file import FileTable, Isolation, MemoryLimit, PublisherTable, WorkerCount
from instep.config.plugins import sink_plugin, source_plugin, target_plugin
from instep.errors import ConfigurationError
from instep.runtime.settings import ConsumerSettings

__all__ = [
    "PLUGINS",
    "ConsumerTable",
    "Key",
    "Table",
    "installed",
    "is_plugin_table",
    "meaning",
    "tables",
]


class ConsumerTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One consumer: what it reads, where it commits, and how."""

    name: Annotated[str, msgspec.Meta(pattern=r"\S")]
    """Its name. Positions are stored under it, so it must stay the same."""
    source: dict[str, Any]
    """What it reads. Its `kind` names a plug-in, which defines the other keys."""
    sink: dict[str, Any]
    """Where it commits; `kind` likewise."""
    workers: WorkerCount = 1
    """Processes that share its streams, where one core is not enough: `instep run` starts them. A
    stream is followed by one of them."""
    isolation: Isolation = Isolation.NONE
    """`process` runs it in a process of its own, which is started again alone when it ends by a
    signal. Not stated: as at the top of the file."""
    memory_limit_bytes: MemoryLimit = 0
    """Most memory of that process (Linux): one that takes more is killed, and started again. 0: no
    limit. Not stated: as at the top of the file."""
    conformance: bool = False
    """Whether its peer is judged by the rules of its specification while it works, at a bounded
    cost. Not with several workers."""
    settings: ConsumerSettings = ConsumerSettings()
    """How it connects, retries, batches and aligns."""


class Key(msgspec.Struct, frozen=True):
    """One key of a table."""

    name: str
    type: str
    """In words of TOML: text, number, integer, list of texts, table, or the values themselves."""
    required: bool
    default: Any
    """None where there is none, or where it is made of other values."""
    meaning: str


class Table(msgspec.Struct, frozen=True):
    """One table of the file, such as `consumers.source.tls` of one kind of source."""

    path: str
    plugin: str
    """The kind of the plug-in that it belongs to; empty for those of the core."""
    kind: str
    """Its own `kind`, where there are several; empty elsewhere."""
    repeated: bool
    """Whether there is a list of them."""
    meaning: str
    keys: tuple[Key, ...]
    struct: type[msgspec.Struct]

    @property
    def heading(self) -> str:
        """As it is written in the file, with the kinds that it is for."""
        if not self.path:
            return "the top of the file"
        written = f"[[{self.path}]]" if self.repeated else f"[{self.path}]"
        kind = f' with kind = "{self.kind}"' if self.kind else ""
        return f"{written}{kind}{f' of {self.plugin}' if self.plugin != self.kind else ''}"


PLUGINS: Final[dict[str, tuple[str, str, Callable[[str], Any]]]] = {
    "source": ("consumers", "instep.sources", source_plugin),
    "sink": ("consumers", "instep.sinks", sink_plugin),
    "target": ("publishers", "instep.targets", target_plugin),
}
"""Part of a table → the list of these tables, the entry points of its kinds, and what loads one."""


def installed(part: str) -> dict[str, type[msgspec.Struct] | None]:
    """The kinds of `source`, `sink` or `target` → the struct of their options; None where a plug-in
    does not state it (`options`), or cannot be loaded because an extra is missing.
    """
    _, group, load = PLUGINS[part]
    found: dict[str, type[msgspec.Struct] | None] = {}
    for kind in sorted(entry_points(group=group).names):
        try:
            found[kind] = getattr(load(kind), "options", None)
        except ConfigurationError:
            found[kind] = None
    return found


def tables() -> Iterator[Table]:
    """Every table of the file, a plug-in's after those of the core."""
    yield from _tables(FileTable, "", "")
    yield from _tables(ConsumerTable, "consumers", "", repeated=True)
    yield from _tables(PublisherTable, "publishers", "", repeated=True)
    for part, (of, _, _) in PLUGINS.items():
        for kind, struct in installed(part).items():
            if struct is not None:
                yield from _tables(struct, f"{of}.{part}", kind, kind=kind)


def is_plugin_table(struct: type[msgspec.Struct]) -> bool:
    """Whether a table is read by a plug-in of its own: it has a `kind`, and any other keys."""
    return struct.__struct_fields__ == ("kind", "options")


def _tables(
    struct: type[msgspec.Struct], path: str, plugin: str, *, kind: str = "", repeated: bool = False
) -> Iterator[Table]:
    meanings = attribute_docs(struct)
    fields = [
        field
        for field in msgspec.structs.fields(struct)
        if not (is_plugin_table(struct) and field.name == "options")
    ]
    keys = tuple(_key(field, meaning(field, meanings)) for field in fields)
    about = " ".join((struct.__doc__ or "").partition("\n\n")[0].split())
    yield Table(path, plugin, kind, repeated, about, keys, struct)
    hints = get_type_hints(struct)
    for field in fields:
        for inner, listed in _structs(hints[field.name]):
            at = f"{path}.{field.encode_name}".lstrip(".")
            tag = inner.__struct_config__.tag
            yield from _tables(
                inner, at, plugin, kind=tag if isinstance(tag, str) else "", repeated=listed
            )


def _structs(
    annotation: Any, *, listed: bool = False
) -> Iterator[tuple[type[msgspec.Struct], bool]]:
    """The structs in a type, and whether a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation, listed
    elif get_origin(annotation) in {Union, types.UnionType, tuple, Annotated}:
        inside = listed or get_origin(annotation) is tuple
        for one in get_args(annotation):
            yield from _structs(one, listed=inside)


def _key(field: msgspec.structs.FieldInfo, meaning: str) -> Key:
    default = None if field.default is msgspec.NODEFAULT else field.default
    if isinstance(default, msgspec.Struct) or default in ((), ""):
        default = None
    return Key(field.encode_name, _type(field.type), field.required, default, meaning)


def meaning(field: msgspec.structs.FieldInfo, meanings: Mapping[str, str]) -> str:
    """The meaning of a key, with that of each value where it takes given ones."""
    words = [meanings.get(field.name, "")]
    for one in (field.type, *get_args(field.type)):
        if isinstance(one, EnumMeta):
            words[0] = words[0] or " ".join((one.__doc__ or "").split())
            told = attribute_docs(one)
            every = cast("type[Enum]", one)
            words += [f'"{each.value}": {told[each.name]}' for each in every if each.name in told]
    return " ".join(words).replace("``", "`")


def _type(annotation: Any) -> str:
    """A type in words of TOML."""
    told = msgspec.json.schema(annotation, schema_hook=lambda _: {"type": "string"})
    return _schema_type(told, told.get("$defs", {}))


def _schema_type(told: dict[str, Any], known: dict[str, Any]) -> str:
    if reference := told.get("$ref"):
        return _schema_type(known[reference.rpartition("/")[2]], known)
    if values := told.get("enum"):
        return " or ".join(f'"{value}"' for value in values)
    if several := told.get("anyOf"):
        words = [_schema_type(one, known) for one in several if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    type_ = told.get("type")
    if type_ == "array":
        return f"list of {_schema_type(told['items'], known)}s"
    names = {"object": "table", "string": "text", "boolean": "true or false"}
    return names.get(str(type_), str(type_))
