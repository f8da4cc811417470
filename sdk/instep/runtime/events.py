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
    "waiting": "a stream waits for those before it in the order of starting",
    "failed-over": "another instance of the provider is used from now on",
    "no-progress": "several connections in a row came no further (A16)",
    "stream-failed": "an error that would be fatal has ended one stream; it is tried again late",
    # of what is offered
    "stream-found": "a stream that was not offered before is followed",
    "stream-left": "a stream is not selected any more, since the configuration has changed",
    "identifying": "it is found out which stream one under a new name is (A20)",
    "stream-identified": "that is found out",
    "not-offered": "a known stream is not offered any more; what is stored of it is unproven (A20)",
    "offered-again": "it is offered again",
    "stream-retired": "a stream that is not offered is removed from the store",
    "undiscovered": "the list of streams cannot be read; those that are known go on",
    # of the alignment
    "attempt": "an attempt was opened; the text says why",
    "redelivered": "records came again after a reconnection (A2)",
    "confirming": "it is being found out whether the stream goes on where it was left (A2)",
    "continued": "it does",
    "caught-up": "all that the log held at the opening is read",
    "aligned": "the store is in step with the stream",
    "unproven": "of some entities it is not known whether they exist as stored (A17)",
    "unreadable": "so much cannot be read that the connection may be at fault (A11)",
    "lost": "the stream is read too late for its log (A8)",
    "sweep-held": "a sweep would remove more than the guard allows, and waits (A6)",
    "deviation": "the other side departs from its specification, for the first time so (A10)",
    "monitor-differs": "the provider says otherwise than we know how far it was read (TR-548 3.18)",
    "entities-wrong": "an audit, or a GET, found entities not as the provider states them (A12)",
    "not-audited": "a stream cannot be audited; the text says why (A12)",
    "quarantine-full": "the oldest records in quarantine give way to others (A11)",
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
    "dead-letter": "the dead letter is nearly full, or a message is long in it (S13)",
    "operator": "what an operator has asked for is done",
    # of processes
    "worker-started": "a process of workers, or of an isolated consumer, has begun",
    "worker-silent": "such a process is not heard any more",
    "worker-heard": "it is heard again",
    "worker-lost": "it has ended, and is started again",
    "loop-lag": "the event loop was late: a callback took long, or the machine is busy",
    "restarted": "a part of a receiver has ended by a mistake, and is started again",
    # of a pair
    "standby": "another process holds the lease",
    "active": "this process has taken the lease",
    "superseded": "another process has taken the lease from this one",
    "gave-up": "this process has given the lease up",
    # of the whole
    "reloaded": "the configuration was read again; the text says what was taken over",
    "reload-refused": "a changed configuration is wrong, and all goes on as before",
    "left-out": "so many events of a kind that peers cause were not printed",
    "failed": "a consumer has ended with a fatal error",
    "stopped": "a consumer has stopped as asked",
}
"""Kind → what it means."""
