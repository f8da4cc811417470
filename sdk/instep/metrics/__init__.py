"""What instep shows of itself: figures, readiness, and the port on which both are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.errors import ConfigurationError
from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from instep.metrics.figures import FIGURES, Figure, Sample, facts_of, samples
    from instep.metrics.port import OperationsPort
    from instep.metrics.readiness import Fault, Part, ReadinessRole, faults_of
    from instep.runtime.lifecycle import Service

__all__ = [
    "FIGURES",
    "Fault",
    "Figure",
    "OperationsPort",
    "Part",
    "ReadinessRole",
    "Sample",
    "collector",
    "facts_of",
    "faults_of",
    "samples",
]

if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep.metrics.figures": ("FIGURES", "Figure", "Sample", "facts_of", "samples"),
            "instep.metrics.port": ("OperationsPort",),
            "instep.metrics.readiness": ("Fault", "Part", "ReadinessRole", "faults_of"),
        },
    )


def collector(*consumers: Service) -> Collector:
    """A collector of prometheus-client, for a program that has a server of its own.

    ::

        REGISTRY.register(instep.metrics.collector(consumer))

    It reads the figures at each scrape, from whatever thread. Raises `ConfigurationError` where
    prometheus-client is not installed.
    """
    try:
        from instep.metrics.prometheus import HealthCollector  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "metrics need prometheus-client",
            where="instep.metrics",
            hint='pip install "instep[metrics]"',
        ) from error
    return HealthCollector(consumers)
