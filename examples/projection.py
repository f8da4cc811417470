"""A table of your own, written in the transaction of each commit: the ports of the network.

    python examples/projection.py [URL]

Its rows are never ahead of the store, nor behind it.
"""

from simulation import run, store_options
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, create_engine, func, select

from instep import Consumer
from instep_sql import Field, ProjectedEntity, Projection, SqlStore
from instep_tapi import TapiSource, read_options

PORT = Table(
    "port",
    MetaData(),
    Column("entity_id", BigInteger, primary_key=True),
    Column("uuid", Text, index=True),
    Column("name", Text, nullable=False),
    Column("layer", Text),
    Column("state", Text),
)


def name_of(entity: ProjectedEntity) -> str:
    """Its first name, or its uuid."""
    return next((str(one["value"]) for one in entity.body.get("name", ())), entity.uuid)


PORTS = Projection(
    PORT,
    {
        "NODE_EDGE_POINT": {
            "uuid": "/uuid",
            "name": name_of,
            "layer": "/layer-protocol-name",
            "state": Field("/operational-state", default="UNKNOWN"),
        }
    },
)


async def main(endpoint: str, url: str) -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "projection.py"))
    store = SqlStore(url, projections=[PORTS])
    async with Consumer("projection", source, store) as consumer:
        await consumer.aligned()
    count = select(PORT.c.layer, PORT.c.state, func.count()).group_by(PORT.c.layer, PORT.c.state)
    with create_engine(url).connect() as connection:
        for layer, state, ports in connection.execute(count):
            print(f"{ports} ports of {layer} are {state}")


if __name__ == "__main__":
    run(main, store_options(__doc__))
