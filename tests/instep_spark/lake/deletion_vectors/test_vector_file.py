"""The files of deletion vectors, byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake.exceptions import DeltaProtocolError
from msgspec.structs import replace
from pyroaring import BitMap64

from instep.errors import SinkError
from instep_spark.lake.deletion_vectors.vector_file import (
    DeletionVectorDescriptor,
    read_vector,
    write_vectors,
)

EXAMPLE = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
"""From Delta's PROTOCOL.md, "Deletion Vector Descriptor Schema"."""


def test_vectors_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = [BitMap64([0]), BitMap64(range(100_000)), BitMap64([7, 1 << 40])]
    descriptors = write_vectors(tmp_path, written)
    assert [one.cardinality for one in descriptors] == [1, 100_000, 2]
    assert descriptors[0].offset == 1
    assert [read_vector(tmp_path, one) for one in descriptors] == written
    assert len(list(tmp_path.iterdir())) == 1


def test_the_name_of_a_file_is_decoded_as_in_the_example_of_the_protocol(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read_vector(tmp_path, EXAMPLE)
    wanted = tmp_path / "ab" / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert caught.value.filename == str(wanted)


@pytest.mark.parametrize("at", [3, 12, -1])
@pytest.mark.parametrize("cut", [False, True])
def test_a_torn_file_is_refused(tmp_path: Path, at: int, cut: bool) -> None:
    (descriptor,) = write_vectors(tmp_path, [BitMap64([1, 2, 3])])
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content[:at] if cut else content)
    with pytest.raises(SinkError, match="torn") as caught:
        read_vector(tmp_path, descriptor)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["i", "p"])
def test_vectors_elsewhere_are_not_for_the_driver(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DeltaProtocolError, match=f"type {kind}"):
        read_vector(tmp_path, replace(EXAMPLE, storage_type=kind))
