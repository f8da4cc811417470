"""What the answers have to be: plain loops over the statements of a network, by the meaning that
the pages give each answer. Imports nothing of the product. Times are in microseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from tests.instep_spark.answers.network_kit import START_US, Statement, withdrawn_us

MINUTE_US = 60_000_000
FLAPPING_US = FLOOD_US = 600_000_000
SEVERITIES = ("WARNING", "MINOR", "MAJOR", "CRITICAL")
PLACES = ("NODE", "LINK", "NODE_EDGE_POINT")
TO_GBPS = {"GBPS": 1.0, "MBPS": 1e-3}
Row = tuple[Any, ...]


@dataclass
class Interval:
    """When a body held."""

    key: tuple[str, str, str]
    ordinal: int
    entity_class: str
    body: dict[str, Any]
    parents: tuple[str, ...]
    begin: int
    known_from: int
    end: int | None = None
    end_ordinal: int | None = None
    known_until: int | None = None
    ended_by: str | None = None
    seen: int = 0
    """When it was read last, before its end …"""
    seen_in: int = 0
    """… and in which attempt."""
    ended_in: int = 0
    """The attempt in which its end was read."""
    basis: str = "STATED"
    mark: int = 0
    """The attempt that has decided last that it stays."""
    stated_at: int = 0
    """The append time of the last statement."""

    def held(self, at: int) -> bool:
        return self.begin <= at and (self.end is None or self.end > at)

    @property
    def uuid(self) -> str:
        return str(self.body.get("uuid") or self.key[2])

    @property
    def name(self) -> str | None:
        names = self.body.get("name") or []
        return str(names[0]["value"]) if names else None

    def parent(self, kind: str) -> str | None:
        found = [one.partition(":")[2] for one in self.parents if one.startswith(f"{kind}-uuid:")]
        return found[0] if found else None

    @property
    def node(self) -> str | None:
        return self.uuid if self.entity_class == "NODE" else self.parent("node")

    @property
    def port(self) -> str | None:
        own = self.entity_class == "NODE_EDGE_POINT"
        return self.uuid if own else self.parent("node-edge-point")

    @property
    def ends(self) -> list[tuple[str, str]]:
        if self.entity_class != "LINK":
            return []
        stated = self.body.get("node-edge-point") or self.body.get("link-end") or []
        return [(one["node-uuid"], one["node-edge-point-uuid"]) for one in stated]

    @property
    def routes(self) -> list[list[tuple[str, str]]]:
        return [
            [(one["node-uuid"], one["node-edge-point-uuid"]) for one in r["connection-end-point"]]
            for r in self.body.get("route") or []
        ]

    @property
    def state(self) -> str | None:
        if str(self.body.get("lifecycle-state", "")).startswith("PLANNED"):
            return "planned"
        return {"ENABLED": "up", "DISABLED": "down"}.get(self.body.get("operational-state", ""))


@dataclass
class Episode:
    key: tuple[str, str, str]
    ordinal: int
    raised_at: int
    parents: tuple[str, ...]
    measured: str
    measured_class: str | None
    severity: str
    worst: str
    known_from: int
    flapping: int = 0
    cleared_at: int | None = None
    known_until: int | None = None
    end_ordinal: int | None = None
    swept: bool = False
    seen: int = 0
    doubted_in: int | None = None
    """The attempt after which another one met another statement: there may have been an end."""

    @property
    def node(self) -> str | None:
        found = [o.partition(":")[2] for o in self.parents if o.startswith("node-uuid:")]
        return found[0] if found else (self.measured if self.measured_class == "NODE" else None)


@dataclass
class Oracle:
    """The statements of one consumer, in the order of ordinals by stream. `compaction_us`: of its
    streams; None: not declared.
    """

    rows: list[Statement]
    compaction_us: int | None = None
    history: list[Interval] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._open: dict[tuple[str, str, str], Interval] = {}
        self._last: dict[tuple[str, str, str], Interval] = {}
        self._marks: dict[tuple[str, str, str], int] = {}
        self._offsets: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._alarm: dict[tuple[str, str, str], Episode] = {}
        self._alarms: dict[tuple[str, str, str], Episode] = {}
        self._began: dict[tuple[str, int], int] = {}
        self.delays: dict[tuple[str, int], int] = {}
        """The longest reading delay of each minute of each stream."""
        for row in self.rows:
            self._read(row)

    @property
    def consumer(self) -> str:
        return self.rows[0].consumer

    def _read(self, row: Statement) -> None:
        if row.kind == "ATTEMPT":
            self._began[row.stream, row.attempt] = row.committed_at
            return
        if row.kind == "SWEEP":
            self._sweep(row)
            return
        minute = (row.stream, row.committed_at // MINUTE_US)
        late = row.committed_at - row.appended_at
        self.delays[minute] = max(self.delays.get(minute, late), late)
        key = (row.consumer, row.stream, row.key)
        now = self._open.get(key)
        if row.ends:
            if now is not None:
                self._doubt(key, now, row)
                by = "DELETE" if row.kind == "DELETE" else "CLEAR"
                at = max(row.appended_at, now.begin)
                self._close(now, at, row, by)
                self._clear(key, row.event_at, row, swept=False)
            return
        self._marks[key] = row.attempt
        if now is not None:
            now.basis, now.mark, now.stated_at = "STATED", row.attempt, row.appended_at
            if key in self._alarm:
                self._alarm[key].seen = row.committed_at
            if self._offsets[key] == (row.lineage, row.offset):
                now.seen, now.seen_in = row.committed_at, row.attempt
                return
            self._doubt(key, now, row)
        self._offsets[key] = row.lineage, row.offset
        past = self._last.get(key)
        begin = max(row.appended_at, 0 if past is None else past.end or past.begin)
        if now is not None:
            self._close(now, begin, row, "UPDATE")
        held = Interval(
            *(key, row.ordinal, row.entity_class, row.body, row.parents, begin, row.committed_at),
            seen=row.committed_at,
            seen_in=row.attempt,
            mark=row.attempt,
            stated_at=row.appended_at,
        )
        self._open[key] = self._last[key] = held
        self.history.append(held)
        if row.entity_class == "CONDITION_DETECTOR":
            self._raise(key, row, raised=now is None)

    def _doubt(self, key: tuple[str, str, str], now: Interval, row: Statement) -> None:
        alarm = self._alarm.get(key)
        if alarm is not None and alarm.doubted_in is None and now.seen_in < row.attempt:
            alarm.doubted_in = now.seen_in

    def _close(self, now: Interval, at: int, row: Statement, by: str) -> None:
        now.end, now.end_ordinal, now.ended_by = at, row.ordinal, by
        now.known_until, now.ended_in = row.committed_at, row.attempt
        now.basis = "SWEPT" if by == "SWEEP" else "STATED"
        del self._open[now.key]

    def _raise(self, key: tuple[str, str, str], row: Statement, *, raised: bool) -> None:
        detail = row.body["tapi-streaming:alarm-condition-detector-detail"]
        severity = detail["legacy-properties"]["perceived-severity"]
        if not raised:
            now = self._alarm[key]
            now.severity = severity
            now.worst = max(now.worst, severity, key=SEVERITIES.index)
            return
        last = self._alarms.get(key)
        near = last is not None and row.event_at - (last.cleared_at or 0) <= FLAPPING_US
        self._alarm[key] = self._alarms[key] = Episode(
            *(key, row.ordinal, row.event_at, row.parents, row.body["measured-entity-uuid"]),
            *(row.body.get("measured-entity-class"), severity, severity, row.committed_at),
            flapping=last.flapping + 1 if last is not None and near else 0,
            seen=row.committed_at,
        )
        self.episodes.append(self._alarm[key])

    def _clear(self, key: tuple[str, str, str], at: int, row: Statement, *, swept: bool) -> None:
        if key in self._alarm:
            now = self._alarm.pop(key)
            now.cleared_at, now.swept = max(at, now.raised_at), swept
            now.known_until, now.end_ordinal = row.committed_at, row.ordinal

    def _sweep(self, row: Statement) -> None:
        for key, now in list(self._open.items()):
            if key[1] != row.stream or self._marks[key] >= row.attempt:
                continue
            if row.readable is not None and now.entity_class not in row.readable:
                now.basis, now.mark = "UNPROVEN", row.attempt
                continue
            at = self._began[row.stream, row.attempt]
            self._close(now, max(now.begin, at), row, "SWEEP")
            self._clear(key, at, row, swept=True)

    # How sure.

    def _zone(self, stream: str, committed_at: int | None) -> tuple[bool, int]:
        """Whether that minute, or the newest one, was read in full fidelity; else how late."""
        if committed_at is None:
            minute = max(m for s, m in self.delays if s == stream)
        else:
            minute = committed_at // MINUTE_US
        delay = self.delays.get((stream, minute), 0)
        return self.compaction_us is None or delay <= self.compaction_us, delay

    def _heard(self, stream: str, attempt: int) -> int:
        """The last time of which that attempt has read something."""
        return max(
            row.committed_at if row.kind == "SWEEP" else row.appended_at
            for row in self.rows
            if row.stream == stream and row.attempt == attempt and row.kind != "ATTEMPT"
        )

    def proven_until(self, one: Interval) -> int:
        """Behind it nothing proves that the body held."""
        stream = one.key[1]
        known = []
        if one.end is not None:
            full, delay = self._zone(stream, one.known_until)
            known.append(one.end if full else one.end - delay)
        if one.basis != "STATED":
            known.append(one.seen)
        if one.end is None or (one.basis == "STATED" and one.seen_in < one.ended_in):
            known.append(self._heard(stream, one.seen_in))
        return max(one.begin, min(known))

    # Answers, each as rows of the columns that `ANSWERS` names.

    @property
    def current(self) -> list[Interval]:
        return [one for one in self.history if one.end is None]

    # What is proven.

    @property
    def told(self) -> bool:
        """Whether the reasons of attempts are known."""
        return int(self.consumer[1:]) % 2 == 0

    def stream_states(self) -> list[Row]:
        number = int(self.consumer[1:])
        since = withdrawn_us(number)
        alarms = ("alarms", "not-offered", since) if since else ("alarms", "offered", None)
        retired = [("gone", "retired", START_US + 3)] if number % 5 == 0 else []
        return [("net", "offered", None), alarms, *retired]

    def entity_proof(self) -> list[Row]:
        sweeps = {(r.stream, r.attempt): r for r in self.rows if r.kind == "SWEEP"}
        rows: list[Row] = []
        for one in self.current:
            sweep = sweeps.get((one.key[1], one.mark))
            by, at = "record", one.stated_at
            in_doubt = one.basis == "UNPROVEN"
            if sweep is not None and not in_doubt and sweep.committed_at >= at:
                by = "attempt" if sweep.readable is None else "baseline"
                at = sweep.committed_at
            why = None
            if one.key[1] == "alarms" and withdrawn_us(int(self.consumer[1:])):
                why = "not-offered"
            elif in_doubt:
                why = f"unreadable-element {one.entity_class.lower()}"
                why = why if self.told else "no-resource"
            rows.append((one.key[1], one.key[2], one.mark, by, at, why))
        return rows

    def of_class(self, *classes: str) -> list[Interval]:
        return [one for one in self.current if one.entity_class in classes]

    @staticmethod
    def _edges(links: Iterable[Interval]) -> Iterator[tuple[Interval, Row]]:
        for link in links:
            for at, near in enumerate(link.ends):
                for other, far in enumerate(link.ends):
                    one_way = link.body.get("direction") == "UNIDIRECTIONAL"
                    if at != other and near != far and not (one_way and at > 0):
                        yield link, (link.uuid, link.name, *near, *far)

    def edges(self) -> list[Row]:
        return [edge for _, edge in self._edges(self.of_class("LINK"))]

    def edge_history(self) -> list[Row]:
        links = [one for one in self.history if one.entity_class == "LINK"]
        return [(*edge, link.begin, link.end) for link, edge in self._edges(links)]

    def _only_link(self, links: Iterable[Interval], port: str | None) -> str | None:
        at = {link.uuid for link in links if port in [p for _, p in link.ends]}
        return at.pop() if port is not None and len(at) == 1 else None

    def _place(self, alarm: Episode, now: Callable[[Interval], bool]) -> Row:
        """Node, its name, link, its name and end point of an alarm among what there is."""
        there = [one for one in self.history if one.entity_class in PLACES and now(one)]
        by_uuid = {one.uuid: one for one in there}
        place = by_uuid.get(alarm.measured)
        node = alarm.node or (place.node if place else None)
        port = place.port if place else None
        if place is not None and place.entity_class == "LINK":
            link: str | None = place.uuid
        else:
            link = self._only_link([o for o in there if o.entity_class == "LINK"], port)
        at_node, at_link = by_uuid.get(node or ""), by_uuid.get(link or "")
        is_node = at_node is not None and at_node.entity_class == "NODE"
        return (
            node,
            at_node.name if at_node and is_node else None,
            link,
            at_link.name if at_link else None,
            port,
        )

    def alarm_places(self) -> list[Row]:
        return [
            (a.key[2], a.ordinal, *self._place(a, lambda one: one.end is None)[:4])
            for a in self.episodes
        ]

    def alarm_places_at_raise(self) -> list[Row]:
        return [
            (a.key[2], a.ordinal, *self._place(a, partial(Interval.held, at=a.raised_at))[:4])
            for a in self.episodes
        ]

    def _hops(self) -> Iterator[Row]:
        ports: dict[str, set[str]] = defaultdict(set)
        for link in self.of_class("LINK"):
            for _, port in link.ends:
                ports[port].add(link.uuid)
        for connection in self.of_class("CONNECTION"):
            for route, passed in enumerate(connection.routes):
                fitting: list[set[str]] = []
                for (_, near), (_, far) in pairwise(passed):
                    fitting.append(ports[near] & ports[far] if near != far else set())
                for position, (node, port) in enumerate(passed):
                    sides = fitting[max(0, position - 1) : position + 1]
                    certain: set[str] = set().union(*(one for one in sides if len(one) == 1))
                    crossed: set[str] = set().union(*sides)
                    hop = (connection.uuid, route, position, node, port)
                    for uuid in crossed or ports[port]:
                        yield (*hop, uuid, "ROUTE" if uuid in certain else "POSSIBLE")
                    if not (crossed or ports[port]):
                        yield (*hop, None, None)

    def connection_hops(self) -> list[Row]:
        return list(self._hops())

    def _serving(self) -> dict[str, list[Interval]]:
        serving = defaultdict(list)
        for service in self.of_class("CONNECTIVITY_SERVICE"):
            for one in service.body.get("connection") or []:
                serving[one["connection-uuid"]].append(service)
        return serving

    def failure_impact(self) -> list[Row]:
        hit: dict[tuple[str, str, str], set[int]] = defaultdict(set)
        certain = set()
        for connection, route, _, node, port, link, basis in self._hops():
            for kind, uuid in (("NODE", node), ("NODE_EDGE_POINT", port), ("LINK", link)):
                if uuid is not None:
                    hit[kind, uuid, connection].add(route)
                    if kind != "LINK" or basis == "ROUTE":
                        certain.add((kind, uuid, connection))
        serving = self._serving()
        found = {one.uuid: one for one in self.of_class("CONNECTION")}
        names = {(one.entity_class, one.uuid): one.name for one in self.of_class(*PLACES)}
        rows: list[Row] = []
        for (kind, uuid, connection), routes in hit.items():
            known = found[connection]
            of = sum(1 for one in known.routes if one)
            basis = "ROUTE" if (kind, uuid, connection) in certain else "POSSIBLE"
            row: Row = (kind, uuid, names.get((kind, uuid)), basis, connection, known.name)
            row += (of, len(routes), len(routes) < of)
            services: list[Row] = [(one.uuid, one.name) for one in serving[connection]]
            rows += [(*row, *one) for one in services or [(None, None)]]
        return rows

    def impact(self) -> list[Row]:
        failing = defaultdict(list)
        for (
            kind,
            uuid,
            _,
            basis,
            connection,
            _,
            routes,
            hit,
            spared,
            *service,
        ) in self.failure_impact():
            failing[kind, uuid].append((connection, basis, routes, hit, spared, *service))
        serving = self._serving()
        rows: list[Row] = []
        for alarm in self.episodes:
            if alarm.cleared_at is not None:
                continue
            node, _, link, _, port = self._place(alarm, lambda one: one.end is None)
            at = ("LINK", link) if link else ("NODE_EDGE_POINT", port) if port else ("NODE", node)
            rows += [(alarm.key[2], *one) for one in failing[at]]
            for one in self.of_class("CONNECTION", "CONNECTIVITY_SERVICE"):
                if one.uuid != alarm.measured:
                    continue
                if alarm.measured_class not in (None, one.entity_class):
                    continue
                if one.entity_class == "CONNECTIVITY_SERVICE":
                    own: list[Row] = [(None, "ROUTE", None, None, None, one.uuid, one.name)]
                else:
                    hit_by: list[Row] = [(s.uuid, s.name) for s in serving[one.uuid]]
                    rest = hit_by or [(None, None)]
                    own = [(one.uuid, "ROUTE", None, None, None, *s) for s in rest]
                rows += [(alarm.key[2], *row) for row in own]
        return rows

    @staticmethod
    def _size(stated: dict[str, Any] | None) -> tuple[float, str] | None:
        if stated is None:
            return None
        size = stated["total-size"]
        return float(size["value"]), size["unit"].rpartition(":")[2].removeprefix("CAPACITY_UNIT_")

    def link_capacity(self) -> list[Row]:
        rows: list[Row] = []
        for link in self.of_class("LINK"):
            total = self._size(link.body.get("total-potential-capacity"))
            free = self._size(link.body.get("available-capacity"))
            left = None
            if total and free:
                if total[1] == free[1]:
                    left = free[0]
                elif {total[1], free[1]} <= TO_GBPS.keys():
                    left = free[0] * TO_GBPS[free[1]] / TO_GBPS[total[1]]
            used = total[0] - left if total and left is not None else None
            rows.append((link.uuid, total and total[0], left, used, total and total[1]))
        return rows

    def link_load(self) -> list[Row]:
        asked = {}
        for service in self.of_class("CONNECTIVITY_SERVICE"):
            inner = service.body.get("connectivity-constraint") or {}
            stated = service.body.get("requested-capacity") or inner.get("requested-capacity")
            if size := self._size(stated):
                rate = size[1] in TO_GBPS
                unit = "GBPS" if rate else size[1].upper()
                asked[service.uuid] = (size[0] * TO_GBPS.get(size[1], 1.0), unit)
        over: dict[tuple[str, str], str] = {}
        for kind, uuid, _, basis, *_, service_uuid, _ in self.failure_impact():
            if kind == "LINK" and service_uuid in asked:
                pair = (uuid, service_uuid)
                over[pair] = max(over.get(pair, basis), basis)
        sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for (link, service_uuid), basis in sorted(over.items()):
            capacity, unit = asked[service_uuid]
            one = sums[link, unit]
            one[0] += capacity if basis == "ROUTE" else 0
            one[1] += capacity
            one[2] += 1
        return [(*key, *one) for key, one in sums.items()]

    def _names(self) -> dict[tuple[str, str, str], str | None]:
        return {one.key: one.name for one in self.history if one.name is not None}

    def availability(self) -> list[Row]:
        names = self._names()
        return [
            (
                one.key[1],
                one.key[2],
                one.key[2],
                names.get(one.key),
                one.state,
                one.begin,
                one.end,
                self.proven_until(one),
            )
            for one in self.history
            if one.state is not None and one.entity_class != "CONDITION_DETECTOR"
        ]

    def availability_between(self, low: int, high: int) -> list[Row]:
        names = self._names()
        spells = defaultdict(list)
        for one in self.history:
            begin, end = max(low, one.begin), min(high, high if one.end is None else one.end)
            if one.state is not None and begin < end:
                proven = self.proven_until(one)
                sure = max(begin, min(end, proven)) - begin
                spells[one.key].append((begin, end, one.state, sure))
        rows: list[Row] = []
        for key, found in spells.items():
            found.sort()
            time: Counter[str] = Counter()
            sure_time: Counter[str] = Counter()
            failures, before, since = 0, "", 0
            for begin, end, state, sure in found:
                time[state] += end - begin
                sure_time[state] += sure
                failures += state == "down" and not (before == "down" and since == begin)
                before, since = state, end
            unknown = high - low - sum(time.values())
            unproven = sum(time.values()) - sum(sure_time.values())
            known = time["up"] + time["down"]
            judged = sure_time["up"] + sure_time["down"] + unproven
            rows.append(
                (
                    *(key[1], key[2], names.get(key), (high - low) / 1e6),
                    *(time[one] / 1e6 for one in ("up", "down", "planned")),
                    *(unknown / 1e6, unproven / 1e6),
                    100 * time["up"] / known if known else None,
                    100 * sure_time["up"] / judged if judged else None,
                    100 * (sure_time["up"] + unproven) / judged if judged else None,
                    failures,
                    time["down"] / 1e6 / failures if failures else None,
                    time["up"] / 1e6 / failures if failures else None,
                )
            )
        return rows

    def flapping(self) -> list[Row]:
        worst: dict[tuple[str, str], list[Episode]] = defaultdict(list)
        for one in self.episodes:
            worst[one.key[1], one.key[2]].append(one)
        return [
            (*key, max(o.flapping for o in those), len(those), max(o.raised_at for o in those))
            for key, those in worst.items()
            if max(o.flapping for o in those)
        ]

    def alarm_floods(self) -> list[Row]:
        floods = defaultdict(list)
        for one in self.episodes:
            floods[one.raised_at - one.raised_at % FLOOD_US].append(one)
        return [
            (since, len(those), sum(one.worst == "CRITICAL" for one in those))
            for since, those in floods.items()
            if len(those) > 10
        ]

    def repair_between(self, low: int, high: int) -> list[Row]:
        ended = defaultdict(list)
        for one in self.episodes:
            if one.cleared_at is not None and low <= one.cleared_at < high:
                full, delay = self._zone(one.key[1], one.known_until)
                proven = min(
                    one.seen if one.swept else one.cleared_at,
                    one.cleared_at if full else one.cleared_at - delay,
                    self._heard(one.key[1], one.doubted_in) if one.doubted_in else one.cleared_at,
                )
                unproven = one.cleared_at - max(one.raised_at, min(one.cleared_at, proven))
                ended[one.worst].append((one.cleared_at - one.raised_at, unproven, one.swept))
        return [
            (
                severity,
                sum(d for d, _, _ in those) / 1e6 / len(those),
                max(d for d, _, _ in those) / 1e6,
                sum(u for _, u, _ in those) / 1e6 / len(those),
                len(those),
                sum(swept for *_, swept in those),
            )
            for severity, those in ended.items()
        ]

    def topology_at(self, moment: int) -> list[Row]:
        none = (None, None)
        return [
            (
                *(one.entity_class, one.uuid, one.name, one.node, one.port),
                *(one.ends[0] if one.ends else none),
                *(one.ends[-1] if one.ends else none),
                len(one.ends) if one.ends else None,
                one.body.get("operational-state"),
            )
            for one in self.history
            if one.entity_class in PLACES and one.held(moment)
        ]

    def entities_at(self, moment: int, as_of: int) -> list[Row]:
        known = {(r.stream, r.ordinal) for r in self.rows if r.committed_at <= as_of}
        return [
            (one.key[1], one.key[2], one.ordinal)
            for one in self.history
            if (one.key[1], one.ordinal) in known
            and one.begin <= moment
            and (one.end is None or one.end > moment or (one.key[1], one.end_ordinal) not in known)
        ]

    def alarm_hourly(self) -> list[Row]:
        hours: dict[Row, list[Episode]] = defaultdict(list)
        for one in self.episodes:
            node, name, *_ = self._place(one, lambda there: there.end is None)
            hour = one.raised_at - one.raised_at % 3_600_000_000
            hours[hour, node, name, one.worst].append(one)
        return [
            (
                *key,
                len(those),
                None
                if not (
                    d := [o.cleared_at - o.raised_at for o in those if o.cleared_at is not None]
                )
                else sum(d) / 1e6,
            )
            for key, those in hours.items()
        ]


ANSWERS: dict[str, str] = {
    "stream_states": "stream, state, since",
    "entity_proof": "stream, id, attempt, proven_by, proven_at, unproven",
    "edges": "link_uuid, link_name, from_node_uuid, from_nep_uuid, to_node_uuid, to_nep_uuid",
    "edge_history": "link_uuid, link_name, from_node_uuid, from_nep_uuid, to_node_uuid, "
    "to_nep_uuid, valid_from, valid_to",
    "alarm_places": "id, episode, node_uuid, node_name, link_uuid, link_name",
    "alarm_places_at_raise": "id, episode, node_uuid, node_name, link_uuid, link_name",
    "connection_hops": "connection_uuid, route, position, node_uuid, nep_uuid, link_uuid, "
    "link_basis",
    "failure_impact": "failed_class, failed_uuid, failed_name, basis, connection_uuid, "
    "connection_name, routes, routes_hit, protected, service_uuid, service_name",
    "impact": "alarm_id, connection_uuid, basis, routes, routes_hit, protected, service_uuid, "
    "service_name",
    "link_capacity": "link_uuid, total, free, used, unit",
    "link_load": "link_uuid, unit, requested, requested_at_most, services",
    "availability": "stream, id, uuid, name, state, valid_from, valid_to, proven_until",
    "availability_between": "stream, id, name, window_s, up_s, down_s, planned_s, unknown_s, "
    "unproven_s, percent, percent_at_least, percent_at_most, failures, mttr_s, mtbf_s",
    "flapping": "stream, id, raises, episodes, last_raised_at",
    "alarm_floods": "since, raised, critical",
    "alarm_hourly": "hour, node_uuid, node_name, severity, raised, duration_s",
    "repair_between": "worst_severity, mttr_s, longest_s, give_or_take_s, episodes, uncertain",
    "topology_at": "class, uuid, name, node_uuid, nep_uuid, a_node_uuid, a_nep_uuid, z_node_uuid, "
    "z_nep_uuid, end_count, operational_state",
    "entities_at": "stream, id, ordinal",
}
"""The columns of each answer that the oracle tells, in its order, after the consumer."""
