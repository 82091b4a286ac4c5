"""`trimtab run` as a command: what it refuses, what it leaves alone, what it keeps."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer

from tests.kafka.live_group import LOW, WITHIN_S, LiveGroup, live_group
from tests.kafka.streams import wait_until
from trimtab.local.cluster import LocalCluster
from trimtab.model.control import Action
from trimtab.model.json_reader import parse
from trimtab.model.plan_codec import plan_from


@pytest.fixture
def group(cluster: LocalCluster, tmp_path: Path) -> Iterator[LiveGroup]:
    with live_group(cluster, tmp_path) as made:
        yield made


def said_by(group: LiveGroup, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        group.argv(*flags),
        env=group.env,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def own_topics(group: LiveGroup) -> set[str]:
    return {r.topic for r in group.admin.topics() if r.topic.startswith(group.own.prefix)}


def test_a_dry_run_decides_aloud_and_changes_nothing(group: LiveGroup) -> None:
    group.send(1)
    before = own_topics(group)

    answer = said_by(group, "--for", "5s")

    assert answer.returncode == 0, answer.stderr
    assert "scale_up   0 → 1" in answer.stdout
    assert "no consumer reads" in answer.stdout
    assert own_topics(group) == before == {group.topic, group.own.rates}
    assert not group.committed()
    assert not group.consumers()
    assert not group.admin.groups([group.group])


def test_a_dry_run_takes_a_group_that_kafka_deals_to_as_it_is(group: LiveGroup) -> None:
    config = {"bootstrap.servers": group.bootstrap, "group.id": group.group, "client.id": "shop"}
    with closing(Consumer({**config, "auto.offset.reset": "earliest"})) as member:
        member.subscribe([group.topic])
        wait_until(lambda: member.poll(0.1) or member.assignment(), what="an ordinary member")

        answer = said_by(group, "--for", "5s", "--max-quiet", "1")
        acting = said_by(group, "--execute", "--consume", "--service-time 4ms")

    assert answer.returncode == 0, answer.stderr
    assert "no consumer reads" not in answer.stdout
    assert answer.stdout.count("none       1 → 1") == 1, "it is shown once, until it changes"
    assert acting.returncode == 2, acting.stderr
    assert f"Group {group.group} has 1 subscribed member: shop at " in acting.stderr
    assert not group.consumers()


@pytest.mark.parametrize(
    ("flags", "code", "why"),
    [
        (["--execute"], 2, "--consume is required with --execute"),
        (["--topic", "nowhere"], 2, "There is no topic nowhere."),
        (["--planner", "astrologer"], 4, 'There is no planner "astrologer" for consumers'),
        (["--planner", "ll-ffd"], 2, "Give --sla, such as 5s."),
        (["--dead-after", "3s"], 2, "--dead-after must be at least 10s, not 3s"),
        (["--start-timeout", "3s"], 2, "--start-timeout must be at least 10s, not 3s"),
        (["--dead-after", "30s", "--mode", "group"], 2, "no effect in group mode"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_touched(
    group: LiveGroup, flags: list[str], code: int, why: str
) -> None:
    answer = said_by(group, *flags)

    assert answer.returncode == code, answer.stderr
    assert why in answer.stderr
    assert own_topics(group) == {group.topic, group.own.rates}


def test_the_last_words_of_a_consumer_that_cannot_start_reach_the_operator(
    group: LiveGroup,
) -> None:
    group.send(1)
    run = group.watch_only("--execute", "--consume", "--handler nowhere:book")

    why = "consumer 0 did not start: error: The handler's module nowhere cannot be imported"
    wait_until(lambda: f"0 → 0    {why}" in run.log.read_text(), what="what went wrong")

    assert run.end() == 0


def test_decisions_are_kept_in_their_topic_and_as_a_table_with_reason_and_forecast(
    group: LiveGroup,
) -> None:
    run = group.run("--stop-consumers", "--planner", "exact", "--time-limit", "5s")
    group.settle(1)
    group.send(20)
    group.judge()

    assert run.end() == 0

    kept = group.decisions()
    table = pq.read_table(group.home / "warehouse" / "decisions").to_pylist()
    assert kept[0].action is Action.SCALE_UP
    assert (kept[0].before, kept[0].after) == (0, 1)
    assert all(decision.reason for decision in kept)
    assert kept[0].forecast["max_load"] == group.partitions * LOW
    assert [row["reason"] for row in table] == [decision.reason for decision in kept]
    plans = {
        key: plan_from(parse(value, origin=group.own.plans))
        for *_, key, value in group.records(group.own.plans, 1)
    }
    followed: list[Any] = [
        plans[(d.plan or "").encode()] for d in kept if d.action is Action.SCALE_UP
    ]
    assert [(plan.scope.group, plan.after.consumers) for plan in followed] == [(group.group, 1)]
    wait_until(lambda: not group.consumers(), what="the end of its consumers")
