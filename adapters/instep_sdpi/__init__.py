"""SDPi: a BICEPS consumer that counts the reports it gets, and realigns where one is missing."""

from __future__ import annotations

from instep_sdpi.deviations import DEVIATIONS
from instep_sdpi.options import Options, Subscription, read_options
from instep_sdpi.source import SdpiSource

__all__ = ["DEVIATIONS", "Options", "SdpiSource", "Subscription", "read_options"]
