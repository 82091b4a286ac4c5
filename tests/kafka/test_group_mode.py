"""Group mode on real brokers: the leader asks, the answer holds, and nothing stops without one."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.structs import MemberState

from tests.kafka.group_members import (
    IMPATIENT,
    PARTITIONS,
    SOON_S,
    WATCHFUL,
    Controller,
    Running,
    Trace,
    everything,
    member_with,
    members,
    opened,
    produce,
)
from tests.kafka.streams import wait_until
from trimtab.apply.consumers.assignments import (
    NO_PLAN,
    AssignmentAnswer,
    AssignmentRequest,
)
from trimtab.apply.consumers.kafka import group_reader
from trimtab.apply.consumers.kafka.assignor import request_rejoin
from trimtab.apply.consumers.kafka.group_reader import GroupReader, open_group_reader
from trimtab.apply.consumers.sockets.assignment_service import ControllerClient
from trimtab.errors import ApplyError, ConfigError
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdmin]:
    with Cluster(cluster.bootstrap_servers).admin() as port:
        yield port


@pytest.fixture
def topic(admin: KafkaAdmin) -> str:
    name = f"group-mode-{uuid.uuid4().hex[:8]}"
    admin.create_topic(TopicSpec(name=name, partitions=PARTITIONS, replication=3))
    return name


# ---------------------------------------------------------------- with the controller


def test_the_plan_is_followed_exactly_and_a_newer_one_makes_the_group_rejoin(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, (0, 1, 2), (3,), (4, 5))

    with controller.there(), members(cluster, topic, controller.url, 3) as group:
        group.reach((0, 1, 2), (3,), (4, 5), version=1)
        produce(cluster, topic, 20)
        controller.decide_on(2, (0,), (1, 2, 3, 5), (4,))
        group.reach((0,), (1, 2, 3, 5), (4,), version=2)
        produce(cluster, topic, 20)
        wait_until(lambda: group.trace.handled() == everything(40), within_s=SOON_S)

        assert group.fallbacks == 0
        group.trace.check_order()


def test_a_killed_member_s_partitions_are_read_by_who_is_left(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, (0, 1, 2), (3, 4, 5))
    program = (
        "import sys\n"
        "from trimtab.apply.consumers.kafka.group_reader import open_group_reader\n"
        "from trimtab.apply.consumers.sockets.assignment_service import ControllerClient\n"
        "from trimtab.kafka.cluster import Cluster\n"
        "topic, brokers, url = sys.argv[1:]\n"
        "reader = open_group_reader(topic, [topic], Cluster(brokers),\n"
        "    line=ControllerClient(url), client_id='c-9', on_revoked=lambda gone: None,\n"
        "    session_s=6.0)\n"
        "while True: reader.read(0.1)\n"  # it commits nothing: all of its work is lost with it
    )
    command = [sys.executable, "-W", "ignore", "-c", program]

    with controller.there(), members(cluster, topic, controller.url, 1) as group:
        group.reach((0, 1, 2, 3, 4, 5), version=1)
        victim = subprocess.Popen([*command, topic, cluster.bootstrap_servers, controller.url])
        try:
            wait_until(lambda: len(*group.owned) == 3, within_s=SOON_S, what="the other member")
            produce(cluster, topic, 20)
        finally:
            victim.kill()
            victim.wait()
        group.reach((0, 1, 2, 3, 4, 5), version=1)
        wait_until(lambda: group.trace.handled() == everything(20), within_s=SOON_S)

        group.trace.check_order()


def test_partitions_that_a_topic_gains_are_read_before_the_plan_knows_them(
    cluster: LocalCluster, topic: str, admin: KafkaAdmin
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, tuple(range(PARTITIONS)))
    trace = Trace()

    with controller.there():
        member = Running(member_with(cluster, topic, controller.url, config=WATCHFUL), trace)
        wait_until(lambda: len(member.owned) == PARTITIONS, within_s=SOON_S)
        admin.add_partitions(topic, PARTITIONS + 2)
        produce(cluster, topic, 5, of=PARTITIONS + 2)
        wait_until(lambda: trace.handled() == everything(5, of=PARTITIONS + 2), within_s=SOON_S)
        member.stop()

    assert member.reader.fallbacks == 0


def test_a_leader_that_did_not_look_while_it_assigned_new_partitions_gets_its_share(
    cluster: LocalCluster, topic: str, admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    #  leader    joins anew ······ (assigns in the background) ······ reads: has its share
    #  other                 joins ··· has its share
    controller = Controller(topic)
    controller.decide_on(1, (0, 1, 2), (3, 4, 5))

    with (
        controller.there(),
        closing(member_with(cluster, topic, controller.url, config=WATCHFUL)) as leader,
    ):
        wait_until(lambda: [leader.read(0.1), leader.leads][1], within_s=SOON_S)
        other = Running(opened(cluster, topic, controller.url, index=1), Trace())
        wait_until(lambda: [leader.read(0.1), len(leader.owned) == 3][1], within_s=SOON_S)
        monkeypatch.setattr(group_reader, "_REBALANCE_S", 0.0)
        admin.add_partitions(topic, PARTITIONS + 2)
        wait_until(lambda: [leader.read(0), len(leader.owned) != 3][1], within_s=SOON_S)
        wait_until(lambda: len(other.owned) == 4, within_s=SOON_S, what="the other's share")

        wait_until(lambda: [leader.read(0.1), len(leader.owned) == 4][1], within_s=SOON_S)
        other.stop()


def test_the_private_word_for_rejoining_still_makes_a_leader_rejoin(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, tuple(range(PARTITIONS)))

    with controller.there(), closing(opened(cluster, topic, controller.url)) as reader:
        wait_until(lambda: [reader.read(0.1), reader.leads][1], within_s=SOON_S)
        before = reader._consumer.group_metadata().generation_id
        request_rejoin(reader._consumer)
        wait_until(
            lambda: [reader.read(0.1), reader._consumer.group_metadata().generation_id][1] > before,
            within_s=SOON_S,
            what="the next generation",
        )


# ---------------------------------------------------------------- static members


def test_a_static_member_that_comes_back_in_time_has_what_it_had_without_a_rebalance(
    cluster: LocalCluster, topic: str, admin: KafkaAdmin
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, (0, 1, 2, 3), (4, 5))

    with controller.there():
        first = opened(cluster, topic, controller.url, instance="pod-a", session_s=60.0)
        wait_until(lambda: [first.read(0.1), len(first.owned) == PARTITIONS][1], within_s=SOON_S)
        other = Running(opened(cluster, topic, controller.url, index=1), Trace())
        wait_until(lambda: [first.read(0.1), len(first.owned) == 4][1], within_s=SOON_S)
        wait_until(lambda: other.owned == (4, 5), within_s=SOON_S)
        generation = first._consumer.group_metadata().generation_id
        first._consumer.close(autocommit=False)  # as a crash does, it tells nobody

        again = opened(cluster, topic, controller.url, instance="pod-a", session_s=60.0)
        wait_until(lambda: [again.read(0.1), len(again.owned) == 4][1], within_s=SOON_S)
        assert again._consumer.group_metadata().generation_id == generation
        assert again.version == 1
        names = {m.instance for m in admin.groups([topic])[0].members}
        assert names == {"pod-a", None}

        again.close()  # told to stop, it leaves at once, long before its session would end
        wait_until(lambda: len(other.owned) == PARTITIONS, within_s=30.0, what="all of it")
        other.stop()


def test_a_static_leader_that_comes_back_in_time_goes_on_to_ask_for_newer_plans(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, (0, 1, 2, 3), (4, 5))

    with controller.there():
        first = opened(cluster, topic, controller.url, instance="pod-a")
        wait_until(lambda: [first.read(0.1), len(first.owned) == PARTITIONS][1], within_s=SOON_S)
        other = Running(opened(cluster, topic, controller.url, index=1), Trace())
        wait_until(lambda: [first.read(0.1), len(first.owned) == 4][1], within_s=SOON_S)
        assert first.leads
        first._consumer.close(autocommit=False)  # as a crash does, it tells nobody

        again = opened(cluster, topic, controller.url, instance="pod-a")
        wait_until(lambda: [again.read(0.1), len(again.owned) == 4][1], within_s=SOON_S)
        controller.decide_on(2, (0, 1, 2), (3, 4, 5))
        wait_until(
            lambda: [again.read(0.1), {again.version, other.reader.version} == {2}][1],
            within_s=SOON_S,
            what="the newer plan",
        )
        again.close()
        other.stop()


def test_a_member_whose_instance_id_another_one_takes_ends_with_a_clear_error(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, tuple(range(PARTITIONS)))
    produce(cluster, topic, 1)

    with controller.there():
        first = opened(cluster, topic, controller.url, instance="pod-a")
        seen = _read(first, PARTITIONS)
        second = opened(cluster, topic, controller.url, instance="pod-a")
        assert _read(second, PARTITIONS) == seen
        with pytest.raises(ApplyError, match="taken over the instance id pod-a"):
            first.commit(dict.fromkeys(seen, 1))
        first.close()
        second.commit(dict.fromkeys(seen, 1))
        second.close()


# ---------------------------------------------------------------- without it


def test_while_the_controller_is_away_everybody_keeps_what_it_has_and_then_the_plan_holds_again(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, (0, 1, 2, 3), (4, 5))

    with members(cluster, topic, controller.url, 0) as group:
        with controller.there():
            group.join(2)
            group.reach((0, 1, 2, 3), (4, 5), version=1)
        before = group.owned
        group.join()
        group.reach((0, 1, 2, 3), (4, 5), (), version=NO_PLAN)
        assert group.owned == [*before, ()]
        produce(cluster, topic, 20)
        wait_until(lambda: group.trace.handled() == everything(20), within_s=SOON_S)
        assert group.fallbacks >= 1

        controller.decide_on(2, (0, 1), (4, 5), (2, 3))
        with controller.there():
            group.reach((0, 1), (4, 5), (2, 3), version=2)

        group.trace.check_order()


def _one_twice(answer: AssignmentAnswer, _: AssignmentRequest) -> AssignmentAnswer:
    first = next(share[0] for share in answer.assignment.values() if share)
    return AssignmentAnswer(
        answer.version, {m: (*share, first) for m, share in answer.assignment.items()}
    )


def _one_missing(answer: AssignmentAnswer, _: AssignmentRequest) -> AssignmentAnswer:
    shares: Mapping[str, Any] = {m: share[1:] for m, share in answer.assignment.items()}
    return AssignmentAnswer(answer.version, shares)


def _a_stranger(answer: AssignmentAnswer, _: AssignmentRequest) -> AssignmentAnswer:
    shares = {f"{m}-else": share for m, share in answer.assignment.items()}
    return AssignmentAnswer(answer.version, shares)


@pytest.mark.parametrize("distort", [_one_twice, _one_missing, _a_stranger])
def test_a_wrong_answer_is_not_followed_and_everything_is_read_all_the_same(
    cluster: LocalCluster, topic: str, distort
) -> None:
    controller = Controller(topic)
    controller.decide_on(3, (0, 1, 2, 3, 4, 5))
    controller.distort = distort
    produce(cluster, topic, 10)

    with controller.there(), members(cluster, topic, controller.url, 2) as group:
        wait_until(group.share_everything, within_s=SOON_S, what="an owner for every partition")
        wait_until(lambda: group.trace.handled() == everything(10), within_s=SOON_S)

        assert group.fallbacks >= 1
        group.trace.check_order()


def test_a_session_shorter_than_the_leader_s_patience_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(ConfigError, match="too short"):
        open_group_reader(
            "g",
            ["t"],
            Cluster(cluster.bootstrap_servers),
            line=ControllerClient("http://127.0.0.1:1"),
            client_id="c",
            on_revoked=lambda _: None,
            session_s=4.0,
        )


# ---------------------------------------------------------------- one reader by itself


def test_a_commit_that_comes_too_late_is_told_and_the_records_are_read_again(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, tuple(range(PARTITIONS)))
    produce(cluster, topic, 1)
    revoked: list[frozenset[TopicPartition]] = []

    with (
        controller.there(),
        closing(
            member_with(cluster, topic, controller.url, revoked=revoked, config=IMPATIENT)
        ) as reader,
    ):
        seen = _read(reader, PARTITIONS)
        wait_until(
            lambda: reader._consumer.group_metadata().state is not MemberState.STABLE,
            within_s=SOON_S,
            what="the member's leave",
        )
        reader.commit(dict.fromkeys(seen, 1))

        assert frozenset().union(*revoked) == frozenset(seen)
        assert reader.owned == frozenset()
        assert _read(reader, PARTITIONS) == seen


def test_what_was_not_committed_before_a_rebalance_is_read_again_from_partitions_that_stay(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, tuple(range(PARTITIONS)))
    produce(cluster, topic, 2)
    revoked: list[frozenset[TopicPartition]] = []

    with (
        controller.there(),
        closing(opened(cluster, topic, controller.url, revoked=revoked)) as reader,
    ):
        seen = _read(reader, 2 * PARTITIONS)
        reader.commit(dict.fromkeys(seen, 1))  # the second of each is not done yet
        controller.decide_on(2, tuple(range(PARTITIONS)))
        again = _read(reader, PARTITIONS)

    assert frozenset().union(*revoked) == frozenset(seen)
    assert again == seen


def test_a_member_that_tends_stays_in_the_group_and_is_handed_nothing(
    cluster: LocalCluster, topic: str
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, tuple(range(PARTITIONS)))
    revoked: list[frozenset[TopicPartition]] = []

    with (
        controller.there(),
        closing(
            member_with(cluster, topic, controller.url, group=f"{topic}-idle", config=IMPATIENT)
        ) as idle,
        closing(
            member_with(cluster, topic, controller.url, revoked=revoked, config=IMPATIENT)
        ) as tending,
    ):
        wait_until(lambda: [idle.read(0.1), idle.owned][1], within_s=SOON_S)
        wait_until(lambda: [tending.read(0.1), tending.owned][1], within_s=SOON_S)
        produce(cluster, topic, 1)

        def the_idle_one_has_left() -> bool:
            tending.stay_active()
            return idle._consumer.group_metadata().state is not MemberState.STABLE

        wait_until(the_idle_one_has_left, within_s=SOON_S)
        tending.stay_active()
        seen = _read(tending, PARTITIONS)
        tending.commit(dict.fromkeys(seen, 1))

        assert revoked == []
        assert seen == {TopicPartition(topic, n): 0 for n in range(PARTITIONS)}
        assert [tending.position(p) for p in seen] == [1] * PARTITIONS


def test_the_position_passes_over_what_a_transaction_leaves_behind(
    cluster: LocalCluster, topic: str, admin: KafkaAdmin
) -> None:
    controller = Controller(topic)
    controller.decide_on(1, tuple(range(PARTITIONS)))
    first = TopicPartition(topic, 0)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(30)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"v", partition=0)
        producer.flush(30)
        finish()

    with controller.there(), closing(opened(cluster, topic, controller.url)) as reader:
        assert reader.position(first) is None
        assert list(_read(reader, 1)) == [first]
        wait_until(
            lambda: [reader.read(0.1), reader.position(first)][1] == 4,  # two records, two markers
            within_s=SOON_S,
            what="the end of the partition",
        )
        reader.commit({first: 4})

    assert admin.committed([topic])[topic][first] == 4


def _read(reader: GroupReader, count: int) -> dict[TopicPartition, int]:
    """Reads until so many records have come: partition → offset of the last one."""
    found: dict[TopicPartition, int] = {}
    records = 0

    def enough() -> bool:
        nonlocal records
        for record in reader.read(0.1):
            found[record.source] = record.offset
            records += 1
        return records >= count

    wait_until(enough, within_s=SOON_S, what=f"{count} records")
    return dict(sorted(found.items()))
