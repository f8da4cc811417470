"""Delta tables with deletion vectors, made without instep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, TableFeatures, WriterProperties, write_deltalake

from instep_spark.lake.deletion_vectors.delta_log import VECTORS_PROPERTY

__all__ = ["marking_table"]


def marking_table(
    path: Path, rows: pa.Table, *, partition_by: Sequence[str] = (), row_group: int = 100_000
) -> DeltaTable:
    """A table of these rows whose changes are marked in deletion vectors."""
    properties = WriterProperties(max_row_group_size=row_group, write_batch_size=row_group)
    write_deltalake(path, rows, partition_by=list(partition_by), writer_properties=properties)
    table = DeltaTable(path)
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    table.alter.set_table_properties({VECTORS_PROPERTY: "true"})
    return table
