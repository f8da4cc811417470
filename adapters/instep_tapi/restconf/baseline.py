"""Reads current state by GET, class by class, for logs that cannot give it alone, as truncated ones
(TR-548 3.8.1.2).

What cannot be read must never look like what is not there: an answer that is cut short is an error,
an element that cannot be read is given as unreadable. A baseline states an entity as the stream
would, and each entity once (A13).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final

from yarl import URL

from instep.errors import AuthenticationError, BaselineError, SourceError
from instep.model.records import Record, RecordChunk
from instep_tapi.facts.classes import CLASS_MODEL
from instep_tapi.facts.containment import CONTEXT, carried_classes, carried_events
from instep_tapi.facts.names import ANY_CLASS, CONDITION_DETECTOR
from instep_tapi.facts.stream_profile import TAPI_2_1_3
from instep_tapi.restconf.baseline_process import stated_pages
from instep_tapi.restconf.baseline_rows import BaselineScope, UnreadableAnswer
from instep_tapi.restconf.client import Response, RestconfClient, error_text
from instep_tapi.restconf.discovery import ContextAddress

__all__ = ["has_active_conditions", "read_baseline", "readable_classes", "unprovable_classes"]

_LACKING = {204, 400, 404, 405}
_NO_CONTENT = 204

FAULT_MANAGEMENT: Final = "tapi-fm:fault-management-context"
"""Of TAPI 2.4.1 and later, where a provider has it: its `active-condition` are the alarms that
stand.
"""
READABLE: Final = {
    tapi: frozenset({CONTEXT}).union(*shown.values())
    for tapi, shown in CLASS_MODEL.resources.items()
}
"""Edition of TAPI → classes whose instances its resources show whole."""


def readable_classes(
    classes: Iterable[str], tapi: str = TAPI_2_1_3, *, shows_alarms: bool = False
) -> frozenset[str]:
    """The classes of a stream whose absence a GET can prove.

    CONDITION_DETECTOR has no resource in 2.1.3; `shows_alarms`: the provider has the one of tapi-fm
    (`has_active_conditions`). A class that this edition does not know is read where it is found,
    but proves nothing by its absence.
    """
    alarms = {CONDITION_DETECTOR} & carried_events(classes) if shows_alarms else frozenset[str]()
    return (carried_classes(classes) & READABLE[tapi]) | alarms


def unprovable_classes(
    classes: Iterable[str], tapi: str = TAPI_2_1_3, *, shows_alarms: bool = False
) -> frozenset[str]:
    """The classes of a stream of which no GET shows every entity."""
    stated = frozenset(classes)
    alarms = {CONDITION_DETECTOR} if shows_alarms else frozenset[str]()
    if not stated or ANY_CLASS in stated:
        return frozenset({CONDITION_DETECTOR}) - alarms
    return stated - READABLE[tapi] - alarms


async def has_active_conditions(rest: RestconfClient, address: ContextAddress) -> bool:
    """Whether the provider states the alarms that stand (tapi-fm of 2.4.1 and later). Raises
    `SourceError` where that cannot be told now.
    """
    answer = await rest.get(address.resource(FAULT_MANAGEMENT))
    if answer.status == 429 or answer.status >= 500:
        raise _unreadable(answer.url, str(answer.status), retriable=True, status=answer.status)
    return answer.found


async def read_baseline(
    rest: RestconfClient,
    address: ContextAddress,
    stream: str,
    classes: Iterable[str],
    opened_at_us: int,
    followed: Iterable[str] = (),
    tapi: str = TAPI_2_1_3,
    *,
    shows_alarms: bool = False,
) -> AsyncGenerator[list[Record] | RecordChunk, None]:
    """Pages of records of the current state of these classes, a `RecordChunk` where something of
    it cannot be read. Raises `SourceError`.

    `followed`: the classes that other streams of the consumer state, as `carried_classes` has
    them. Entities of such a class have records of their own, so they are cut out of what contains
    them.
    """
    stated = frozenset(classes)
    everything = not stated or ANY_CLASS in stated
    carried = carried_classes(stated) - {CONDITION_DETECTOR}
    if shows_alarms:
        carried |= carried_events(stated)
    wanted = BaselineScope(stream, opened_at_us, carried, everything, carried.union(followed))
    seen: set[tuple[str, str]] = set()
    resources = CLASS_MODEL.resources[tapi]
    if shows_alarms:
        resources = {**resources, FAULT_MANAGEMENT: frozenset({CONDITION_DETECTOR})}
    async for answer in _documents(rest, address, resources, carried, everything=everything):
        try:
            async with aclosing(stated_pages(answer.body, wanted, seen)) as pages:
                async for page in pages:
                    if page.unreadable or page.deviations:
                        yield RecordChunk(page.records, page.unreadable, page.deviations)
                    else:
                        yield page.records
        except UnreadableAnswer as error:
            raise BaselineError(str(error), where=answer.url, retriable=error.retriable) from None


async def _documents(
    rest: RestconfClient,
    address: ContextAddress,
    resources: Mapping[str, frozenset[str]],
    wanted: frozenset[str],
    *,
    everything: bool,
) -> AsyncIterator[Response]:
    """The fewest resources that show these classes; the whole context where one is not there.

    A resource that is not found may be empty or unsupported: only the context shows which.
    """
    names = [name for name, shown in resources.items() if shown & wanted]
    shown = frozenset[str]().union(*(resources[name] for name in names))
    if everything or _beyond_resources(wanted - shown):
        yield await _get(rest, URL(address.context))
        return
    answers: list[Response] = []
    for name in names:
        answer = await _get(rest, address.resource(name), may_lack=True)
        if not answer.found:
            yield await _get(rest, URL(address.context))
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
        raise _unreadable(
            str(url), "401", retriable_after_success=False, stream_only=False
        ) from error
    except SourceError as error:
        if error.retriable:
            raise
        raise _unreadable(str(url), error.message) from error
    if answer.found or (may_lack and answer.status in _LACKING):
        return answer
    if answer.status == _NO_CONTENT:
        # It states nothing, as an empty container does (RFC 7950 7.5.1).
        return Response(answer.url, answer.status, b"{}")
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
