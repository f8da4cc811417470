"""Reads a table of a configuration into the options of a plug-in, with errors that name the key."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import EnumMeta
from typing import Any, Final, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from instep.config.secret import Secret
from instep.errors import ConfigurationError

__all__ = ["kind_hint", "read_table", "unknown_classes", "unknown_key"]

T = TypeVar("T", bound=msgspec.Struct)

_CONVERTING: Final = threading.RLock()
"""The structs of plug-ins are known at run time only, and msgspec describes a class at its first
use: one thread at a time (`instep.model.conversion`).
"""
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `([^`]+)`")
_BOUND: Final = re.compile(r"Expected `(?:int|float)` (>=|>|<=|<) (\S+)")
_NO_VALUE: Final = re.compile(r"Invalid enum value (.+)")
_TYPE: Final = re.compile(r"`(\w+(?: \| \w+)*)`")
_NAMES_OF_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
"""Types as msgspec names them → as a reader of TOML does."""
_BOUNDS: Final = {">=": "of at least", ">": "above", "<=": "of at most", "<": "below"}
_UNITS: Final = {"_s": "seconds", "_hours": "hours", "_bytes": "bytes"}
"""Ends of keys → the unit that they are in."""
_TO_CONNECT_TO: Final = ("url", "endpoints", "provider", "servers", "listen")
_TO_LISTEN_ON: Final = ("listen", "url")
_OTHER_WORDS: Final = {
    **dict.fromkeys(
        (
            *("address", "database", "dir", "dsn", "endpoint", "file", "folder", "host", "hosts"),
            *("location", "path", "server", "store", "target", "uri"),
            *_TO_CONNECT_TO,
        ),
        _TO_CONNECT_TO,
    ),
    "bind": _TO_LISTEN_ON,
    "port": _TO_LISTEN_ON,
    "sink": ("target",),
    "type": ("kind",),
}
"""Keys that users guess → those that they mean, the likely ones first."""
_SURE: Final = 0.9
"""How much alike two keys are where one is surely a slip of the other."""


def read_table(
    struct: type[T],
    table: object,
    where: str,
    *,
    required: Mapping[str, str | Sequence[str]] | None = None,
) -> T:
    """The options of a plug-in out of plain data, as TOML gives it.

    Args:
        struct: What the options are. Text becomes a `Secret` where the struct wants one.
        table: The table as read. Its `kind`, which names the plug-in, is left out.
        where: The place of the table, for errors: "instep.toml: consumers[0].source".
        required: Key → an example of its value, for the error where the key is missing.

    Raises `ConfigurationError` naming the key, where it stands and what fits.
    """
    tagged = struct.__struct_config__.tag is not None
    known = struct.__struct_encode_fields__
    if isinstance(table, Mapping):
        if not tagged and "kind" not in known:
            table = {key: value for key, value in table.items() if key != "kind"}
        for key in table:
            if key not in known and not (tagged and key == "kind"):
                raise unknown_key(str(key), known, where)
        for key, example in (required or {}).items():
            if key not in table:
                raise ConfigurationError(
                    f"the key {key!r} is missing",
                    where=where,
                    hint=f"for example {key} = {msgspec.json.encode(example).decode()}",
                    key=key,
                )
    try:
        with _CONVERTING:
            return msgspec.convert(table, struct, dec_hook=_secret, builtin_types=())
    except msgspec.ValidationError as error:
        raise _not_usable(struct, error, where) from None


def unknown_key(key: str, known: Iterable[str], where: str) -> ConfigurationError:
    """The error for an unknown key, with the likely key and all known ones. The command line adds
    the tables where the key would be known (`instep.config.misplaced_keys`).
    """
    known = sorted(known)
    sure: list[str] = [one for one in _OTHER_WORDS.get(key.lower(), ()) if one in known]
    sure += difflib.get_close_matches(key, known, n=1, cutoff=_SURE)
    close = sure or difflib.get_close_matches(key, known, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return ConfigurationError(
        f"unknown key {key!r}",
        where=where,
        hint=f"{guess}known keys: {', '.join(known)}",
        key=key,
        known=known,
        sure=bool(sure),
    )


def kind_hint(table: Mapping[str, Any], kinds: Iterable[str]) -> str:
    """What to do where a table lacks its `kind`: a key that stands for it, or the known kinds."""
    for key, value in table.items():
        if key.lower() in {"kind", "type"} and isinstance(value, str):
            return f'write kind = "{value}" in place of {key}'
    return f"add kind = …, one of {', '.join(sorted(kinds))}"


def unknown_classes(names: Iterable[str], known: Iterable[str], where: str) -> list[str]:
    """A warning for each class that is none of those known, with the likely one. It is no error:
    a provider may have classes of its own.
    """
    known = sorted(known)
    warnings = []
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name.upper(), known, n=1)
            guess = f": did you mean {close[0]}?" if close else ""
            warnings.append(f"{where} names {name}, which the specification does not know{guess}")
    return warnings


def _not_usable(
    struct: type[msgspec.Struct], error: msgspec.ValidationError, where: str
) -> ConfigurationError:
    text, _, at = str(error).partition(" - at `$")
    key = at.rstrip("`").removeprefix(".")
    if (missing := _MISSING.fullmatch(text)) is not None:
        key = f"{key}.{missing[1]}" if key else missing[1]
        return ConfigurationError(
            f"the key {key!r} is missing", where=where, hint=_allowed(struct, key), key=key
        )
    found = _type_of(struct, key)
    if (unknown := _UNKNOWN.fullmatch(text)) is not None and _is_struct(found):
        at = f"{where}.{key}" if ": " in where else f"{where}: {key}"
        return unknown_key(unknown[1], found.__struct_encode_fields__, at if key else where)
    hint = _allowed(struct, key)
    if (bound := _BOUND.fullmatch(text)) is not None:
        hint = f"write a number {_BOUNDS[bound[1]]} {bound[2].removesuffix('.0')}"
    for end, unit in _UNITS.items():
        if key.endswith(end) and text.endswith("got `str`"):
            hint = f"write the {unit} as a number, without quotation marks and without a unit"
    text = _NO_VALUE.sub(r"\1 is none of its values", _TYPE.sub(_in_words, text))
    if not key:
        return ConfigurationError(text, where=where, hint=hint)
    return ConfigurationError(
        f"the key {key!r} is not usable: {text}", where=where, hint=hint, key=key
    )


def _in_words(types: re.Match[str]) -> str:
    """Types as a reader of TOML names them; as they are where one has no name there."""
    names = [_NAMES_OF_TYPES.get(one) for one in types[1].split(" | ") if one != "null"]
    return " or ".join(name for name in names if name) if all(names) and names else types[0]


def _type_of(struct: type[msgspec.Struct], key: str) -> Any:
    """The type of a key, `alignment.quiet_s` for one of a table; None where that cannot be told."""
    found: Any = struct
    for step in filter(None, key.split(".")):
        name, _, index = step.partition("[")
        if not _is_struct(found):
            return None
        fields = dict(zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True))
        if name not in fields:
            return None
        found = get_type_hints(found)[fields[name]]
        if index and get_args(found):
            found = get_args(found)[0]
        several = [one for one in get_args(found) if one is not type(None)]
        if type(None) in get_args(found) and len(several) == 1:
            found = several[0]
    return found


def _is_struct(type_: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _allowed(struct: type[msgspec.Struct], key: str) -> str:
    """What can be written for a key, or for the table where none is named; empty if that is not
    said in a few words.
    """
    found = _type_of(struct, key)
    if _is_struct(found):
        return f"write a table; its keys: {', '.join(sorted(found.__struct_encode_fields__))}"
    if get_origin(found) in {list, tuple}:
        inner = get_args(found)[0]
        if _is_struct(inner):
            return f"begin each with a line of its own, in two brackets: [[….{key}]]"
        return f"write a list, in brackets: {key.rpartition('.')[2]} = [ … ]"
    types = [one for one in get_args(found) if one is not type(None)] or [found]
    values = [value for one in types for value in (one if isinstance(one, EnumMeta) else [one])]
    texts = [f'"{value}"' for value in values if isinstance(value, str)]
    if texts:
        return f"write {' or '.join(filter(None, (', '.join(texts[:-1]), texts[-1])))}"
    names = [_NAMES_OF_TYPES[one.__name__] for one in types if one in {int, float, str, bool}]
    if names == ["a text"]:
        return "write a text, in quotation marks"
    return f"write {' or '.join(names)}" if names else ""


def _secret(wanted: type, value: object) -> object:
    if wanted is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError(f"Expected text, got `{type(value).__name__}`")
