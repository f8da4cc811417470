"""The options of an `sdpi` source, read from a table of the configuration and checked by name."""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep.model.limits import Count, Seconds
from instep.runtime.streams.sequenced_feed import SequencedFeedSettings
from instep_http import (
    TlsOptions,
    check_authenticated,
    check_files,
    check_url,
    client_context,
    read_listen,
    server_context,
)
from instep_sdpi.wire.names import REPORTS, MdibPart, ReportKind, report_kind

__all__ = ["Options", "SdpiTls", "SubscriptionOptions", "client_tls", "read_options", "server_tls"]

MIB: Final = 1024 * 1024
_DEFAULT_NAME: Final = "mdib"
_DEFAULT_ACTIONS: Final = (
    "DescriptionModificationReport",
    "EpisodicMetricReport",
    "EpisodicAlertReport",
    "EpisodicComponentReport",
    "EpisodicOperationalStateReport",
    "EpisodicContextReport",
)
"""All that states entities, without the samples of waveforms."""


_FEED: Final = SequencedFeedSettings(
    apply_ahead=True, answer_within_s=4.0, confirm_while_baselining=True
)
"""A provider sends one report at a time (SDPi R1014), and many wait five seconds for the answer.
Some lock their MDIB meanwhile, so that GetMdib would wait for our answer, and our answer for
GetMdib.
"""


class SdpiTls(TlsOptions, frozen=True, forbid_unknown_fields=True):
    """Certificates of the server of the reports, and of the client of the provider."""

    client_ca: str | None = None
    """The authorities (PEM) that must have signed the certificate with which the provider reports;
    None: those of `ca`.
    """


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reports that are subscribed to together: one stream, with a numbering of its own."""

    name: str = _DEFAULT_NAME
    """The id of the stream."""
    actions: tuple[str, ...] = _DEFAULT_ACTIONS
    """The reports, by name (``EpisodicMetricReport``) or by action."""

    def kinds(self) -> list[ReportKind]:
        """The reports of the actions."""
        found = [report_kind(action) for action in self.actions]
        return [kind for kind in found if kind is not None]

    def covers(self) -> frozenset[MdibPart]:
        """The parts of the MDIB that are kept up to date."""
        return frozenset[MdibPart]().union(*(kind.covers for kind in self.kinds()))


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which provider an `sdpi` source follows, and where it listens for the reports."""

    provider: str
    """The address of the device: ``http://10.0.0.7:8080/39695e5e…``, or https."""
    listen: str
    """Where reports are received: ``https://10.0.0.9:7443/sdpi``, or ``127.0.0.1:0``; port 0 for a
    free one. Each subscription has a path of its own below it, that nobody can guess.
    """
    notify_to: str = ""
    """The address that the provider sends to, where it differs from `listen`: behind a proxy, or
    where `listen` is 0.0.0.0.
    """
    actions: tuple[str, ...] = ()
    """The reports of the only subscription, by name or by action. Without any: those that state
    descriptors, metrics, alerts, components, operations and contexts.
    """
    subscriptions: tuple[SubscriptionOptions, ...] = ()
    """Several subscriptions instead, each a stream of its own."""
    expires_s: Seconds = 3_600.0
    """How long a subscription is asked for. It is renewed in time for what the provider grants."""
    status_every_s: Seconds = 10.0
    """How often the provider is asked (GetStatus) whether the subscription is still there: it may
    drop one and say nothing. After three requests without an answer it counts as lost.
    """
    allow_hosts: tuple[str, ...] = ()
    """Hosts besides that of `provider` that its services and subscriptions may be at."""
    feed: SequencedFeedSettings = _FEED
    """How long a missing report is waited for, and what is buffered meanwhile."""
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0.0, le=600.0)] = 20.0
    """Longest wait for the response to a request."""
    max_mdib_bytes: Count = 256 * MIB
    """Largest response of the provider."""
    max_mdib_elements: Count = 5_000_000
    """Most XML elements of a response."""
    max_report_bytes: Count = 4 * MIB
    """Largest report."""
    max_report_elements: Count = 100_000
    """Most XML elements of a report."""
    allow_unauthenticated: bool = False
    """Whether `listen` may be http beyond loopback, where no provider shows a certificate: whoever
    reads the address of a subscription can then report in its place."""
    tls: SdpiTls = SdpiTls()
    """Our certificate, for the provider and as the server of the reports, and who has signed that
    of the provider: with `listen` of https, only a provider with such a certificate may report.
    """

    @property
    def subscribed(self) -> Sequence[SubscriptionOptions]:
        """The subscriptions; without any, the one of `actions`."""
        if self.subscriptions:
            return self.subscriptions
        return (SubscriptionOptions(actions=self.actions or _DEFAULT_ACTIONS),)


def read_options(options: Mapping[str, Any], where: str) -> Options:
    """Check and read the table of a source, without connecting. Raises `ConfigurationError`."""
    table = dict(options)
    if "tls" in table:
        table["tls"] = read_table(SdpiTls, table["tls"], f"{where}.tls")
    given = table.get("feed", {})
    if isinstance(given, Mapping):
        defaults = msgspec.to_builtins(_FEED)
        table["feed"] = read_table(SequencedFeedSettings, {**defaults, **given}, f"{where}.feed")
    read = read_table(
        Options,
        table,
        where,
        required={"provider": "http://10.0.0.7:8080/device", "listen": "10.0.0.9:0"},
    )
    _check(read, where)
    return read


def server_tls(options: Options, where: str) -> ssl.SSLContext | None:
    """The TLS context of our server, which requires a certificate of the provider; None for http.
    Raises `ConfigurationError`.
    """
    if read_listen(options.listen, f"{where}.listen").scheme != "https":
        return None
    tls = options.tls
    return server_context(
        tls.cert or "", tls.key, f"{where}.tls", client_ca=tls.client_ca or tls.ca
    )


def client_tls(options: Options, where: str) -> ssl.SSLContext:
    """The TLS context for requests to the provider. Raises `ConfigurationError`."""
    return client_context(options.tls, f"{where}.tls")


def _check(options: Options, where: str) -> None:
    check_url(options.provider, ("http", "https"), f"{where}.provider")
    listen = read_listen(options.listen, f"{where}.listen")
    if options.notify_to:
        check_url(options.notify_to, ("http", "https"), f"{where}.notify_to")
    elif listen.host in {"0.0.0.0", "::"}:  # noqa: S104 - it is refused
        raise ConfigurationError(
            f"no provider can send to {listen.host}",
            where=f"{where}.listen",
            hint="an address of this machine, or notify_to",
        )
    if listen.scheme == "https" and not (options.tls.cert and options.tls.ca):
        raise ConfigurationError(
            "https needs a certificate of ours and the authority of the provider's",
            where=f"{where}.tls",
            hint="set cert, key and ca in tls",
        )
    check_authenticated(
        listen,
        f"{where}.listen",
        proven=listen.scheme == "https",
        allowed=options.allow_unauthenticated,
    )
    check_files(options.tls, f"{where}.tls")
    if options.actions and options.subscriptions:
        raise ConfigurationError(
            "actions and subscriptions are both given", where=f"{where}.actions"
        )
    names = [one.name for one in options.subscribed]
    for place, subscription in enumerate(options.subscribed):
        at = f"{where}.subscriptions[{place}]" if options.subscriptions else where
        if not subscription.name or names.count(subscription.name) > 1:
            raise ConfigurationError(
                f"the name {subscription.name!r} is empty, or two subscriptions have it",
                where=f"{at}.name",
            )
        _check_actions(subscription.actions, f"{at}.actions")


def _check_actions(actions: Sequence[str], where: str) -> None:
    names = set()
    for action in actions:
        kind = report_kind(action)
        if kind is None:
            close = difflib.get_close_matches(action.rpartition("/")[2], REPORTS, n=1)
            guess = f"did you mean {close[0]!r}? " if close else ""
            raise ConfigurationError(
                f"BICEPS has no report {action!r}",
                where=where,
                hint=f"{guess}known reports: {', '.join(sorted(REPORTS))}",
            )
        names.add(kind.name)
    if not names:
        raise ConfigurationError("no action is named", where=where)
    for name in names:
        episodic = name.replace("Periodic", "Episodic")
        if name != episodic and episodic in names:
            raise ConfigurationError(
                f"{name} repeats what {episodic} has stated before",
                where=where,
                hint="choose one of them",
            )
