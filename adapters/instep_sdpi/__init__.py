"""SDPi: a BICEPS consumer that counts the reports it gets, and realigns where one is missing."""

from __future__ import annotations

from instep_sdpi.deviations import DEVIATIONS
from instep_sdpi.options import Options, SubscriptionOptions, read_options
from instep_sdpi.source import SdpiSource

__all__ = ["DEVIATIONS", "Options", "SdpiSource", "SubscriptionOptions", "read_options"]
