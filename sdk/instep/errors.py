"""Every error instep raises, as a tree; each carries data, so that policy reads data and not types.

InstepError
├── ConfigurationError        what the user gave cannot work: fix it, do not retry
├── SourceError               the provider or the way to it
│   ├── UnreachableError      no connection, lost connection, dead peer (retriable)
│   ├── TlsError              the peer's certificate was not accepted
│   ├── AuthenticationError   login refused, or the token refused after a new login
│   ├── DiscoveryError        the stream context is not there or not readable
│   ├── NoStreamError         no stream fits the selection
│   ├── TokenRefusedError     the provider will not open the stream where we asked (retriable)
│   ├── StreamGoneError       the stream is not there any more: discover again (retriable)
│   ├── FrameTooBigError      a frame over the configured size
│   └── BaselineError         current state could not be read
├── SinkError                 the store or the way to it
│   ├── StoreUnavailableError locked, connection lost, disk full (retriable)
│   ├── NoStoreError          there is no store where one was to be read
│   ├── StoreVersionError     written by a newer instep, or before 0.1.0
│   ├── FencedError           another process commits for this consumer
│   │   └── LeaseLostError    another process holds the lease: stand by
│   ├── JournalOffError       changes were asked for, the journal is not kept
│   ├── ChangesTrimmedError   changes after a cursor are no longer kept
│   └── DerivationOffError    what is derived was asked for, it is not kept
├── AuditError                an audit that can prove nothing, now or ever
├── NotAlignedError           `instep run --until-aligned` was given a time, and it has passed
└── SweepHeldError            a sweep waits for a decision (A6)
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AuditError",
    "AuthenticationError",
    "BaselineError",
    "ChangesTrimmedError",
    "ConfigurationError",
    "DerivationOffError",
    "DiscoveryError",
    "FencedError",
    "FrameTooBigError",
    "InstepError",
    "JournalDivergedError",
    "JournalOffError",
    "LeaseLostError",
    "NoStoreError",
    "NoStreamError",
    "NotAlignedError",
    "SinkError",
    "SourceError",
    "StoreUnavailableError",
    "StoreVersionError",
    "StreamGoneError",
    "SweepHeldError",
    "TlsError",
    "TokenRefusedError",
    "UnreachableError",
    "UnreadableRecordsError",
    "UnreadableStreamError",
]


def plain(text: str) -> str:
    """Text of a stranger on one line, without characters that steer a terminal or reorder what is
    read: ends of lines and tabs become blanks, other control and format characters U+FFFD.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char in "\n\r\t" else "\ufffd" for char in text
    )


class InstepError(Exception):
    """Base of all errors of instep.

    `code` is stable for machines; `where` names the thing (URL, file, stream); `hint` says what to
    do; `retriable` says whether trying the same again can help; `data` holds further facts. Never
    a secret. Message, `where` and `hint` are one line each, without control characters (`plain`);
    texts in `data` are as they came.

    `retriable_after_success` marks an error that is a mistake where nothing has worked before, and
    may pass where something has: a redirect to a maintenance page, a 403. `retry_late` then makes
    it retriable, with the long wait of `ConsumerSettings.reconnect_late_s`.
    """

    code: ClassVar[str] = "error"
    retriable: bool = False
    retriable_after_success: bool = False
    stream_only: bool = False
    """Whether it concerns one stream: the other streams of its consumer go on."""
    retried_late: bool = False
    """Whether `retry_late` has made it retriable."""

    def __init__(
        self,
        message: str,
        *,
        where: str = "",
        hint: str = "",
        retriable: bool | None = None,
        retriable_after_success: bool | None = None,
        stream_only: bool | None = None,
        **data: Any,
    ) -> None:
        # Much of it is text of strangers: it must not steer the terminal or forge lines of a log.
        self.message = plain(message)
        super().__init__(self.message)
        self.where = plain(where)
        self.hint = plain(hint)
        self.data = data
        if retriable is not None:
            self.retriable = retriable
        if retriable_after_success is not None:
            self.retriable_after_success = retriable_after_success
        if stream_only is not None:
            self.stream_only = stream_only

    def retry_late(self) -> None:
        """Something has worked before: make the error retriable if it is so after a success."""
        if self.retriable_after_success and not self.retriable:
            self.retriable = self.retried_late = True

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.message}" if self.where else self.message]
        if self.hint:
            parts.append(self.hint)
        return " — ".join(parts)


class ConfigurationError(InstepError):
    """What the user gave cannot work."""

    code = "configuration"


class SourceError(InstepError):
    """The provider, or the way to it, failed."""

    code = "source"
    stream_only = True

    def __init__(self, message: str, *, suggests_restart: bool = False, **given: Any) -> None:
        super().__init__(message, **given)
        self.suggests_restart = suggests_restart
        """Whether it suggests that the provider was restarted: it refused the connection, answered
        with 5xx or 404, or closed it as one does who goes away (A2).
        """


class UnreachableError(SourceError):
    """No connection, a lost connection, or a peer that no longer answers."""

    code = "unreachable"
    retriable = True


class TlsError(SourceError):
    """The peer's certificate was not accepted, or ours was not, or TLS would be left off."""

    code = "tls"
    retriable_after_success = True


class AuthenticationError(SourceError):
    """The provider refused the login, or the token after one new login. All streams share the
    login. It is not tried again, because that may lock the account.
    """

    code = "authentication"
    stream_only = False


class DiscoveryError(SourceError):
    """The stream context is not where it was looked for, or cannot be read."""

    code = "discovery"


class NoStreamError(SourceError):
    """No available stream fits the selection; `data["reasons"]` says why each was passed over."""

    code = "no-stream"


class TokenRefusedError(SourceError):
    """The provider refuses to open the stream after our token, or at its newest record: the next
    opening is from the oldest record.
    """

    code = "token-refused"
    retriable = True


class StreamGoneError(SourceError):
    """The stream is no longer offered under this address or is TERMINATED: discovery runs anew."""

    code = "stream-gone"
    retriable = True


class UnreadableStreamError(SourceError):
    """Nothing that a stream has sent since it was opened could be read: a wrong key for its
    authenticity, say. What is stored stays, and is not of now.
    """

    code = "unreadable-stream"
    stream_only = True


class FrameTooBigError(SourceError):
    """A frame is over the configured size; `data` has `limit_bytes`."""

    code = "frame-too-big"
    retriable_after_success = True


class BaselineError(SourceError):
    """Current state could not be read (TRUNCATED logs need it)."""

    code = "baseline"


class SinkError(InstepError):
    """The store, or the way to it, failed."""

    code = "sink"


class StoreUnavailableError(SinkError):
    """Locked, connection lost, disk full: the batch was not committed and can be tried again."""

    code = "store-unavailable"
    retriable = True


class NoStoreError(SinkError):
    """There is no store where one was to be read."""

    code = "no-store"


class StoreVersionError(SinkError):
    """The store was written by a newer instep, or before 0.1.0."""

    code = "store-version"


class FencedError(SinkError):
    """Another process has committed for this consumer; this one must stop."""

    code = "fenced"


class LeaseLostError(FencedError):
    """The other process of the pair holds the lease. Nothing was written; this one stands by."""

    code = "lease-lost"


class JournalOffError(SinkError):
    """Changes were asked for, but this store keeps no journal."""

    code = "journal-off"


class ChangesTrimmedError(SinkError):
    """Changes after a cursor are no longer kept: the subscriber was slower than the retention.

    `data["oldest"]` is the oldest cursor that is kept.
    """

    code = "changes-trimmed"


class JournalDivergedError(SinkError):
    """A cursor is not of this journal: the store was restored from a backup or copied, or a replica
    that lagged was promoted. What was changed after it may differ from what was read.

    `data["newest"]` is the newest cursor of this journal.
    """

    code = "journal-diverged"


class DerivationOffError(SinkError):
    """What is derived (alarms, for example) was asked for, but this store does not keep it."""

    code = "derivation-off"


class AuditError(InstepError):
    """The stream cannot be audited, or not now (TR-548 ST-2.3)."""

    code = "audit"


class NotAlignedError(InstepError):
    """Not every stream was aligned within the time that was given for it."""

    code = "not-aligned"


class UnreadableRecordsError(InstepError):
    """Every stream is aligned, but records could not be read: what they state is missing."""

    code = "unreadable-records"


class SweepHeldError(InstepError):
    """A sweep would remove more entities than the guard allows (A6)."""

    code = "sweep-held"
