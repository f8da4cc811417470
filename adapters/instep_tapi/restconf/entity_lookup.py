"""Asks for one entity by GET (RFC 8040 3.5.3), and reads the answer. Only what states the entity
shows it, and only a 404 of RESTCONF says that it is absent: anything else says nothing (A17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
from yarl import URL

from instep.model.entities import StoredEntity, folded_uuid
from instep.model.lookups import LookupAnswer, LookupVerdict
from instep_tapi.facts.classes import CLASS_MODEL
from instep_tapi.facts.containment import (
    CONTEXT,
    GLOBAL_CLASSES,
    LOCAL_CLASSES,
    SERIES_CLASSES,
    carried_classes,
    contained_members,
)
from instep_tapi.facts.names import class_of, strip_module
from instep_tapi.restconf.client import Response, RestconfClient
from instep_tapi.restconf.json_bounds import SMALL_BYTES, decode_bounded
from instep_tapi.wire.context_tree import entity_content

__all__ = ["entity_url", "look_up", "read_entity", "shown_classes"]

_MAX_BYTES: Final = 4 * 1024 * 1024
_NOT_FOUND: Final = 404
_STREAMING: Final = frozenset({"AVAILABLE_STREAM", "SUPPORTED_STREAM_TYPE", "STREAM_MONITOR"})
"""They change as the streams are read."""
_LEFT_OUT: Final = SERIES_CLASSES | _STREAMING
"""Classes of which a record states a moment, and a GET another."""


class _Envelope(msgspec.Struct):
    parent_address: Any = msgspec.field(name="parent-address", default=None)


class _Ids(msgspec.Struct):
    uuid: str = ""
    local_id: str = msgspec.field(name="local-id", default="")


_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_ids: Final = msgspec.json.Decoder(_Ids).decode


def shown_classes(classes: Sequence[str], tapi: str) -> frozenset[str]:
    """Those of the classes of a stream of which a GET shows one entity in this edition."""
    return carried_classes(classes) & CLASS_MODEL.paths[tapi].keys() - _LEFT_OUT


def entity_url(context: URL, tapi: str, entity: StoredEntity) -> URL | None:
    """Where one entity is read; None where nobody has stated what it stands in, or its id."""
    paths = CLASS_MODEL.paths[tapi]
    try:
        stated = _envelope(entity.envelope).parent_address if entity.envelope else None
        name = _id_of(entity)
    except msgspec.DecodeError:
        return None
    above, path = CONTEXT, ""
    elements = stated if isinstance(stated, list) else []
    for element in [*elements, None]:
        if element is None:
            entity_class, key = entity.entity_class, name
        else:
            member, _, key = element.partition(":") if isinstance(element, str) else ("", "", "")
            entity_class = class_of(member.removesuffix("-uuid").removesuffix("-local-id"))
        steps = paths.get(entity_class, {}).get(above)
        if steps is None or not key:
            return None
        path += f"/{steps}={quote(key, safe='')}"
        above = entity_class
    return URL(f"{context}{path}", encoded=True)


def _id_of(entity: StoredEntity) -> str:
    """Its uuid or local-id, as the provider spells it. Raises `msgspec.DecodeError`."""
    if entity.entity_class in LOCAL_CLASSES:
        return _ids(entity.body).local_id
    return entity.uuid or _ids(entity.body).uuid


async def look_up(
    rest: RestconfClient, context: URL, tapi: str, classes: Sequence[str], entity: StoredEntity
) -> LookupAnswer | None:
    """Ask for one entity of a stream of these classes. Raises `SourceError`."""
    url = entity_url(context, tapi, entity)
    if url is None:
        return None
    answer = await rest.get(url, limit_bytes=_MAX_BYTES)
    cut = GLOBAL_CLASSES | carried_classes(classes)
    if len(answer.body) <= SMALL_BYTES:
        return read_entity(answer, entity, cut)
    return await asyncio.to_thread(read_entity, answer, entity, cut)


def read_entity(answer: Response, entity: StoredEntity, cut: frozenset[str]) -> LookupAnswer:
    """What an answer says of the entity; `cut`: the classes of which entities are cut out of what
    contains them, as the streams do.
    """
    if answer.status == _NOT_FOUND and not answer.body.lstrip().startswith(b"<"):
        return LookupAnswer(LookupVerdict.ABSENT)
    if not answer.found:
        return _unknown(f"it is answered with {answer.status}")
    try:
        document = decode_bounded(answer.body)
        found = [one for one in _items(document, answer.url) if _is(one, entity)]
        if len(found) != 1:
            return _unknown("the answer does not state it")
        content = entity_content(found[0], entity.entity_class, cut)
    except (ValueError, RecursionError) as error:
        return _unknown(f"the answer cannot be read: {error}")
    return LookupAnswer(
        LookupVerdict.SHOWN, msgspec.json.encode(content), contained=contained_members(cut)
    )


def _items(document: Any, url: str) -> list[Any]:
    """The entities of an answer: a list of one as RFC 8040 has it, the entity itself, either of
    them bare, or with other entities beside it.
    """
    if isinstance(document, dict) and not document.keys() & {"uuid", "local-id"}:
        asked = strip_module(url.rpartition("/")[2].partition("=")[0])
        document = next((v for n, v in document.items() if strip_module(n) == asked), None)
    return document if isinstance(document, list) else [document]


def _is(item: Any, entity: StoredEntity) -> bool:
    """Whether this states the entity: another one proves nothing (A17)."""
    if not isinstance(item, dict):
        return False
    stated = item.get("local-id" if entity.entity_class in LOCAL_CLASSES else "uuid")
    return isinstance(stated, str) and folded_uuid(stated) == folded_uuid(_id_of(entity))


def _unknown(reason: str) -> LookupAnswer:
    return LookupAnswer(LookupVerdict.UNKNOWN, reason=reason)
