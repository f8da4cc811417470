"""The groups that messages came in, and what their first messages stated."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from instep.ports.listener import Intake
from instep.sequencing.transitions import Refusal, SequenceRefusedError
from instep_wsr.groups import GroupAttributes, group_settings
from instep_wsr.options import Options

__all__ = ["KnownGroups"]

_MOST_CACHED: Final = 10_000
_decode: Final = msgspec.json.Decoder(GroupAttributes).decode


class KnownGroups:
    """What the first messages of groups stated: as stored, and in memory for those in use."""

    def __init__(self, intake: Intake, options: Options) -> None:
        self._intake = intake
        self._options = options
        self._attributes: OrderedDict[str, GroupAttributes] = OrderedDict()

    async def attributes(self, group_id: str) -> GroupAttributes | None:
        """What the first message of a group stated; None: the group is unknown."""
        found = self._attributes.get(group_id)
        if found is None:
            stored = await self._intake.attributes(group_id)
            if not stored:
                return None
            found = _decode(stored)
            self._add(group_id, found)
        return found

    def in_memory(self, group_id: str) -> GroupAttributes | None:
        """`attributes` of those in memory."""
        return self._attributes.get(group_id)

    async def open(self, group_id: str, attributes: GroupAttributes) -> GroupAttributes:
        """Open a group, durably (S9); returns what its first message stated, which may be another
        one that came at the same time. Raises `SequenceRefusedError`.
        """
        try:
            await self._intake.open(
                group_id,
                group_settings(attributes, self._options),
                msgspec.json.encode(attributes),
                attributes.group_expires_at_us,
                peer=attributes.certificate,
            )
        except SequenceRefusedError as error:
            if error.refusal is Refusal.EXISTS:
                found = await self.attributes(group_id)
                if found is not None:
                    return found
            raise
        self._add(group_id, attributes)
        return attributes

    def forget(self, group_id: str) -> None:
        """Forget a group in memory: the store does not know it any more."""
        self._attributes.pop(group_id, None)

    def _add(self, group_id: str, attributes: GroupAttributes) -> None:
        self._attributes[group_id] = attributes
        if len(self._attributes) > _MOST_CACHED:
            self._attributes.popitem(last=False)
