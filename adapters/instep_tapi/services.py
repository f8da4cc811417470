"""Creates and deletes connectivity-services, and follows each until it is as wanted
(TR-548 5.7, ST-5.2 and ST-5.3).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import msgspec
from yarl import URL

from instep.errors import ConfigurationError, InstepError, SourceError
from instep.model.entities import StoredEntity, folded_uuid
from instep.model.freshness import Freshness, stale_streams
from instep.model.holds import UnprovenReason
from instep.model.position import Phase
from instep.ports.reader import StoreReader
from instep_tapi.facts.names import strip_module
from instep_tapi.restconf.client import Response, error_text
from instep_tapi.source import TapiSource

__all__ = [
    "IN_SERVICE",
    "ConnectivityServices",
    "ServiceFailedError",
    "ServiceRefusedError",
    "ServiceStaleError",
    "ServiceTimeoutError",
    "ServiceUnknownError",
]

Service = Mapping[str, Any]
"""A connectivity-service as the YANG has it, its members with or without prefix."""

_CLASS: Final = "CONNECTIVITY_SERVICE"
_MODULE: Final = "tapi-connectivity:"
_MEMBER: Final = "connectivity-service"
IN_SERVICE: Final = {"lifecycle-state": "INSTALLED", "operational-state": "ENABLED"}
"""The state of a service that carries traffic."""
_FAILED: Final = {"lifecycle-state": "PENDING_REMOVAL"}
_TAKEN: Final = frozenset(
    {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT}
)
"""The order is carried out, or will be."""
_UNDECIDED: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Of 4xx, the answers that say nothing of the order itself."""
_UNKNOWN: Final = "it is not known whether the request was carried out: read the service"


class ServiceRefusedError(SourceError):
    """The provider has refused the request (4xx), and changed nothing; `data["status"]` is its HTTP
    status.
    """

    code = "service-refused"


class ServiceUnknownError(SourceError):
    """The provider has answered, but not whether it carries the request out: a 5xx, a redirect,
    408, 425 or 429. The service may become as wanted; `data["status"]` is the HTTP status.
    """

    code = "service-unknown"


class ServiceStaleError(InstepError):
    """The store does not follow the services now, so it cannot show what becomes of one. Nothing
    was sent.
    """

    code = "service-stale"
    retriable = True


class ServiceFailedError(InstepError):
    """The service cannot become as wanted any more; `data["service"]` is what was stated last."""

    code = "service-failed"


class ServiceTimeoutError(InstepError):
    """The service has not become as wanted in time; `data["service"]` is what was stated last, None
    where nothing was. The request stands: the service may still become so.
    """

    code = "service-timeout"
    retriable = True


class ConnectivityServices:
    """The connectivity-services of one provider, as a client orders them.

    ::

        services = ConnectivityServices(source, store.reader)
        service = await services.create({"end-point": [...]}, timeout_s=600)
        await services.delete(service["uuid"])

    A request goes to the provider by RESTCONF. What comes of it is read from the store, which a
    consumer keeps in step, in this process or another: an answer states that a request was taken,
    the streams state what has become of the network.

    Promised: each call ends within `timeout_s`, with the service as wanted or with an error that
    says how far it came. No request is sent twice. Only what was stated after the order counts, and
    only while the store follows each stream of services (`StreamStatus.freshness`): what it held
    before may be of long ago. Not promised: that a state is seen which passes between two looks
    into the store, `poll_s` apart.

    Cancelling a call stops the waiting; a request that was sent stands.

    Each method raises `ConfigurationError` before it sends or waits: for a uuid that is no text or
    empty, and for a `timeout_s` or `poll_s` that is no number of seconds above 0.
    """

    def __init__(
        self,
        source: TapiSource,
        reader: StoreReader,
        *,
        consumer: str | None = None,
        poll_s: float = 0.5,
    ) -> None:
        """`consumer`: whose entities are looked at; None: those of all. `source` stays open, and
        may be that of the consumer.
        """
        _check_seconds("poll_s", poll_s)
        self._source = source
        self._reader = reader
        self._consumer = consumer
        self._poll_s = poll_s

    async def create(
        self,
        service: Service,
        *,
        wanted: Mapping[str, str] = IN_SERVICE,
        failed: Mapping[str, str] = _FAILED,
        timeout_s: float = 300.0,
    ) -> dict[str, Any]:
        """Order a service and wait until its members are as `wanted`. Returns it as stored.

        Without a `uuid` it gets a new one. Raises `ServiceStaleError` before anything is sent,
        `ServiceRefusedError`, `ServiceUnknownError`, what `wait` raises, and `SourceError`. After
        an `UnreachableError` it is not known whether the provider got the request.
        """
        ordered = {"uuid": str(uuid4()), **{strip_module(k): v for k, v in service.items()}}
        uuid = _checked(ordered["uuid"], timeout_s)
        deadline_s = time.monotonic() + timeout_s
        await self._require_fresh(deadline_s)
        before = await self._stored(uuid)
        await self._send("POST", uuid, ordered, timeout_s)
        return await self._wait(uuid, wanted, failed, deadline_s, before)

    async def wait(
        self,
        uuid: str,
        *,
        wanted: Mapping[str, str] = IN_SERVICE,
        failed: Mapping[str, str] = _FAILED,
        timeout_s: float = 300.0,
    ) -> dict[str, Any]:
        """Wait until the members of a service are as `wanted`. Returns it as stored.

        Raises `ServiceFailedError` where one of its members is as in `failed`, or it was there and
        is removed; `ServiceTimeoutError` and `SinkError`.
        """
        _checked(uuid, timeout_s)
        return await self._wait(uuid, wanted, failed, time.monotonic() + timeout_s, None)

    async def _wait(
        self,
        uuid: str,
        wanted: Mapping[str, str],
        failed: Mapping[str, str],
        deadline_s: float,
        before: StoredEntity | None,
    ) -> dict[str, Any]:
        """`before`: what was stored before the order; it does not count."""
        seen: dict[str, Any] | None = None

        def judge(stored: StoredEntity | None) -> bool:
            nonlocal seen
            if stored is not None and before is not None and _same(stored, before):
                return False
            if stored is not None and not stored.proven:
                # A newer statement of it may be one that cannot be read (A17).
                return False
            found = None if stored is None else _members(stored)
            if found is None and seen is not None:
                raise ServiceFailedError(
                    "the provider has removed the service", where=uuid, service=seen
                )
            seen = found or seen
            if found is None:
                return False
            if any(found.get(member) == value for member, value in failed.items()):
                raise ServiceFailedError(
                    f"the service is {_states(found, failed)}", where=uuid, service=found
                )
            return all(found.get(member) == value for member, value in wanted.items())

        found = await self._until(uuid, judge, deadline_s, wanted)
        assert found is not None
        return _members(found)

    async def delete(self, uuid: str, *, timeout_s: float = 300.0) -> None:
        """Delete a service and wait until it has ended. One that the provider does not know is only
        waited for.

        Raises `ServiceStaleError` before anything is sent, `ServiceRefusedError`,
        `ServiceUnknownError`, `ServiceTimeoutError`, `SourceError` and `SinkError`.
        """
        _checked(uuid, timeout_s)
        deadline_s = time.monotonic() + timeout_s
        records = await self._require_fresh(deadline_s)
        before = await self._stored(uuid)
        known = await self._send("DELETE", uuid, None, timeout_s)
        if before is None and known:
            # The store has not met it, and its absence shows nothing: the streams state its end.
            await self._until_stated(uuid, records, deadline_s)
        await self._until(uuid, lambda stored: stored is None, deadline_s, {})

    # -- inner parts -----------------------------------------------------------------------------

    async def _streams(self) -> list[Freshness]:
        """The streams that state services. Raises `ConfigurationError` where there is none."""
        streams = [
            one
            for one in await self._reader.freshness()
            if self._consumer in (None, one.consumer) and _CLASS in (one.classes or (_CLASS,))
        ]
        if not streams:
            raise ConfigurationError(
                f"no stream in the store carries {_CLASS}",
                where=self._consumer or "the store",
                hint="follow one: it shows what becomes of a service",
            )
        # One that is not offered states nothing any more, and others may (A20).
        return [one for one in streams if one.phase is not Phase.NOT_OFFERED] or streams

    async def _require_fresh(self, deadline_s: float) -> int:
        """Wait until the store follows the services. Returns how many records it has read of them.
        Raises `ServiceStaleError` where it does not within that time.
        """
        while True:
            streams = await self._streams()
            stale = stale_streams(streams)
            if not stale:
                return sum(one.records for one in streams)
            if time.monotonic() >= deadline_s:
                raise ServiceStaleError(
                    f"the services are not followed now: {stale}",
                    where=self._consumer or "the store",
                    hint="nothing was sent; let `instep run` follow them",
                )
            await asyncio.sleep(self._poll_s)

    async def _until_stated(self, uuid: str, records: int, deadline_s: float) -> None:
        """Wait until the streams have stated anything beyond so many records."""
        while sum(one.records for one in await self._streams()) <= records:
            if time.monotonic() >= deadline_s:
                raise ServiceTimeoutError(
                    "the service was not stated by any stream, nor its end, when its time had"
                    " passed",
                    where=uuid,
                    hint="the request stands: `delete` again asks whether the provider knows it",
                    service=None,
                )
            await asyncio.sleep(self._poll_s)

    async def _send(
        self, method: str, uuid: str, service: Service | None, timeout_s: float
    ) -> bool:
        """Send an order. False: the provider does not know what is to be deleted."""
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._answer(method, uuid, service)
        except TimeoutError:
            raise ServiceTimeoutError(
                f"the provider has not answered {method} within {timeout_s:g} s",
                where=uuid,
                hint=_UNKNOWN,
                service=None,
            ) from None
        if method == "DELETE" and answer.status == HTTPStatus.NOT_FOUND:
            return False
        if answer.status not in _TAKEN:
            raise _refusal(method, answer)
        return True

    async def _answer(self, method: str, uuid: str, service: Service | None) -> Response:
        address = (await self._source.survey()).address
        context = URL(address.context)
        prefix = _MODULE if ":" in context.name else ""
        container = context / f"{prefix}connectivity-context"
        content = None
        if service is not None:
            content = msgspec.json.encode({f"{prefix}{_MEMBER}": [service]})
        else:
            entry = f"{_MEMBER}={quote(uuid, safe='')}"
            container = container.joinpath(entry, encoded=True)
        rest = self._source.rest_at(address.endpoint)
        return await rest.change(method, container, content)

    async def _until(
        self,
        uuid: str,
        judge: Callable[[StoredEntity | None], bool],
        deadline_s: float,
        wanted: Mapping[str, str],
    ) -> StoredEntity | None:
        """Wait until `judge` is content with what is stored, as the streams state it now."""
        while True:
            stale = stale_streams(await self._streams())
            stored = await self._stored(uuid)
            # Read before what is stored: that is at least as fresh.
            if not stale and judge(stored):
                return stored
            if time.monotonic() >= deadline_s:
                found = None if stored is None else _members(stored)
                came = "was not stated by any stream"
                if found is not None:
                    came = f"is {_states(found, wanted or IN_SERVICE)}, as last stated,"
                if stored is not None and not stored.proven:
                    came += f" and unproven ({stored.unproven}),"
                came += f" (and {stale})" if stale else ""
                raise ServiceTimeoutError(
                    f"the service {came} when its time had passed",
                    where=uuid,
                    hint="the request stands: `wait` goes on, `delete` takes it back",
                    service=found,
                )
            await asyncio.sleep(self._poll_s)

    async def _stored(self, uuid: str) -> StoredEntity | None:
        """The service as stored; by its key where that is its uuid, else among all services."""
        for key in (uuid, None):
            async for one in self._reader.entities(
                consumer=self._consumer, entity_class=_CLASS, key=key
            ):
                if (
                    folded_uuid(one.uuid) == folded_uuid(uuid)
                    and one.unproven != UnprovenReason.NOT_OFFERED
                ):
                    return one
        return None


def _checked(uuid: object, timeout_s: float) -> str:
    """The uuid. Raises `ConfigurationError` where no service can have it, or the time is none."""
    if not isinstance(uuid, str) or not uuid.strip() or not uuid.isprintable():
        raise ConfigurationError(
            f"{uuid!r:.80} is not the uuid of a service",
            where="uuid",
            hint="give the uuid that the service has, as text",
        )
    _check_seconds("timeout_s", timeout_s)
    return uuid


def _check_seconds(name: str, seconds: object) -> None:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 < seconds < math.inf:  # type: ignore[operator]  # it is a number
        raise ConfigurationError(
            f"{seconds!r:.80} is no time", where=name, hint="give seconds above 0"
        )


def _same(stored: StoredEntity, before: StoredEntity) -> bool:
    """Whether nothing was stated of an entity since it was read before."""
    return (stored.token, stored.appended_at_us, stored.body) == (
        before.token,
        before.appended_at_us,
        before.body,
    )


def _members(stored: StoredEntity) -> dict[str, Any]:
    body = msgspec.json.decode(stored.body)
    return {strip_module(name): value for name, value in body.items()}


def _states(service: Service, members: Mapping[str, str]) -> str:
    return ", ".join(f"{service.get(member, 'without')} ({member})" for member in members)


def _refusal(method: str, answer: Response) -> ServiceRefusedError | ServiceUnknownError:
    told = error_text(answer.body)
    text = f"the provider answers {method} with {answer.status}{f': {told}' if told else ''}"
    status = answer.status
    if 400 <= status < 500 and status not in _UNDECIDED:
        return ServiceRefusedError(
            text,
            where=answer.url,
            hint="see the service's end-points and constraints; nothing was changed",
            status=status,
        )
    return ServiceUnknownError(text, where=answer.url, hint=_UNKNOWN, status=status)
