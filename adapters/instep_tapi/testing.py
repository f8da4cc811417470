"""The test kit: a TR-548 provider with real logs, real sockets and chosen faults; see
`Provider`.
"""

from instep_tapi.provider import *  # noqa: F403
from instep_tapi.provider import __all__  # noqa: F401
