"""Reads `instep.toml`: consumers with their sources, sinks and settings. Every error names its
place in the file.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Final, TypeGuard, get_type_hints

import msgspec

from instep.config.env_vars import expand, redact
from instep.config.options import kind_hint, read_table, unknown_key
from instep.config.toml_hints import toml_hint
from instep.errors import ConfigurationError
from instep.model.limits import Count
from instep.model.listen import parse_listen
from instep.runtime.settings import ConsumerSettings

__all__ = [
    "Configuration",
    "ConsumerConfiguration",
    "FileTable",
    "Isolation",
    "LogLevel",
    "MemoryLimit",
    "OperationsTable",
    "PluginConfiguration",
    "PublisherConfiguration",
    "PublisherTable",
    "default_path",
    "load",
]

_MAX_BYTES: Final = 1 << 20
_LISTS: Final = ("consumers", "publishers")
"""The keys of the file that are lists of tables."""
_NAMED: Final = 'for example name = "optical-east"'

WorkerCount = Annotated[int, msgspec.Meta(ge=1, le=64)]


MemoryLimit = Annotated[int, msgspec.Meta(ge=0)]


class Isolation(StrEnum):
    """The process in which a consumer runs."""

    NONE = "none"
    """In the process of `instep run`, with all others."""
    PROCESS = "process"
    """In a process of its own: what ends it ends no other consumer."""


class LogLevel(StrEnum):
    """The least level of what is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class OperationsTable(msgspec.Struct, frozen=True, kw_only=True):
    """How a process shows how it does."""

    listen: str = ""
    """Where `instep run` serves `/livez`, `/readyz`, `/startupz`, `/metrics` and `/status.json`:
    `"127.0.0.1:9464"`; loopback where no host is named. It only reads, and asks for no password.
    Empty: nowhere."""
    log_level: LogLevel = LogLevel.WARNING
    """The least level of what is logged on stderr."""


class FileTable(msgspec.Struct, frozen=True, kw_only=True):
    """The top of the file: what holds for each consumer that does not say otherwise."""

    isolation: Isolation = Isolation.NONE
    """`process` runs each consumer in a process of its own, which is started again alone when it
    ends by a signal."""
    memory_limit_bytes: MemoryLimit = 0
    """Most memory of such a process (Linux): one that takes more is killed, and started again. 0:
    no limit."""
    operations: OperationsTable = OperationsTable()
    """How a process shows how it does."""


class PublisherTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One publisher: which changes of which store go where, as CloudEvents."""

    name: Annotated[str, msgspec.Meta(pattern=r"\S")]
    """Its name, which no consumer has. The store keeps under it how far it has come."""
    store: str
    """The URL of the store, which keeps a journal: `sqlite:///network.db`."""
    target: dict[str, Any]
    """Where the events go. Its `kind` names a plug-in, which defines the other keys."""
    consumer: str | None = None
    """Publish only changes of this consumer."""
    stream: str | None = None
    """Publish only changes of this stream."""
    classes: tuple[str, ...] = ()
    """Publish only changes of entities of these classes; empty: of all."""
    below: str | None = None
    """Publish only changes of the entity with this uuid and of those below it."""
    from_now: bool = False
    """Whether a new publisher begins with the next change, and not with the oldest."""
    batch_changes: Count = 500
    """Most events of one batch."""


class _Judging(msgspec.Struct, frozen=True):
    conformance: bool = False


class _Placing(msgspec.Struct, frozen=True):
    workers: WorkerCount
    isolation: Isolation
    memory_limit_bytes: MemoryLimit


@dataclass(frozen=True, slots=True)
class PluginConfiguration:
    """A source or a sink as configured.

    `options` has the variables filled in and goes to the plug-in only; `as_written` is the same
    table as it stands in the file, and may be shown.
    """

    kind: str
    """The entry point of `instep.sources` or `instep.sinks`."""
    where: str
    """The place in the file: "instep.toml: consumers[0].source"."""
    options: dict[str, Any] = field(repr=False)
    as_written: dict[str, Any] = field(repr=False)
    values: dict[str, str] = field(repr=False)
    """Value that came from a variable → the variable as it is written."""

    def redact(self, error: ConfigurationError) -> ConfigurationError:
        """The same error, with each value that came from a variable shown as the variable."""
        message, where, hint = (
            redact(text, self.values) for text in (error.message, error.where, error.hint)
        )
        # Names of keys, which find the line; other data may have a value.
        kept = ("key", "known", "sure")
        named = {name: error.data[name] for name in kept if name in error.data}
        return type(error)(message, where=where, hint=hint, **named)


@dataclass(frozen=True, slots=True)
class ConsumerConfiguration:
    """One `[[consumers]]` table of `instep.toml`, checked."""

    name: str
    source: PluginConfiguration
    sink: PluginConfiguration
    settings: ConsumerSettings
    workers: int = 1
    """Processes that share the streams."""
    isolation: Isolation = Isolation.NONE
    memory_limit_bytes: int = 0
    conformance: bool = False
    """Whether its peer is judged while it works."""


@dataclass(frozen=True, slots=True)
class PublisherConfiguration:
    """One `[[publishers]]` table of `instep.toml`, checked."""

    table: PublisherTable = field(repr=False)
    """With its variables filled in: the URL of the store may hold a password."""
    target: PluginConfiguration
    where: str
    """The place in the file: "instep.toml: publishers[0]"."""

    @property
    def name(self) -> str:
        return self.table.name


@dataclass(frozen=True, slots=True)
class Configuration:
    """A whole file, read and checked as far as the core can; plug-ins check their own tables."""

    path: Path
    consumers: tuple[ConsumerConfiguration, ...]
    operations: OperationsTable
    publishers: tuple[PublisherConfiguration, ...] = ()


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """$INSTEP_CONFIG, else `instep.toml` in the working directory."""
    return Path(environ.get("INSTEP_CONFIG") or "instep.toml")


def load(path: Path | str, environ: Mapping[str, str] = os.environ) -> Configuration:
    """Read a configuration file and fill in its variables from `environ`
    (`instep.config.env_vars`).

    Raises `ConfigurationError` naming the file, the key's path in it, and what to do.
    """
    path = Path(path)
    place = str(path)
    document = _parsed(path, place)
    _only_known(document, (*_LISTS, *FileTable.__struct_fields__), place)
    tables, published = (_list_of(document, key, place) for key in _LISTS)
    if not tables and not published:
        raise ConfigurationError(
            "no consumer is configured", where=place, hint="begin one with a line [[consumers]]"
        )
    top = {key: value for key, value in document.items() if key not in _LISTS}
    filled, _ = expand(top, place, environ)
    _only_fields(filled, FileTable, place)
    default = read_table(FileTable, filled, place)
    if default.operations.listen:
        parse_listen(default.operations.listen, f"{place}: operations.listen")
    consumers = tuple(
        _consumer(table, f"{place}: consumers[{index}]", environ, default)
        for index, table in enumerate(tables)
    )
    publishers = tuple(
        _publisher(table, f"{place}: publishers[{index}]", environ)
        for index, table in enumerate(published)
    )
    seen: dict[str, str] = {}
    for key, names, written in (
        ("consumers", [one.name for one in consumers], tables),
        ("publishers", [one.name for one in publishers], published),
    ):
        for index, name in enumerate(names):
            if name in seen:
                raise ConfigurationError(
                    f"the name {written[index]['name']!r} is taken by {seen[name]}",
                    where=f"{place}: {key}[{index}].name",
                    hint=f"give each of the {key} a name of its own: positions are stored under it",
                )
            seen[name] = f"{key}[{index}]"
    return Configuration(path, consumers, default.operations, publishers)


def _list_of(document: Mapping[str, Any], key: str, place: str) -> list[dict[str, Any]]:
    """The tables of a list of them."""
    tables = document.get(key, [])
    if isinstance(tables, dict):
        raise ConfigurationError(
            f"{key!r} is a single table",
            where=place,
            hint=f"write [[{key}]], in two brackets",
            key=key,
        )
    if not isinstance(tables, list) or not all(_is_table(one) for one in tables):
        raise ConfigurationError(
            f"{key!r} is not a list of tables",
            where=place,
            hint=f"begin one with a line [[{key}]]",
            key=key,
        )
    return tables


def _publisher(
    table: dict[str, Any], where: str, environ: Mapping[str, str]
) -> PublisherConfiguration:
    _only_known(table, PublisherTable.__struct_fields__, where)
    target = _part(
        _needed(table, "target", where, "begin it with a line [publishers.target]"),
        f"{where}.target",
        environ,
    )
    filled, values = expand(table, where, environ)
    try:
        read = read_table(PublisherTable, filled, where, required={"store": "sqlite:///network.db"})
    except ConfigurationError as error:
        raise PluginConfiguration("", where, {}, {}, values).redact(error) from None
    return PublisherConfiguration(read, target, where)


def _parsed(path: Path, place: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigurationError(
            "there is no such file",
            where=place,
            hint="name the configuration file, or set INSTEP_CONFIG",
        ) from None
    except IsADirectoryError:
        raise ConfigurationError(
            "this is a directory", where=place, hint="name the file in it, for example instep.toml"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"the file cannot be read: {error.strerror}",
            where=place,
            hint="give this user the right to read it",
        ) from None
    if len(raw) > _MAX_BYTES:
        raise ConfigurationError(
            f"the file is over {_MAX_BYTES:,} bytes",
            where=place,
            hint="look whether it is a configuration file",
        )
    try:
        # Some editors begin a file with a byte order mark.
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"the file is not UTF-8 (at line {line})", where=place, hint="save it as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"the file is not TOML: {error}",
            where=place,
            hint=toml_hint(raw.decode("utf-8-sig"), str(error)),
        ) from None
    except RecursionError:
        raise ConfigurationError(
            "the file is nested too deeply",
            where=place,
            hint="look whether it is a configuration file",
        ) from None


def _consumer(
    table: dict[str, Any], where: str, environ: Mapping[str, str], default: FileTable
) -> ConsumerConfiguration:
    placing = _Placing.__struct_fields__
    judging = _Judging.__struct_fields__
    _only_known(table, ("name", "source", "sink", *placing, *judging, "settings"), where)
    name = _needed(table, "name", where, _NAMED)
    name, _ = expand(name, f"{where}.name", environ)
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(
            "the name is not a text, or it is empty",
            where=f"{where}.name",
            hint=_NAMED,
        )
    if not name.isprintable():
        raise ConfigurationError(
            "the name has a line break or another control character",
            where=f"{where}.name",
            hint=_NAMED,
        )
    settings = table.get("settings", {})
    placed = _placing(table, where, environ, default)
    source, sink = (
        _part(
            _needed(table, part, where, f"begin it with a line [consumers.{part}]"),
            f"{where}.{part}",
            environ,
        )
        for part in ("source", "sink")
    )
    return ConsumerConfiguration(
        name,
        source,
        sink,
        _settings(settings, f"{where}.settings", environ),
        workers=placed.workers,
        isolation=placed.isolation,
        memory_limit_bytes=placed.memory_limit_bytes,
        conformance=_judged(table, where, environ),
    )


def _part(table: Any, where: str, environ: Mapping[str, str]) -> PluginConfiguration:
    part = where.rpartition(".")[2]
    kinds = entry_points(group=f"instep.{part}s").names
    if not _is_table(table):
        listed = ", ".join(sorted(kinds))
        raise ConfigurationError(
            "this is not a table",
            where=where,
            hint=f"write {part} = {{ kind = …, … }}; kinds: {listed}",
        )
    filled, values = expand(table, where, environ)
    kind = _needed(filled, "kind", where, kind_hint(table, kinds))
    if not isinstance(kind, str) or not kind:
        raise ConfigurationError(
            "the kind is not a text", where=f"{where}.kind", hint=kind_hint({}, kinds)
        )
    return PluginConfiguration(kind, where, _without_kind(filled), _without_kind(table), values)


def _placing(
    table: dict[str, Any], where: str, environ: Mapping[str, str], default: FileTable
) -> _Placing:
    """In which processes a consumer runs."""
    stated = {key: table[key] for key in _Placing.__struct_fields__ if key in table}
    usual = {key: getattr(default, key, 1) for key in _Placing.__struct_fields__}
    given, _ = expand(usual | stated, where, environ)
    placing = read_table(_Placing, given, where)
    if placing.memory_limit_bytes and sys.platform != "linux":
        raise ConfigurationError(
            "a memory limit needs Linux",
            where=f"{where}.memory_limit_bytes",
            hint="leave it out, and limit the service as a whole",
            key="memory_limit_bytes",
        )
    if placing.memory_limit_bytes and placing.isolation is Isolation.NONE:
        raise ConfigurationError(
            "a memory limit needs a consumer with a process of its own",
            where=f"{where}.memory_limit_bytes",
            hint='write isolation = "process" beside it',
            key="memory_limit_bytes",
        )
    return placing


def _judged(table: dict[str, Any], where: str, environ: Mapping[str, str]) -> bool:
    """Whether the peer is judged."""
    stated = {key: table[key] for key in _Judging.__struct_fields__ if key in table}
    given, _ = expand(stated, where, environ)
    judged = read_table(_Judging, given, where).conformance
    if judged and table.get("workers", 1) != 1:
        raise ConfigurationError(
            "conformance cannot be judged with several workers: each sees a part of the streams",
            where=f"{where}.conformance",
            hint="leave workers out, or judge beside them: instep conformance CONFIG",
            key="conformance",
        )
    return judged


def _settings(table: Any, where: str, environ: Mapping[str, str]) -> ConsumerSettings:
    if not _is_table(table):
        raise ConfigurationError(
            "this is not a table", where=where, hint="begin it with a line [consumers.settings]"
        )
    filled, _ = expand(table, where, environ)
    _only_fields(filled, ConsumerSettings, where)
    return read_table(ConsumerSettings, filled, where)


def _only_fields(table: Mapping[str, Any], struct: type[msgspec.Struct], where: str) -> None:
    _only_known(table, struct.__struct_fields__, where)
    hints = get_type_hints(struct)
    for key, value in table.items():
        inner = hints[key]
        if _is_table(value) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _only_fields(value, inner, f"{where}.{key}" if ": " in where else f"{where}: {key}")


def _only_known(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = tuple(known)
    for key in table:
        if key not in known:
            raise unknown_key(key, known, where)


def _needed(table: Mapping[str, Any], key: str, where: str, hint: str) -> Any:
    if key not in table:
        raise ConfigurationError(f"the key {key!r} is missing", where=where, hint=hint)
    return table[key]


def _without_kind(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "kind"}


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
