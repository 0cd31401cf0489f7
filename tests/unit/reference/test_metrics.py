from __future__ import annotations

import threading

from metrics import SpeculationMetrics
from triton_doubles import Metric, MetricFamily


class PbUtils:
    MetricFamily = MetricFamily


def values(name: str) -> list[float]:
    return MetricFamily.made[f"specdeploy_{name}"].metric.values


def test_steps_and_requests_are_published_under_their_documented_names() -> None:
    MetricFamily.made = {}
    metrics = SpeculationMetrics(PbUtils, model="tensorrt_llm")
    metrics.step(drafted=4, accepted=3, emitted=4)
    metrics.step(drafted=0, accepted=0, emitted=1)
    metrics.request_finished()
    assert values("drafted_tokens_total") == [4]
    assert values("accepted_tokens_total") == [3]
    assert values("steps_total") == [1, 1]
    assert values("requests_total") == [1]
    assert values("tokens_per_step") == [4, 1]


def test_tokens_per_step_is_a_histogram_labelled_with_its_model() -> None:
    MetricFamily.made = {}
    SpeculationMetrics(PbUtils, model="speculative")
    family = MetricFamily.made["specdeploy_tokens_per_step"]
    assert family.kind == "histogram"
    assert family.metric.labels == {"model": "speculative"}
    assert family.metric.buckets == sorted(set(family.metric.buckets or []))


def test_two_threads_never_publish_at_a_time() -> None:
    """Triton 2.51 ends with a segmentation fault when they do."""
    MetricFamily.made = {}
    metrics = SpeculationMetrics(PbUtils, model="tensorrt_llm")

    def work() -> None:
        for _ in range(50):
            metrics.step(drafted=2, accepted=1, emitted=2)
            metrics.request_finished()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not Metric.overlapped
    assert len(values("requests_total")) == 200
