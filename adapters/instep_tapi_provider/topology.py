"""A real backbone from topohub, expanded into a TAPI context: `sndlib/germany50` and some 700
others.

Each site is a photonic node with a network port per fibre and client ports for its services; each
fibre is a link; each of the largest demands is a connectivity service with its top-level
connection, routed over the shortest path by the fibres' lengths, with a connection-end-point at
every port on the way. Names are those of the sites. Uuids are derived from the names, so they are
the same every time.
"""

import heapq
import uuid
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from instep.errors import ConfigurationError
from instep_tapi.facts.stream_profile import TAPI_2_1_3, TAPI_2_6
from instep_tapi_provider.context import Context

Json = dict[str, Any]

_NAMESPACE = uuid.UUID("5d8f1c34-61d6-5a4b-90f5-5b8f62b6f1b7")
_STATES = {
    "administrative-state": "UNLOCKED",
    "operational-state": "ENABLED",
    "lifecycle-state": "INSTALLED",
}
_FIBRE_KM_PER_S = 200_000
_LAYER = "PHOTONIC_MEDIA"


@dataclass(frozen=True, slots=True)
class Site:
    """A site of the backbone: its id in the source, name, and (longitude, latitude)."""

    id: str
    name: str
    position: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Fibre:
    """A fibre pair between two sites, by their ids."""

    a: str
    b: str
    length_km: float


@dataclass(slots=True)
class Backbone:
    """Sites, fibres, and the demands between sites, the largest first."""

    name: str
    sites: dict[str, Site]
    fibres: list[Fibre]
    demands: list[tuple[str, str, float]] = field(default_factory=list)


def backbone(name: str) -> Backbone:
    """A backbone of topohub by its name. Raises ConfigurationError when there is none of that
    name.
    """
    try:
        import topohub  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, for this only
    except ImportError as error:
        raise ConfigurationError(
            "the package topohub is not installed",
            where=name,
            hint='pip install "instep[simulator]"',
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it leaves closing its file to chance
            graph = topohub.get(name)
    except (KeyError, OSError, ValueError) as error:
        raise ConfigurationError(
            "topohub has no such topology", where=name, hint="for example sndlib/germany50"
        ) from error
    sites = {
        str(n["id"]): Site(str(n["id"]), str(n.get("name") or n["id"]), tuple(n["pos"]))
        for n in graph["nodes"]
    }
    fibres = [Fibre(str(e["source"]), str(e["target"]), float(e["dist"])) for e in graph["edges"]]
    # Demands are given each way; a service is for both.
    wanted: dict[tuple[str, str], float] = defaultdict(float)
    for source, targets in (graph["graph"].get("demands") or {}).items():
        for target, volume in targets.items():
            a, b = sorted((str(source), str(target)))
            wanted[a, b] += float(volume)
    demands = [(a, b, v) for (a, b), v in wanted.items() if a != b and a in sites and b in sites]
    demands.sort(key=lambda demand: (-demand[2], demand[:2]))
    return Backbone(name, sites, fibres, demands)


def topology_context(name: str, *, services: int = 200, tapi: str = TAPI_2_1_3) -> Context:
    """A backbone of topohub as a TAPI context of this edition, with so many of its largest demands
    as services.

    Where the source has no demands, services go between the sites that are best connected.
    """
    return Context(_Builder(backbone(name), tapi).build(services), f"topology {name}")


class _Builder:
    """Collects the parts of the context while the routes are laid."""

    def __init__(self, network: Backbone, tapi: str) -> None:
        self._network = network
        self._is_2_6 = tapi == TAPI_2_6
        self._topology_uuid = self._uuid("topology")
        self._neighbours: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
        for number, fibre in enumerate(network.fibres):
            self._neighbours[fibre.a].append((fibre.b, number, fibre.length_km))
            self._neighbours[fibre.b].append((fibre.a, number, fibre.length_km))
        self._ports: dict[str, dict[str, Json]] = {site: {} for site in network.sites}
        self._sips: list[Json] = []
        self._services: list[Json] = []
        self._connections: list[Json] = []

    def _uuid(self, what: str) -> str:
        return str(uuid.uuid5(_NAMESPACE, f"{self._network.name} {what}"))

    def build(self, services: int) -> Json:
        links = [self._link(number, fibre) for number, fibre in enumerate(self._network.fibres)]
        for a, b, volume in self._wanted()[:services]:
            self._service(a, b, volume)
        topology = {
            "uuid": self._topology_uuid,
            "name": _named("name", self._network.name),
            "layer-protocol-name": [_LAYER],
            "node": [self._node(site) for site in self._network.sites.values()],
            "link": links,
        }
        return {
            "uuid": self._uuid("context"),
            "name": _named("name", self._network.name),
            "service-interface-point": self._sips,
            "tapi-topology:topology-context": {
                "nw-topology-service": {
                    "uuid": self._uuid("topology service"),
                    "topology": [{"topology-uuid": self._topology_uuid}],
                },
                "topology": [topology],
            },
            "tapi-connectivity:connectivity-context": {
                "connectivity-service": self._services,
                "connection": self._connections,
            },
        }

    def _wanted(self) -> list[tuple[str, str, float]]:
        if self._network.demands:
            return self._network.demands
        hubs = sorted(self._network.sites, key=lambda s: (-len(self._neighbours[s]), s))[:20]
        return [(a, b, 1.0) for i, a in enumerate(hubs) for b in hubs[i + 1 :]]

    def _node(self, site: Site) -> Json:
        longitude, latitude = site.position
        return {
            "uuid": self._node_uuid(site.id),
            "name": [
                *_named("name", site.name),
                {"value-name": "longitude", "value": str(longitude)},
                {"value-name": "latitude", "value": str(latitude)},
            ],
            "layer-protocol-name": [_LAYER],
            **_STATES,
            "owned-node-edge-point": list(self._ports[site.id].values()),
        }

    def _node_uuid(self, site: str) -> str:
        return self._uuid(f"node {site}")

    def _port(self, site: str, port: str, label: str) -> Json:
        """A port of a site, made when first asked for."""
        ports = self._ports[site]
        if port not in ports:
            ports[port] = {
                "uuid": self._uuid(f"port {site} {port}"),
                "name": _named("name", f"{self._network.sites[site].name}/{label}"),
                "layer-protocol-name": _LAYER,
                self._direction("link-port-direction"): "BIDIRECTIONAL",
                **_STATES,
            }
        return ports[port]

    def _direction(self, of_2_1_3: str) -> str:
        """The name of the member: 2.1.3 has one for each kind of entity."""
        return "direction" if self._is_2_6 else of_2_1_3

    def _port_ref(self, site: str, port: Json) -> Json:
        return {
            "topology-uuid": self._topology_uuid,
            "node-uuid": self._node_uuid(site),
            "node-edge-point-uuid": port["uuid"],
        }

    def _line_port(self, site: str, number: int) -> Json:
        fibre = self._network.fibres[number]
        far = self._network.sites[fibre.b if site == fibre.a else fibre.a]
        return self._port(site, f"line {number}", f"LINE-{number}-to-{far.name}")

    def _link(self, number: int, fibre: Fibre) -> Json:
        a, b = self._network.sites[fibre.a], self._network.sites[fibre.b]
        ends = [(end, self._line_port(end, number)) for end in (fibre.a, fibre.b)]
        return {
            "uuid": self._uuid(f"link {number}"),
            "name": _named("name", f"{a.name} - {b.name}"),
            "layer-protocol-name": [_LAYER],
            "direction": "BIDIRECTIONAL",
            **_STATES,
            "node-edge-point": [self._port_ref(end, port) for end, port in ends],
            "cost-characteristic": [{"cost-name": "LENGTH_KM", "cost-value": str(fibre.length_km)}],
            "latency-characteristic": [
                {
                    "traffic-property-name": "FIXED_LATENCY_US",
                    "fixed-latency-characteristic": str(
                        round(fibre.length_km / _FIBRE_KM_PER_S * 1e6)
                    ),
                }
            ],
        }

    def _service(self, a: str, b: str, volume: float) -> None:
        route = self._shortest(a, b)
        if not route:
            return
        name = f"{self._network.sites[a].name} - {self._network.sites[b].name}"
        service_id, connection_id = self._uuid(f"service {a} {b}"), self._uuid(f"path {a} {b}")
        sips = [self._client_port(site, far) for site, far in ((a, b), (b, a))]
        ends = [self._cep(a, sips[0][0], service_id, name)]
        for number, near, far in route:
            ends += [
                self._cep(end, self._line_port(end, number), service_id, name)
                for end in (near, far)
            ]
        ends.append(self._cep(b, sips[1][0], service_id, name))
        self._connections.append(
            {
                "uuid": connection_id,
                "name": _named("name", name),
                "layer-protocol-name": _LAYER,
                "direction": "BIDIRECTIONAL",
                "operational-state": "ENABLED",
                "lifecycle-state": "INSTALLED",
                "connection-end-point": [ends[0], ends[-1]],
                "route": [{"local-id": "1", "connection-end-point": ends}],
            }
        )
        unit = "tapi-common:CAPACITY_UNIT_GBPS" if self._is_2_6 else "GBPS"
        # A decimal number in 2.6, a whole one in 2.1.3.
        amount = str(volume) if self._is_2_6 else str(max(1, round(volume)))
        requested = {
            "service-type": "POINT_TO_POINT_CONNECTIVITY",
            "requested-capacity": {"total-size": {"value": amount, "unit": unit}},
        }
        self._services.append(
            {
                "uuid": service_id,
                "name": _named("name", name),
                "layer-protocol-name" if self._is_2_6 else "service-layer": _LAYER,
                self._direction("connectivity-direction"): "BIDIRECTIONAL",
                **_STATES,
                **({"connectivity-constraint": requested} if self._is_2_6 else requested),
                "connection": [{"connection-uuid": connection_id}],
                "end-point": [
                    {
                        "local-id": str(number),
                        "layer-protocol-name": _LAYER,
                        "direction": "BIDIRECTIONAL",
                        "role": "SYMMETRIC",
                        "service-interface-point": {"service-interface-point-uuid": sip["uuid"]},
                    }
                    for number, (_, sip) in enumerate(sips, 1)
                ],
            }
        )

    def _client_port(self, site: str, far: str) -> tuple[Json, Json]:
        """A client port and its service interface point, for a service to a far site."""
        label = f"CLIENT-to-{self._network.sites[far].name}"
        sip = {
            "uuid": self._uuid(f"sip {site} {far}"),
            "name": _named("name", f"{self._network.sites[site].name}/{label}"),
            "layer-protocol-name": _LAYER,
            **_STATES,
        }
        self._sips.append(sip)
        port = self._port(site, f"client {far}", label)
        port["mapped-service-interface-point"] = [{"service-interface-point-uuid": sip["uuid"]}]
        return port, sip

    def _cep(self, site: str, port: Json, service_id: str, service: str) -> Json:
        """A connection-end-point at a port for a service; returns the reference to it."""
        ceps = port.setdefault("tapi-connectivity:cep-list", {"connection-end-point": []})
        cep = {
            "uuid": self._uuid(f"cep {port['uuid']} {service_id}"),
            "name": _named("name", f"{port['name'][0]['value']}/{service}"),
            "layer-protocol-name": _LAYER,
            self._direction("connection-port-direction"): "BIDIRECTIONAL",
            "operational-state": "ENABLED",
            "lifecycle-state": "INSTALLED",
            "parent-node-edge-point": self._port_ref(site, port),
        }
        ceps["connection-end-point"].append(cep)
        return {**self._port_ref(site, port), "connection-end-point-uuid": cep["uuid"]}

    def _shortest(self, a: str, b: str) -> list[tuple[int, str, str]]:
        """The shortest route by length (Dijkstra), as (fibre, near site, far site); empty without
        one.
        """
        heap: list[tuple[float, str]] = [(0.0, a)]
        came: dict[str, tuple[str, int]] = {}
        best = {a: 0.0}
        while heap:
            length_km, site = heapq.heappop(heap)
            if site == b:
                break
            if length_km > best[site]:
                continue
            for far, number, fibre_km in self._neighbours[site]:
                total_km = length_km + fibre_km
                if total_km < best.get(far, float("inf")):
                    best[far], came[far] = total_km, (site, number)
                    heapq.heappush(heap, (total_km, far))
        if b not in came:
            return []
        sites = [b]
        while sites[-1] != a:
            sites.append(came[sites[-1]][0])
        return [(came[far][1], near, far) for near, far in pairwise(reversed(sites))]


def _named(name: str, value: str) -> list[Json]:
    return [{"value-name": name, "value": value}]
