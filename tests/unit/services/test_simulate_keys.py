"""The service that compares policies for hot keys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.errors import ConfigError
from trimtab.measure.counters import Count
from trimtab.services.simulate_keys import KeyComparison, compare_key_policies, doubts
from trimtab.simulate.keys.registry import key_policies


def comparison(**changes: Any) -> KeyComparison:
    asked: dict[str, Any] = {
        "policies": ["hash", "trim", "hash"],
        "rate_s": 2000.0,
        "duration_s": 3.0,
        "partitions": 4,
        "service_s": 0.001,
        "window_s": 1.0,
        "threshold": Count(20),
        "keys": 1000,
        "sketch": False,
    }
    return KeyComparison(**(asked | changes))


def test_every_policy_runs_once_over_the_same_records() -> None:
    told = Told()

    found = compare_key_policies(comparison(), listener=told)

    assert [run.name for run in found.runs] == ["hash", "trim"]
    assert len({sum(map(sum, (w.loads for w in run.windows))) for run in found.runs}) == 1
    assert told.steps == [("window", done, 3) for done in range(4)]
    assert told.warnings == []


def test_all_policies_can_be_asked_for() -> None:
    found = compare_key_policies(comparison(policies=["all"]))

    assert [run.name for run in found.runs] == list(key_policies())


def test_a_shift_changes_the_keys() -> None:
    same = compare_key_policies(comparison())
    shifted = compare_key_policies(comparison(shift=500, shift_every_s=1.0))

    loads = [[window.loads for window in one.run("hash").windows] for one in (same, shifted)]
    assert loads[0][0] == loads[1][0]
    assert loads[0][1] != loads[1][1]


def test_doubts_are_named() -> None:
    assert doubts(comparison()) == []
    assert "not longer than one window" in doubts(comparison(duration_s=1.0))[0]
    assert "(125%)" in doubts(comparison(rate_s=5000.0))[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partitions": 1}, "partitions must be between 2"),
        ({"service_s": 1e-10}, "at least 1 ns"),
        ({"s": 0.0}, "must be positive"),
        ({"policies": ["?"]}, "There is no policy"),
        ({"rate_s": 1e12}, "too many to simulate"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare_key_policies(comparison(**changes))
