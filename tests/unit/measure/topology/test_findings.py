"""What is found, and how bad it is."""

from __future__ import annotations

import pytest

from trimtab.measure.topology.audit import AuditOptions, audit
from trimtab.measure.topology.findings import at_least, findings
from trimtab.measure.topology.loads import TopicRates
from trimtab.measure.topology.unevenness import Level
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.load import Unit
from trimtab.testing.placements import led, placement

EVEN = {"A": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}
"""Every broker leads one partition, and each has a replica everywhere."""


def kinds(snapshot: ClusterSnapshot, **options: object) -> dict[str, Level]:
    found = findings(audit(snapshot, options=AuditOptions(**options)))  # type: ignore[arg-type]
    return {one.kind: one.level for one in found}


def test_a_clean_cluster_has_no_findings() -> None:
    assert kinds(placement(EVEN), min_insync={"A": 2}, up_to=1, racks=True) == {}


@pytest.mark.parametrize(
    ("snapshot", "options", "kind", "level"),
    [
        (placement({"A": [[], [1, 2]]}), {}, "offline", Level.ERROR),
        (placement(EVEN), {"min_insync": {"A": 4}}, "below_min_insync", Level.ERROR),
        (placement(EVEN, out_of_sync=[3]), {}, "silent_brokers", Level.WARNING),
        (placement(EVEN, out_of_sync=[3]), {}, "under_replicated", Level.WARNING),
        (placement({"A": [[1], [2]]}), {}, "one_failure_offline", Level.WARNING),
        (
            placement(EVEN),
            {"min_insync": {"A": 3}},
            "one_failure_below_min_insync",
            Level.WARNING,
        ),
        (placement({"A": [[1, 2], [2, 1]]}), {"up_to": 2}, "several_failures_offline", Level.NOTE),
        (led({"A": {1: 3, 2: 1}}), {}, "uneven", Level.WARNING),
        (led({"A": {1: 2, 2: 1}}), {}, "indivisible", Level.NOTE),
        (placement({"A": [[1], [1]]}, brokers=[2]), {}, "stacked", Level.WARNING),
        (placement(EVEN, leaders={"A": [2, 2, 3]}), {}, "drift", Level.WARNING),
        (
            placement({"A": [[1, 2]] * 20}, leaders={"A": [2] + [1] * 19}),
            {},
            "drift",
            Level.NOTE,
        ),
        (placement({"A": [[1]]}, brokers=[2]), {}, "idle", Level.NOTE),
        (led({"A": {1: 1, 2: 1}, "B": {2: 1}}), {}, "overlaps", Level.NOTE),
        (
            placement({"A": [[1, 3], [2, 4]], "B": [[3, 1], [4, 2]]}),
            {},
            "overlap_by_failure",
            Level.NOTE,
        ),
        (placement(EVEN), {"up_to": 2, "max_scenarios": 4}, "sampled", Level.NOTE),
        (
            placement({"A": [[1, 2], [2, 1]]}, racks={1: "a", 2: "a"}),
            {"racks": True},
            "one_failure_offline",
            Level.WARNING,
        ),
    ],
)
def test_each_kind_has_its_level(
    snapshot: ClusterSnapshot, options: dict[str, object], kind: str, level: Level
) -> None:
    assert kinds(snapshot, **options)[kind] is level


@pytest.mark.parametrize(
    ("placed", "rates", "said"),
    [
        ({"A": {1: 1, 2: 3}}, {"A": 8.0}, "dealt to leaders instead of partitions 1.00"),
        (
            {"A": {1: 1, 2: 2}, "B": {2: 1, 3: 1}},
            {"A": 6.0, "B": 6.0},
            "dealt to leaders 1.50, an SQF shared by all could",
        ),
        (
            {"A": {1: 1}, "B": {2: 1}},
            {"A": 9.0, "B": 1.0},
            "no partitioner gets below 1.80: 1 topic on broker 1; move leaders",
        ),
    ],
)
def test_a_peak_says_what_could_help(
    placed: dict[str, dict[int, int]], rates: dict[str, float], said: str
) -> None:
    found = findings(audit(led(placed), TopicRates(by_topic=rates, unit=Unit.BYTES_S)))

    (peak,) = [one for one in found if one.kind == "peak"]
    assert (peak.level, peak.text.endswith(said)) == (Level.WARNING, True), peak.text


def test_without_rates_no_peak_is_found_but_topics_without_a_rate_are_named() -> None:
    assert "peak" not in kinds(led({"A": {1: 1, 2: 3}}))
    rates = TopicRates(by_topic={"A": 1.0}, unit=Unit.BYTES_S)

    found = {f.kind: f.text for f in findings(audit(led({"A": {1: 1}, "B": {1: 1}}), rates))}

    assert found["unmeasured"].startswith("1 topic without a measured rate")


def test_the_worst_stand_first_and_levels_include_the_worse_ones() -> None:
    found = findings(audit(placement({"A": [[], [1], [1]], "B": [[2]]})))

    ranks = [one.level.rank for one in found]
    assert ranks == sorted(ranks, reverse=True)
    assert len(at_least(found, Level.NOTE)) == len(found)
    assert {one.level for one in at_least(found, Level.WARNING)} == {Level.WARNING, Level.ERROR}
    assert [one.kind for one in at_least(found, Level.ERROR)] == ["offline"]
