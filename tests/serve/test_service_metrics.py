"""Numbers of a service, in the format that Prometheus reads."""

from __future__ import annotations

import pytest

from heedful.serve.engine.metrics import Histogram
from heedful.serve.http.metrics import REQUEST_SECONDS, ServiceMetrics

NAME = "heedful_request_seconds"


def numbers(metrics: ServiceMetrics) -> dict[str, float]:
    """By name and labels; a number that is given twice is none."""
    lines = [line for line in metrics.text({}).splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert len(found) == len(lines)
    return found


def test_a_histogram_by_hand() -> None:
    seconds = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        seconds.add(value)
    assert list(seconds.lines("s")) == [
        's_bucket{le="0.1"} 2',
        's_bucket{le="1.0"} 3',
        's_bucket{le="+Inf"} 4',
        "s_sum 7.650000",
        "s_count 4",
    ]
    assert list(seconds.lines("s", 'route="/a"'))[2:] == [
        's_bucket{route="/a",le="+Inf"} 4',
        's_sum{route="/a"} 7.650000',
        's_count{route="/a"} 4',
    ]


def test_each_route_has_its_own_times() -> None:
    metrics = ServiceMetrics()
    for route, status, seconds in (
        ("/v1/translate", 200, 0.03),
        ("/v1/translate", 504, 30.01),
        ("/v1/stream", 200, 2.0),
        ("/health", 200, 0.001),
    ):
        metrics.count_request(route, status, seconds)
    found = numbers(metrics)
    assert found[f'{NAME}_count{{route="/v1/translate"}}'] == 2
    assert found[f'{NAME}_sum{{route="/v1/translate"}}'] == pytest.approx(30.04)
    assert found[f'{NAME}_bucket{{route="/v1/translate",le="0.025"}}'] == 0
    assert found[f'{NAME}_bucket{{route="/v1/translate",le="0.05"}}'] == 1
    # What was given up after 30 s can be told from what was answered.
    assert found[f'{NAME}_bucket{{route="/v1/translate",le="30.0"}}'] == 1
    assert found[f'{NAME}_bucket{{route="/v1/translate",le="60.0"}}'] == 2
    assert found[f'{NAME}_bucket{{route="/health",le="0.005"}}'] == 1
    assert found[f'{NAME}_count{{route="/v1/stream"}}'] == 1
    assert f"{NAME}_count" not in found
    assert metrics.text({}).count(f"# TYPE {NAME} histogram") == 1
    assert list(REQUEST_SECONDS) == sorted(set(REQUEST_SECONDS))
