"""ONF TAPI streaming (TR-548): RESTCONF discovery, WebSocket streams, baselines by GET."""

from instep_tapi.deviations import DEVIATIONS
from instep_tapi.options import Options, read_options
from instep_tapi.reader import Reader
from instep_tapi.source import TapiSource

__all__ = ["DEVIATIONS", "Options", "Reader", "TapiSource", "read_options"]
