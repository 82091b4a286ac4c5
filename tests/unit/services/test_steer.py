"""The steering service, up to its door."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.apply.records.kafka import steering as door
from trimtab.apply.records.kafka.steering import SteeringReport
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.services.steer import steer_producers

REPORT = SteeringReport(steps=2, changes=1, published=1, weights={1: 1.0})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    class Steering:
        def run(self, stop: threading.Event, *, for_s: float | None) -> SteeringReport:
            seen[-1]["for_s"] = for_s
            return REPORT

    @contextmanager
    def open_steering(cluster: Cluster, **asked: Any) -> Iterator[Steering]:
        seen.append(asked)
        yield Steering()

    monkeypatch.setattr(door, "open_steering", open_steering)
    return seen


@pytest.mark.parametrize("execute", [True, False])
def test_it_returns_the_report(opened: list[dict[str, Any]], execute: bool) -> None:
    told = Told()

    report = steer_producers(
        Cluster("c:9092"), execute=execute, stop=threading.Event(), for_s=2.0, listener=told
    )

    assert report is REPORT
    assert (opened[0]["execute"], opened[0]["for_s"]) == (execute, 2.0)
    assert (told.starts == ["Steering"]) is execute


def test_weights_that_go_stale_between_two_looks_are_refused(
    opened: list[dict[str, Any]],
) -> None:
    with pytest.raises(ConfigError, match="expire"):
        steer_producers(
            Cluster("c:9092"),
            execute=True,
            interval_s=2.0,
            valid_s=5.0,
            stop=threading.Event(),
        )
    assert opened == []
