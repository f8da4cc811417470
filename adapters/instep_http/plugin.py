"""The plug-in of the entry point `instep.targets: http`: CloudEvents by POST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from instep.config.options import read_table
from instep.config.secret import Secret
from instep.config.shown import shown_table
from instep.model.limits import Seconds
from instep_http.cloud_events import CloudEventsTarget
from instep_http.tls import TlsOptions, check_files

__all__ = ["target"]


class CloudEventsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of CloudEvents over HTTP."""

    url: str
    """Where batches are posted: ``https://oss.example.org/events``."""
    authorization: Secret | None = None
    """The value of the header Authorization: ``Bearer …``."""
    tls: TlsOptions = TlsOptions()
    """Which authority has signed the receiver's certificate, and our own certificate."""
    timeout_s: Seconds = 30.0
    """Longest exchange."""


class _CloudEventsPlugin:
    options = CloudEventsOptions

    def check(self, options: Mapping[str, Any], where: str) -> None:
        self.build(options, where)

    def build(self, options: Mapping[str, Any], where: str) -> CloudEventsTarget:
        read = read_table(
            CloudEventsOptions, options, where, required={"url": "https://oss.example.org/events"}
        )
        check_files(read.tls, f"{where}.tls")
        secret = read.authorization
        headers = None if secret is None else {"Authorization": secret.reveal()}
        return CloudEventsTarget(
            read.url, headers=headers, tls=read.tls, timeout_s=read.timeout_s, where=where
        )

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return shown_table(CloudEventsOptions, table)


target = _CloudEventsPlugin()
"""Posts events in batches; `instep.ports.plugin.TargetPlugin`."""
