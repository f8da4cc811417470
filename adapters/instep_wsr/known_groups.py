"""The groups that messages came in, and what their first messages stated."""

from __future__ import annotations

from typing import Final

import msgspec

from instep.ports.listener import Intake
from instep.sequencing.transitions import Refusal, SequenceRefusedError
from instep_soap import SequenceCache
from instep_wsr.groups import GroupAttributes, group_settings
from instep_wsr.options import Options

__all__ = ["KnownGroups"]

_decode: Final = msgspec.json.Decoder(GroupAttributes).decode


class KnownGroups(SequenceCache[GroupAttributes]):
    """What the first messages of groups stated."""

    def __init__(self, intake: Intake, options: Options) -> None:
        super().__init__(intake, _decode)
        self._options = options

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
        self.add(group_id, attributes)
        return attributes
