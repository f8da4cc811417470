"""Deletion vectors: which rows of a data file are deleted, as Delta writes them.

Delta's PROTOCOL.md, "Deletion Vectors" and "Deletion Vector Format".
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from deltalake.exceptions import DeltaProtocolError
from pyroaring import BitMap64

from instep.errors import SinkError
from instep.model.conversion import converter

__all__ = ["DeletionVectorDescriptor", "descriptor_of", "read_vector", "write_vectors"]

_VERSION: Final = 1
_MAGIC: Final = 1_681_511_377
_UUID_CHARS: Final = 20
_B85: Final = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
_Z85: Final = (
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_TO_Z85: Final = bytes.maketrans(_B85, _Z85)
_FROM_Z85: Final = bytes.maketrans(_Z85, _B85)


class DeletionVectorDescriptor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where the deletion vector of a data file stands ("Deletion Vector Descriptor Schema")."""

    storage_type: str
    """`u`: a file in the folder of the table; `p`: a file anywhere; `i`: the descriptor itself."""
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    """How many rows are deleted."""
    offset: int | None = None
    """Of the vector in the file, in bytes."""


descriptor_of: Final = converter(DeletionVectorDescriptor)
"""A descriptor from the plain data of an action. Raises `msgspec.ValidationError`."""


def write_vectors(folder: Path, deleted: Sequence[BitMap64]) -> list[DeletionVectorDescriptor]:
    """Write one file into the folder of a table, with the positions of the deleted rows of a data
    file each.
    """
    name = uuid.uuid4()
    content = bytearray([_VERSION])
    descriptors = []
    for positions in deleted:
        data = struct.pack("<I", _MAGIC) + positions.serialize()
        descriptors.append(
            DeletionVectorDescriptor(
                "u",
                base64.b85encode(name.bytes).translate(_TO_Z85).decode(),
                len(data),
                len(positions),
                len(content),
            )
        )
        content += struct.pack(">I", len(data)) + data + _checksum(data)
    _path(folder, name).write_bytes(content)
    return descriptors


def read_vector(folder: Path, descriptor: DeletionVectorDescriptor) -> BitMap64:
    """Return the positions of the deleted rows. Raises `SinkError` where the file is torn, and
    `DeltaProtocolError` for a vector that is not in the folder of the table.
    """
    if descriptor.storage_type != "u" or descriptor.offset is None:
        raise DeltaProtocolError(f"a deletion vector of type {descriptor.storage_type}")
    stated = descriptor.path_or_inline_dv
    prefix, encoded = stated[:-_UUID_CHARS], stated[-_UUID_CHARS:]
    name = uuid.UUID(bytes=base64.b85decode(encoded.encode().translate(_FROM_Z85)))
    path = _path(folder / prefix, name)
    with path.open("rb") as file:
        file.seek(descriptor.offset)
        size = file.read(4)
        data = file.read(descriptor.size_in_bytes)
        checksum = file.read(4)
    whole = size == struct.pack(">I", descriptor.size_in_bytes) and checksum == _checksum(data)
    if not whole or data[:4] != struct.pack("<I", _MAGIC):
        raise SinkError(
            "a deletion vector is torn",
            where=str(path),
            hint="restore the file, or the table to a version before it",
        )
    return BitMap64.deserialize(data[4:])


def _checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


def _path(folder: Path, name: uuid.UUID) -> Path:
    return folder / f"deletion_vector_{name}.bin"
