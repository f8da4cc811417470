"""The scenarios of the official sequence tables (TAPI notification and streaming sequences), each
played by the provider: the store ends as the table says, and the journal has what the table lists.

A row that may come several times (Multiplicity) is played with two entities. A stream carries what
the table names as its context. Rows without a streaming record are not played.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from instep import ChangeKind, Consumer
from instep_sql import SqlStore
from instep_tapi.plugin import source
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from instep_tapi_provider.records import Statement
from tests.end_to_end.site_kit import QUICK, site

CONTEXTS = {
    "Physical": ("DEVICE", "HOLDER", "EQUIPMENT", "ACCESS_PORT", "PHYSICAL_SPAN"),
    "Topology": ("NODE", "TOPOLOGY", "NODE_EDGE_POINT", "LINK"),
    "Connectivity": (
        "CONNECTIVITY_SERVICE",
        "CONNECTION",
        "CONNECTION_END_POINT",
        "SWITCH_CONTROL",
    ),
    "Common": ("SERVICE_INTERFACE_POINT",),
}
SHORT = {
    "ACESS_PORT": "ACCESS_PORT",
    "NEP": "NODE_EDGE_POINT",
    "CEP": "CONNECTION_END_POINT",
    "CS": "CONNECTIVITY_SERVICE",
    "SIP": "SERVICE_INTERFACE_POINT",
}
PARENTS = {
    "HOLDER": ["device-uuid:DEVICE-0"],
    "EQUIPMENT": ["device-uuid:DEVICE-0"],
    "ACCESS_PORT": ["device-uuid:DEVICE-0"],
    "NODE": ["topology-uuid:TOPOLOGY-0"],
    "LINK": ["topology-uuid:TOPOLOGY-0"],
    "NODE_EDGE_POINT": ["topology-uuid:TOPOLOGY-0", "node-uuid:NODE-0"],
    "CONNECTION_END_POINT": [
        "topology-uuid:TOPOLOGY-0",
        "node-uuid:NODE-0",
        "node-edge-point-uuid:NODE_EDGE_POINT-0",
    ],
    "SWITCH_CONTROL": ["connection-uuid:CONNECTION-0"],
}
OPERATIONS = {
    "OBJECT_CREATION": ChangeKind.CREATED,
    "ATTRIBUTE_VALUE_CHANGE": ChangeKind.UPDATED,
    "OBJECT_DELETION": ChangeKind.DELETED,
}
SCENARIOS = (
    "physical 1 New Device (highly equipped subrack)",
    "physical 2 New Device (subrack with common equipment only)",
    "physical 3 New Equipment (subrack)",
    "physical 4 New Equipment (common equipment)",
    "physical 5 New Equipment (traffic equipment with empty sub-slot for pluggable)",
    "physical 6 New Equipment (traffic equipment) --> Line Board with native optical port",
    "physical 7 New Equipment (pluggable insertion)",
    "physical 8 New Equipment (Cross-Connection Boards, switching fabrics)",
    "physical 9 Delete Equipment (traffic equipment) --> Line Board with native optical port",
    "physical 10 Delete Equipment (pluggable insertion)",
    "connectivity 1 New CS",
    "connectivity 2 Remove CS",
    "connectivity 3 Change CS",
    "connectivity 4 Connection Route Change (Selected Route Change)",
    "connectivity 5 Connection Route Change (Route Details Change)",
    "connectivity 6 Switching Change",
    "topology 1 New Node",
    "topology 2 Removing Node",
    "topology 3 New Link",
    "topology 4 Remove Link",
    "topology 5 Link Status Change",
    "topology 6 New NEP",
    "topology 7 Removing NEP",
    "topology 8 NEP Change",
    "topology 9 NEP Status Change",
)
# Its rows say CREATE_UPDATE, and their remarks "deletion of": copied from the insertion.
MEANT_AS_DELETION = "physical 10 Delete Equipment (pluggable insertion)"


@dataclass(frozen=True)
class Row:
    """One row of a table: what happens to how many entities of a class."""

    change: ChangeKind
    entity_class: str
    entities: int
    mandatory: bool
    related: bool


def tables(shared_data: Path) -> dict[str, list[Row]]:
    """The streaming rows of each scenario."""
    file = shared_data / "tapi" / "tapi_notification_streaming_sequences.json"
    read = json.loads(file.read_text(encoding="utf-8"))
    found: dict[str, list[Row]] = {}
    for sheet, (head, *lines) in read.items():
        if "Test Name" not in head:
            continue  # remarks about use cases
        record, streamed = head.index("MAIN TAPI Streaming Record Type"), "streamed Object"
        related = head.index("RELATED TAPI Streaming Record Type")
        condition = head.index("Mandatory / Conditional (M/C)")
        many = head.index("Multiplicity (Yes / No)")
        name = ""
        for line in lines:
            if line[0] is not None:
                name = f"{sheet.partition('-')[0]} {line[0]} {line[1].strip()}"
                main = head.index(f"MAIN {streamed}")
                found[name] = rows(line[record - 1], line[record], line[main])
            found[name] += rows(
                "OBJECT_DELETION"
                if name == MEANT_AS_DELETION and line[related - 1] == "OBJECT_CREATION"
                else line[related - 1],
                line[related],
                line[head.index(f"RELATED {streamed}")],
                entities=1 + (line[many] == "Yes"),
                mandatory=line[condition] == "M",
                related=True,
            )
    return found


def rows(
    notification: str,
    record: str | None,
    entity: str,
    *,
    entities: int = 1,
    mandatory: bool = True,
    related: bool = False,
) -> list[Row]:
    if record not in ("CREATE_UPDATE", "DELETE"):
        return []
    name = entity.upper().replace(" ", "_")
    change = OPERATIONS[notification]
    return [Row(change, SHORT.get(name, name), entities, mandatory, related)]


@dataclass
class Played:
    """What a scenario says of entities, and what must be stored then."""

    provider: Provider
    stored: dict[str, tuple[str, int]] = field(default_factory=dict)
    changes: Counter[tuple[str, ChangeKind]] = field(default_factory=Counter)

    def state(self, entity_class: str, key: str) -> None:
        """State an entity that is new, or in its next version."""
        version = self.stored[key][1] + 1 if key in self.stored else 0
        self.stored[key] = entity_class, version
        body: dict[str, Any] = {"uuid": key, "name": [{"value-name": "version", "value": version}]}
        self._stream(entity_class).publish(
            Statement(
                key,
                entity_class,
                json.dumps(body).encode(),
                tuple(PARENTS.get(entity_class, ())),
            )
        )

    def end(self, entity_class: str, key: str) -> None:
        del self.stored[key]
        self._stream(entity_class).end(key)

    def _stream(self, entity_class: str) -> Any:
        return next(one for one in self.provider.streams if entity_class in one.classes)

    def play(self, rows: list[Row], chance: random.Random) -> None:
        """Play the rows of each class in the order of a life; those of other classes between."""
        created: Counter[str] = Counter()
        ended: Counter[str] = Counter()
        for row in rows:
            created[row.entity_class] += row.entities * (row.change is ChangeKind.CREATED)
            ended[row.entity_class] += row.entities * (row.change is ChangeKind.DELETED)
        lives: dict[str, list[tuple[ChangeKind, str]]] = {}
        for row in sorted(rows, key=lambda row: list(OPERATIONS.values()).index(row.change)):
            life = lives.setdefault(row.entity_class, [])
            name = row.entity_class
            match row.change:
                case ChangeKind.CREATED:
                    first = sum(change is ChangeKind.CREATED for change, _ in life)
                    keys = [f"{name}-new-{first + at}" for at in range(row.entities)]
                case ChangeKind.DELETED:
                    first = sum(change is ChangeKind.DELETED for change, _ in life)
                    keys = [f"{name}-{1 + first + at}" for at in range(row.entities)]
                case _ if created[name]:  # its states while it is made
                    keys = [f"{name}-new-{at % created[name]}" for at in range(row.entities)]
                case _:  # its states before it ends, or of one that stays
                    keys = [f"{name}-{1 + at}" for at in range(row.entities)]
            life += [(row.change, key) for key in keys]
        while lives:
            name = chance.choice(sorted(lives))
            change, key = lives[name].pop(0)
            self.changes[name, change] += 1
            if change is ChangeKind.DELETED:
                self.end(name, key)
            else:
                self.state(name, key)
            if not lives[name]:
                del lives[name]


def test_no_scenario_is_left_out(shared_data: Path) -> None:
    assert list(tables(shared_data)) == list(SCENARIOS)


@pytest.mark.asyncio
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_store_ends_as_the_table_says(
    scenario: str, shared_data: Path, tmp_path: Path
) -> None:
    listed = tables(shared_data)[scenario]
    streams = tuple(StreamSettings(n, classes=frozenset(of)) for n, of in CONTEXTS.items())
    served = Provider(None, ProviderSettings(streams=streams))
    played = Played(served)
    for entity_class in sum(CONTEXTS.values(), ()):
        for number in range(8):
            played.state(entity_class, f"{entity_class}-{number}")
    async with site(served, tmp_path) as here:
        store = SqlStore(here.url, journal="changes")
        built = source.build({"endpoints": [served.url]}, "test")
        async with Consumer("test", built, store, QUICK):
            await here.read_to_the_end(*CONTEXTS)
            before = await store.reader.newest_cursor()
            played.changes.clear()
            played.play(listed, random.Random(scenario))
            await here.read_to_the_end(*CONTEXTS)
            told = Counter([(one.entity_class, one.change) async for one in store.changes(before)])
            held = {name: await here.store(name) for name in CONTEXTS}
    said: Counter[tuple[str, ChangeKind]] = Counter()
    for row in listed:
        said[row.entity_class, row.change] += row.entities
    assert told == said
    assert {
        key: body["name"][0]["value"] for stream in held.values() for key, body in stream.items()
    } == {key: version for key, (_, version) in played.stored.items()}
