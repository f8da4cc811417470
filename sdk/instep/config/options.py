"""Reads a table of a configuration into the options of a plug-in, with errors that name the key."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import EnumMeta
from typing import Any, Final, TypeVar, get_args, get_type_hints

import msgspec

from instep.config.secret import Secret
from instep.errors import ConfigurationError

__all__ = ["read_table", "unknown_classes", "unknown_key"]

T = TypeVar("T", bound=msgspec.Struct)

_CONVERTING: Final = threading.RLock()
"""The structs of plug-ins are known at run time only, and msgspec describes a class at its first
use: one thread at a time (`instep.model.conversion`).
"""
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
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
    close = difflib.get_close_matches(key, known, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return ConfigurationError(
        f"unknown key {key!r}",
        where=where,
        hint=f"{guess}known keys: {', '.join(known)}",
        key=key,
        known=known,
    )


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
        return ConfigurationError(f"the key {key!r} is missing", where=where, key=key)
    text = _TYPE.sub(_in_words, text)
    if not key:
        return ConfigurationError(text, where=where)
    return ConfigurationError(
        f"the key {key!r} is not usable: {text}", where=where, hint=_allowed(struct, key), key=key
    )


def _in_words(types: re.Match[str]) -> str:
    """Types as a reader of TOML names them; as they are where one has no name there."""
    names = [_NAMES_OF_TYPES.get(one) for one in types[1].split(" | ") if one != "null"]
    return " or ".join(name for name in names if name) if all(names) and names else types[0]


def _allowed(struct: type[msgspec.Struct], key: str) -> str:
    """What can be written for a key, `alignment.quiet_s` for one of a table; empty if that is not
    said in a few words.
    """
    found: Any = struct
    for step in key.split("."):
        name, _, index = step.partition("[")
        if not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
            return ""
        fields = dict(zip(found.__struct_encode_fields__, found.__struct_fields__, strict=True))
        if name not in fields:
            return ""
        found = get_type_hints(found)[fields[name]]
        if index and get_args(found):
            found = get_args(found)[0]
    found = [one for one in get_args(found) if one is not type(None)] or [found]
    values = [value for one in found for value in (one if isinstance(one, EnumMeta) else [one])]
    texts = [f'"{value}"' for value in values if isinstance(value, str)]
    if texts:
        return f"write {' or '.join(filter(None, (', '.join(texts[:-1]), texts[-1])))}"
    names = [_NAMES_OF_TYPES[one.__name__] for one in found if one in {int, float, str, bool}]
    return f"write {' or '.join(names)}" if names else ""


def _secret(wanted: type, value: object) -> object:
    if wanted is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError(f"Expected text, got `{type(value).__name__}`")
