"""Every kind of event, with what it means: the stable names of `ConsumerEvent.kind`, and of `event`
in the JSON lines of `instep run`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EVENTS"]

EVENTS: Final = {
    # of a connection
    "connected": "a stream was opened; the text says from where",
    "disconnected": "a connection has ended, or cannot be made; or the store is away",
    "waiting": "a stream waits for streams that start before it",
    "failed-over": "the consumer uses another instance of the provider from now on",
    "no-progress": "several connections in a row brought nothing new (A16)",
    "stream-failed": "a fatal error has ended one stream; it is tried again late",
    # of what is offered
    "stream-found": "the consumer follows a stream that is new in the provider's list",
    "stream-left": "a changed configuration no longer selects the stream",
    "identifying": "a stream has a new name: it is compared with the streams known before (A20)",
    "stream-identified": "the comparison has found which stream it is (A20)",
    "not-offered": "the provider no longer offers a known stream; its entities are unproven (A20)",
    "offered-again": "the provider offers the stream again",
    "stream-retired": "a stream that is no longer offered was removed from the store",
    "undiscovered": "the list of streams cannot be read; known streams go on",
    # of the alignment
    "attempt": "an attempt was opened; the text says why",
    "redelivered": "records came again after a reconnection (A2)",
    "confirming": "the consumer checks whether the stream goes on after its position (A2)",
    "continued": "the check has shown that it does (A2)",
    "caught-up": "all records that the log held at the opening are read",
    "aligned": "the store is in step with the stream",
    "unproven": "some entities may not exist as stored (A17)",
    "unreadable": "so many records cannot be read that the connection may be at fault (A11)",
    "lost": "the consumer reads the stream too late for its log (A8)",
    "sweep-held": "a sweep would remove more than the guard allows, and waits (A6)",
    "deviation": "the other side departs from its specification in a new way (A10)",
    "monitor-differs": "the provider sees the consumer at another place of the log (TR-548 3.18)",
    "entities-wrong": "an audit, or a GET, found entities that are not as the provider states them"
    " (A12)",
    "not-audited": "a stream cannot be audited; the text says why (A12)",
    "quarantine-full": "the quarantine drops its oldest records for new ones (A11)",
    # of numbered messages
    "ask-resend": "a sender is asked for missing messages (S4)",
    "realign": "missing messages must be obtained by other means (S4)",
    "loss": "numbers are given up as lost (S4)",
    "fault": "a sender is told that messages will not be delivered (S6)",
    "sequence-failed": "a sequence has failed, and is frozen (S13)",
    "sequence-ended": "a sequence has ended",
    "not-sent": "a request or report could not be sent to its peer",
    "handler-failed": "a handler has failed; it gets the message again",
    "blocked": "a sequence waits for a decision about a message in quarantine",
    "quarantined": "a message is in quarantine after the last attempt of the handler",
    "dead-letter": "the dead letters are nearly full, or a message has been there for long (S13)",
    "operator": "the request of an operator was carried out",
    # of processes
    "worker-started": "a worker, or the process of an isolated consumer, has started",
    "worker-silent": "such a process has gone silent",
    "worker-heard": "a silent process is heard again",
    "worker-lost": "such a process has ended, and is started again",
    "loop-lag": "the event loop was late: a callback took long, or the machine is busy",
    "restarted": "a part of a receiver has ended by a fault, and is started again",
    # of a pair
    "standby": "another process holds the lease",
    "active": "this process has taken the lease",
    "superseded": "another process has taken the lease from this one",
    "gave-up": "this process has given the lease up",
    # of the whole
    "reloaded": "the configuration was read again; the text lists what applies now",
    "reload-refused": "a changed configuration is wrong, and all goes on as before",
    "left-out": "so many events of a kind were not printed, because peers can cause them",
    "failed": "a consumer has ended with a fatal error",
    "stopped": "a consumer has stopped on request",
}
"""Kind → what it means."""
