"""Many rows are written in order, in few statements."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, event, make_url

from instep_sql.engine.bulk_insert import insert_rows


@pytest.mark.parametrize("columns", [1, 7, 400])
@pytest.mark.parametrize(
    ("count", "in_sqlite", "on_a_server"),
    [(1, [1], [1]), (63, [32, 16, 8, 4, 2, 1], [63]), (130, [128, 2], [64, 64, 2])],
)
def test_few_statements_write_all_rows_in_order(
    database: str, columns: int, count: int, in_sqlite: list[int], on_a_server: list[int]
) -> None:
    url = make_url(database)
    sqlite = url.get_backend_name() == "sqlite"
    engine = create_engine(url if sqlite else url.set(drivername="postgresql+psycopg"))
    names = [f"c{at}" for at in range(columns)]
    rows = [(at, *[at % 3] * (columns - 1)) for at in range(count)]
    sizes: list[int] = []
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TEMP TABLE kept (" + ", ".join(f"{name} INTEGER" for name in names) + ")"
        )

        def note(*call: object) -> None:
            _, _, _, parameters, *_ = call
            assert isinstance(parameters, tuple)
            sizes.append(len(parameters) // columns)

        event.listen(engine, "before_cursor_execute", note)
        insert_rows(connection, f"kept ({', '.join(names)})", rows)
        event.remove(engine, "before_cursor_execute", note)
        found = connection.exec_driver_sql("SELECT * FROM kept ORDER BY c0").all()
    engine.dispose()
    assert [tuple(row) for row in found] == rows
    if columns < 400:
        assert sizes == (in_sqlite if sqlite else on_a_server)
    else:
        # A statement of SQLite has at most 32,766 parameters.
        assert sum(sizes) == count
        assert max(sizes) <= 64
