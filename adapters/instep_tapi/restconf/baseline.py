"""Reads current state by GET, class by class, for logs that cannot give it alone.

A baseline is whole or it is an error: what cannot be read must never look like what is not there.
Its rows have the time at which the stream was opened, so what the stream states later wins (A14).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec
from yarl import URL

from instep.errors import AuthenticationError, BaselineError, SourceError
from instep.model.records import Record, RecordType
from instep_tapi.restconf.client import Response, RestconfClient, error_text
from instep_tapi.restconf.discovery import ContextAddress
from instep_tapi.restconf.json_bounds import decode_document
from instep_tapi.wire.context_tree import Entity, entities
from instep_tapi.wire.names import ANY_CLASS, CONDITION_DETECTOR

__all__ = ["page_records", "read_baseline", "readable_classes"]

PAGE_RECORDS: Final = 1_000
_LACKING = {400, 404, 405}

_RESOURCES: Final[dict[str, frozenset[str]]] = {
    "service-interface-point": frozenset({"SERVICE_INTERFACE_POINT"}),
    "tapi-topology:topology-context": frozenset(
        {
            "TOPOLOGY",
            "NODE",
            "LINK",
            "NODE_EDGE_POINT",
            "CONNECTION_END_POINT",
            "NODE_RULE_GROUP",
            "INTER_RULE_GROUP",
            "NETWORK_TOPOLOGY_SERVICE",
        }
    ),
    "tapi-connectivity:connectivity-context": frozenset({"CONNECTIVITY_SERVICE", "CONNECTION"}),
    "tapi-equipment:physical-context": frozenset(
        {"DEVICE", "EQUIPMENT", "HOLDER", "ACCESS_PORT", "PHYSICAL_SPAN"}
    ),
    "tapi-path-computation:path-computation-context": frozenset(
        {"PATH_COMPUTATION_SERVICE", "PATH"}
    ),
    "tapi-virtual-network:virtual-network-context": frozenset({"VIRTUAL_NETWORK_SERVICE"}),
    "tapi-oam:oam-context": frozenset(
        {"OAM_SERVICE", "OAM_JOB", "OAM_PROFILE", "MAINTENANCE_ENTITY_GROUP"}
    ),
    "tapi-streaming:stream-context": frozenset({"AVAILABLE_STREAM", "SUPPORTED_STREAM_TYPE"}),
    "tapi-streaming:stream-admin-context": frozenset({"STREAM_MONITOR"}),
}
"""Resource below the context → classes whose instances it shows whole, each with a uuid."""
READABLE: Final = frozenset[str]().union({"TAPI_CONTEXT"}, *_RESOURCES.values())


def readable_classes(classes: Iterable[str]) -> frozenset[str]:
    """The classes whose absence a GET can prove; all such for ANY_CLASS or none stated.

    CONDITION_DETECTOR has no resource in 2.1.3, local classes (ROUTE …) have no uuid; a class that
    2.1.3 does not know is read where it is found, but proves nothing by its absence.
    """
    stated = frozenset(classes)
    return READABLE if not stated or ANY_CLASS in stated else stated & READABLE


async def read_baseline(
    rest: RestconfClient,
    address: ContextAddress,
    stream: str,
    classes: Iterable[str],
    opened_at_us: int,
) -> AsyncIterator[list[Record]]:
    """Pages of records of the current state of these classes. Raises `SourceError`."""
    wanted = frozenset(classes)
    everything = not wanted or ANY_CLASS in wanted
    seen: set[str] = set()
    async for answer in _documents(rest, URL(address.context), wanted, everything=everything):
        document = await _decode(answer)
        try:
            found = [
                entity
                for entity in entities(document)
                if everything or entity.entity_class in wanted
            ]
        except ValueError as error:
            raise BaselineError(str(error), where=answer.url) from None
        records = page_records(found, stream, opened_at_us, seen)
        while page := list(islice(records, PAGE_RECORDS)):
            yield page


async def _documents(
    rest: RestconfClient, context: URL, wanted: frozenset[str], *, everything: bool
) -> AsyncIterator[Response]:
    """The fewest resources that show these classes; the whole context where one is not there.

    A resource that is not found may be empty or unsupported: only the context shows which.
    """
    names = [name for name, shown in _RESOURCES.items() if shown & wanted]
    shown = frozenset[str]().union(*(_RESOURCES[name] for name in names))
    if everything or _beyond_resources(wanted - shown):
        yield await _get(rest, context)
        return
    answers: list[Response] = []
    for name in names:
        answer = await _get(rest, context / name, may_lack=True)
        if not answer.found:
            yield await _get(rest, context)
            return
        answers.append(answer)
    for answer in answers:
        yield answer


def _beyond_resources(classes: frozenset[str]) -> bool:
    """Whether only the whole context could show one of these classes."""
    return bool(classes - {CONDITION_DETECTOR})


async def _get(rest: RestconfClient, url: URL, *, may_lack: bool = False) -> Response:
    try:
        answer = await rest.get(url)
    except AuthenticationError as error:
        raise _unreadable(str(url), "401", retriable_after_success=False) from error
    except SourceError as error:
        if error.retriable:
            raise
        raise _unreadable(str(url), error.message) from error
    if answer.found or (may_lack and answer.status in _LACKING):
        return answer
    error_message = error_text(answer.body)
    raise _unreadable(
        answer.url,
        f"{answer.status}" + (f" ({error_message})" if error_message else ""),
        retriable=answer.status == 429 or answer.status >= 500,
        status=answer.status,
    )


def _unreadable(
    url: str,
    why: str,
    *,
    retriable: bool = False,
    retriable_after_success: bool = True,
    **data: Any,
) -> BaselineError:
    return BaselineError(
        f"current state is answered with {why}",
        where=url,
        hint="this log cannot give state alone, so RESTCONF must be readable for this user",
        retriable=retriable,
        retriable_after_success=retriable_after_success,
        **data,
    )


async def _decode(answer: Response) -> Any:
    try:
        return await decode_document(answer.body)
    except ValueError as error:
        raise BaselineError(
            f"the answer is cut short or no JSON: {error}", where=answer.url, retriable=True
        ) from None


def page_records(
    found: list[Entity], stream: str, opened_at_us: int, seen: set[str]
) -> Iterator[Record]:
    """Records keyed by uuid; where a uuid is there several times, by the whole address.

    The second kind is stated without uuid: only a key can show which of them a record of the log is
    about.
    """
    counts = Counter(entity.uuid for entity in found)
    for entity in found:
        unique = counts[entity.uuid] == 1
        key = entity.uuid if unique else "+".join(entity.address) or entity.uuid
        if key in seen:
            continue
        seen.add(key)
        envelope = {
            "parent-address": entity.parent_address,
            "record-content": entity.entity_class,
        }
        yield Record(
            stream,
            key,
            RecordType.CREATE_UPDATE,
            "",
            opened_at_us,
            entity_class=entity.entity_class,
            body=msgspec.json.encode(entity.content),
            envelope=msgspec.json.encode(envelope),
            uuid=entity.uuid if unique else "",
        )
