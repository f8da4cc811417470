"""Two streams, one picture: active alarms by severity, each with the name of what it is raised at.

    python examples/alarms.py [URL]

The stream `network` gives the names, the stream `alarms` the alarms (TR-548 ST-3.2). One consumer
follows both into one store; order between two streams is not promised, so a name may be missing for
a moment.
"""

import json
from collections import defaultdict

from simulation import run, store_options

from instep import Consumer
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options

SEVERITIES = ("CRITICAL", "MAJOR", "MINOR", "WARNING", "not stated")


async def names(store: SqlStore) -> dict[str, str]:
    """The name of each entity by its uuid: the first it was given."""
    found = {}
    async for entity in store.reader.entities(stream="network"):
        body = json.loads(entity.body)
        found[body["uuid"]] = next((name["value"] for name in body.get("name", ())), body["uuid"])
    return found


async def active_alarms(store: SqlStore) -> dict[str, list[str]]:
    """The active alarms by severity, in words. An alarm that is clear is no longer in the store."""
    name_of = await names(store)
    found = defaultdict(list)
    async for entity in store.reader.entities(entity_class="CONDITION_DETECTOR"):
        alarm = json.loads(entity.body)
        # What TR-548 4.5 does not make mandatory may be missing.
        legacy = alarm.get("alarm-condition-detector-detail", {}).get("legacy-properties", {})
        place = alarm.get("measured-entity-uuid", "an unknown place")
        found[legacy.get("perceived-severity", SEVERITIES[-1])].append(
            f"{alarm['condition-native-name']} at {name_of.get(place, place)}"
        )
    return found


async def main(endpoint: str, url: str) -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "alarms.py"))
    store = SqlStore(url)
    async with Consumer("alarms", source, store) as consumer:
        await consumer.aligned(timeout_s=60)
        active = await active_alarms(store)
    if not active:
        print("no alarm is active")
        return
    for severity in SEVERITIES:
        print(f"{severity}: {len(active[severity])}")
        for alarm in sorted(active[severity]):
            print(f"  {alarm}")


if __name__ == "__main__":
    run(main, store_options(__doc__))
