"""The test kit: a TR-548 provider with real logs, real sockets and chosen faults.

See `Provider`; `topology_context` gives it a real backbone.
"""

from instep_tapi.provider import *  # noqa: F403
from instep_tapi.provider import __all__ as _provider
from instep_tapi.provider.topology import topology_context

__all__ = [*_provider, "topology_context"]  # noqa: PLE0604 - names, every one
