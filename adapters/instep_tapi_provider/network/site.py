"""The state that the HTTP handlers of one provider share."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from instep_tapi_provider.context import Context
from instep_tapi_provider.faults import Faults
from instep_tapi_provider.operator import Operator
from instep_tapi_provider.settings import ProviderSettings
from instep_tapi_provider.stream import Stream

RESTCONF_TYPE = "application/yang-data+json"


@dataclass(slots=True)
class Site:
    """A provider's settings, what it serves, and what it does wrong. `now`: seconds since the
    epoch.
    """

    settings: ProviderSettings
    context: Context
    operator: Operator
    streams: list[Stream]
    faults: Faults
    now: Callable[[], float]
    rng: random.Random

    def stream(self, uuid: str) -> Stream | None:
        """The stream with this uuid or stream-id."""
        return next((s for s in self.streams if uuid in (s.uuid, s.stream_id)), None)


def restconf_error(status: int, tag: str, message: str, path: str = "") -> web.Response:
    """An error as RFC 8040 7.1 has it."""
    error = {"error-type": "application", "error-tag": tag, "error-message": message}
    if path:
        error["error-path"] = path
    return web.json_response(
        {"ietf-restconf:errors": {"error": [error]}}, status=status, content_type=RESTCONF_TYPE
    )
