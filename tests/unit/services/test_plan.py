"""The planning service: plans from files and for live groups, and what it tells meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, LoadStep, Measurement, PartitionLoad, Source
from trimtab.model.plan import Layer
from trimtab.plan.registry import planner_of
from trimtab.services.plan import PlanRequest, plan_group

ORDERS = [TopicPartition("orders", number) for number in range(2)]
LOADS = Loads(
    capacity=100,
    assignment=Assignment(dict.fromkeys(ORDERS, 0)),
    steps=(LoadStep(loads={ORDERS[0]: 60.0, ORDERS[1]: 50.0}),),
)


def request(**changes: Any) -> PlanRequest:
    trim = planner_of(Layer.CONSUMERS, "trim")
    given: dict[str, Any] = {"loads": LOADS, "origin": "loads.json", "planner": trim}
    return PlanRequest(**(given | changes))


def measurement(cluster: str = "fake") -> Measurement:
    return Measurement(
        cluster=cluster,
        from_ts=0,
        to_ts=60_000_000,
        window_s=30.0,
        rejects=0,
        partitions=tuple(
            PartitionLoad(
                topic=name.topic,
                partition=name.partition,
                bytes_s=60.0,
                records_s=6.0,
                source=Source.LOG_DIRS,
            )
            for name in ORDERS
        ),
    )


def test_a_file_is_planned_without_a_cluster() -> None:
    told = Told()

    found = plan_group(request(group="g"), listener=told)

    assert (found.plan.before.consumers, found.plan.after.consumers) == (1, 2)
    assert found.plan.scope.group == "g"
    assert found.loads == LOADS.steps[0].loads
    assert (told.notes, told.warnings) == ([], [])


def test_the_present_assignment_is_that_of_the_live_group(cluster: Cluster) -> None:
    told = Told()

    found = plan_group(
        request(loads=measurement("another"), group="g", capacity=100.0), cluster, listener=told
    )

    assert found.plan.before.consumers == 1
    assert found.plan.members
    assert told.warnings[0] == "loads.json was measured on cluster another, not on fake"
    assert "ago, longer than 15 min" in told.warnings[1]


def test_a_group_or_topic_that_the_cluster_does_not_have_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match='Group "absent" reads no topic') as raised:
        plan_group(request(group="absent"), cluster)
    assert "--topic" in (raised.value.hint or "")
    with pytest.raises(ConfigError, match='has no topic "gone"'):
        plan_group(request(group="g", topics=frozenset({"gone"})), cluster)


def test_a_measurement_has_no_steps() -> None:
    with pytest.raises(ConfigError, match="it has no steps"):
        plan_group(request(loads=measurement(), step=0))


def test_what_the_plan_assumes_is_told() -> None:
    told = Told()
    new = Loads(capacity=100, steps=LOADS.steps)

    plan_group(request(loads=new, dead=frozenset({9})), listener=told)

    assert told.notes == [
        "No partition has a consumer yet: every partition is planned as a new one."
    ]
    assert told.warnings == ["--dead 9: that consumer reads nothing"]


def test_a_search_ends_with_its_time_limit() -> None:
    exact = planner_of(Layer.CONSUMERS, "exact").with_options(time_limit_s=20)

    found = plan_group(request(planner=exact))

    assert found.plan.params["time_limit_s"] == 20
