"""Reads a table of a configuration into the options of a plug-in, with errors that name the key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from instep.config.secret import Secret
from instep.errors import ConfigurationError

__all__ = ["read_table", "unknown_key"]

T = TypeVar("T", bound=msgspec.Struct)


def read_table(
    struct: type[T], table: object, where: str, *, required: Mapping[str, str] | None = None
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
                    hint=f'for example {key} = "{example}"',
                    key=key,
                )
    try:
        return msgspec.convert(table, struct, dec_hook=_secret, builtin_types=())
    except msgspec.ValidationError as error:
        raise _not_usable(error, where) from None


def unknown_key(key: str, known: Iterable[str], where: str) -> ConfigurationError:
    """The error for an unknown key, with the likely key and all known ones."""
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


def _not_usable(error: msgspec.ValidationError, where: str) -> ConfigurationError:
    text, _, at = str(error).partition(" - at `$")
    key = at.rstrip("`").removeprefix(".")
    if not key:
        return ConfigurationError(text, where=where)
    return ConfigurationError(f"the key {key!r} is not usable: {text}", where=where, key=key)


def _secret(wanted: type, value: object) -> object:
    if wanted is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError(f"Expected text, got `{type(value).__name__}`")
