"""The figures for Prometheus: a custom collector, which reads them at the scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from instep.metrics.figures import FIGURES, FigureKind, samples
from instep.runtime.health import Health
from instep.runtime.lifecycle import Service

__all__ = ["HealthCollector", "metrics_of"]

_WITHIN_S: Final = 5.0
"""So long another thread waits for the event loop of a consumer."""


class HealthCollector(Collector):
    """Collects the figures of consumers. It may be registered in any registry."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = tuple(services)

    def describe(self) -> Iterable[Metric]:
        """The figures without samples: registering asks no consumer."""
        return metrics_of(())

    def collect(self) -> Iterable[Metric]:
        """The figures of now. Raises `TimeoutError` where the event loop of a consumer hangs and
        this is another thread.
        """
        return metrics_of([_health(one) for one in self._services])


def metrics_of(healths: Sequence[Health]) -> Iterable[Metric]:
    """The figures of these consumers, as families of Prometheus."""
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for figure in FIGURES:
        family = GaugeMetricFamily if figure.kind is FigureKind.GAUGE else CounterMetricFamily
        # The unit is the end of the name already, as the library wants it.
        families[figure.name] = family(figure.name, figure.meaning, labels=figure.labels)
    for one in samples(healths):
        labels = (*one.names, one.label) if one.label else one.names
        families[one.figure.name].add_metric(labels, one.value)
    return families.values()


def _health(service: Service) -> Health:
    """Its health, read in the thread of its event loop: what another one reads may change under
    its hands.
    """
    loop = service.loop
    if loop is None or not loop.is_running() or loop is _running():
        return service.health()
    answer: Future[Health] = Future()
    loop.call_soon_threadsafe(lambda: answer.set_result(service.health()))
    return answer.result(_WITHIN_S)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
