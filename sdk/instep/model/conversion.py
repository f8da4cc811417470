"""Plain data into a type, by what is made at import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

__all__ = ["converter"]

T = TypeVar("T")


def converter(type_: type[T]) -> Callable[[Any], T]:
    """`msgspec.convert` to this type. Call it at the level of a module.

    msgspec describes a class at its first use, and while it does, a second thread reads the half of
    it that is there: the process dies of SIGSEGV. A decoder describes all classes that it needs
    when it is made, so it is made while the module is imported, in one thread.
    """
    msgspec.json.Decoder(type_)
    convert = msgspec.convert

    # Not `partial`: it takes half as long again.
    def convert_to_type(data: Any) -> T:
        return convert(data, type_)

    return convert_to_type
