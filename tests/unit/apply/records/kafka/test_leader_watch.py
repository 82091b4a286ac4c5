"""Leaders kept fresh in the background."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from structlog.testing import capture_logs

from tests.unit.apply.records.kafka.fake_leaders import HOURS, FakeSource
from trimtab.apply.records.kafka import leader_watch
from trimtab.apply.records.kafka.leader_watch import ClientSource, LeaderWatch
from trimtab.errors import BrokerUnavailable, MeasurementError, TrimtabError, UnknownTopic


def test_a_topic_is_asked_for_once() -> None:
    source = FakeSource({"t": {0: 1, 1: 2}})
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        watch.ensure_known("t")
        watch.ensure_known("t")

        assert watch.snapshot.topic("t").leader == {0: 1, 1: 2}
    assert source.questions == ["t"]


def test_a_topic_that_nobody_knows_is_an_error_in_the_end() -> None:
    with (
        LeaderWatch(FakeSource({}), first_use_s=0.0) as watch,
        pytest.raises(UnknownTopic),
    ):
        watch.ensure_known("t")


def test_a_topic_that_is_just_being_made_is_waited_for() -> None:
    source = FakeSource({})
    with (
        LeaderWatch(source, refresh_s=HOURS, first_use_s=20.0) as watch,
        ThreadPoolExecutor(1) as thread,
    ):
        meeting = thread.submit(watch.ensure_known, "t")
        source.wait_for(1)
        source.topics["t"] = {0: 1}

        meeting.result()
        assert watch.snapshot.topics == ("t",)


def test_brokers_that_do_not_answer_are_an_error_at_first_use_only() -> None:
    source = FakeSource({"t": {0: 1}})
    with LeaderWatch(source, refresh_s=HOURS, first_use_s=0.0) as watch:
        watch.ensure_known("t")
        seen = watch.snapshot
        source.fault = BrokerUnavailable("nobody")

        watch.refresh()
        with pytest.raises(BrokerUnavailable):
            watch.ensure_known("other")

        assert watch.snapshot is seen


def test_the_snapshot_stays_the_same_object_while_nothing_changes() -> None:
    source = FakeSource({"t": {0: 1, 1: 2}, "quiet": {0: 3}})
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        watch.ensure_known("t")
        watch.ensure_known("quiet")
        seen = watch.snapshot
        watch.refresh()
        assert watch.snapshot is seen

        source.topics["quiet"] = {0: -1}
        watch.refresh()

        assert watch.snapshot is not seen
        assert watch.snapshot.leading == {1, 2}


def test_a_topic_that_is_gone_is_forgotten() -> None:
    source = FakeSource({"t": {0: 1}, "u": {0: 1}})
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        watch.ensure_known("t")
        watch.ensure_known("u")
        del source.topics["t"]

        watch.refresh()

        assert watch.snapshot.topics == ("u",)


def test_it_looks_again_when_told_to_and_from_time_to_time() -> None:
    source = FakeSource({"t": {0: 1}})
    with LeaderWatch(source, refresh_s=HOURS) as told:
        told.ensure_known("t")
        told.look_again()
        source.wait_for(2)
    with LeaderWatch(source, refresh_s=0.01) as by_itself:
        by_itself.ensure_known("t")
        source.wait_for(5)


def test_it_goes_on_after_whatever_fault() -> None:
    source = FakeSource({"t": {0: 1}})
    with LeaderWatch(source, refresh_s=0.01) as watch:
        watch.ensure_known("t")
        source.fault = MeasurementError("not permitted")
        source.wait_for(4)
        source.topics["t"] = {0: 2}
        source.fault = None
        source.wait_for(len(source.questions) + 2)

        assert watch.snapshot.topic("t").leader == {0: 2}


def test_a_topic_that_cannot_be_asked_for_holds_up_no_other() -> None:
    source = FakeSource({"bad": {0: 1}, "good": {0: 1}})
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        watch.ensure_known("bad")
        watch.ensure_known("good")
        source.faults["bad"] = MeasurementError("not permitted")
        source.topics = {"bad": {0: 2}, "good": {0: 2}}

        watch.refresh()
        assert watch.snapshot.topic("good").leader == {0: 2}
        assert watch.snapshot.topic("bad").leader == {0: 1}

        source.faults.clear()
        watch.refresh()
        assert watch.snapshot.topic("bad").leader == {0: 2}


def test_when_nobody_answers_the_other_topics_are_not_waited_for() -> None:
    source = FakeSource({"t": {0: 1}, "u": {0: 1}})
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        watch.ensure_known("t")
        watch.ensure_known("u")
        source.fault = BrokerUnavailable("nobody")

        watch.refresh()

    assert source.questions == ["t", "u", "t"]


def test_each_topic_that_cannot_be_asked_for_is_told_once() -> None:
    source = FakeSource({"a": {0: 1}, "b": {0: 1}})
    with LeaderWatch(source, refresh_s=HOURS) as watch, capture_logs() as told:
        watch.ensure_known("a")
        watch.ensure_known("b")
        for faulty in (["a"], ["a", "b"], ["a", "b"], ["b"]):
            source.faults = {name: MeasurementError("not permitted") for name in faulty}
            watch.refresh()

    assert [(line["event"], line["topic"]) for line in told] == [
        ("leaders_could_not_be_asked", "a"),
        ("leaders_could_not_be_asked", "b"),
        ("leaders_are_known_again", "a"),
    ]


def test_racks_are_asked_for_when_a_broker_is_new() -> None:
    source = FakeSource({"t": {0: 1}})
    source.where = {1: "a", 2: "b"}
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        watch.ensure_known("t")
        watch.refresh()
        assert source.racks_asked == 1

        source.topics["t"] = {0: 2}
        watch.refresh()

        assert source.racks_asked == 2
        assert watch.snapshot.racks == {1: "a", 2: "b"}


def test_racks_that_could_not_be_had_are_asked_for_again() -> None:
    source = FakeSource({"t": {0: 1}})
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        source.racks_fault = BrokerUnavailable("nobody")
        watch.ensure_known("t")
        assert watch.snapshot.racks == {}

        source.racks_fault, source.where = None, {1: "a"}
        watch.refresh()

        assert watch.snapshot.racks == {1: "a"}


def test_closing_ends_the_thread() -> None:
    watch = LeaderWatch(FakeSource({"t": {0: 1}}), refresh_s=HOURS)
    watch.ensure_known("t")
    watch.close()

    assert "leader-watch" not in {thread.name for thread in threading.enumerate()}


# ---------------------------------------------------------------- librdkafka's answers


def client(topics: dict[str, Any], brokers: tuple[int, ...] = (1, 2)) -> Any:
    answer = SimpleNamespace(topics=topics, brokers=dict.fromkeys(brokers))
    return SimpleNamespace(list_topics=lambda topic, timeout: answer)


def topic_with(error: int | None = None, **leaders: int) -> Any:
    partitions = {
        int(p[1:]): SimpleNamespace(id=int(p[1:]), leader=leader) for p, leader in leaders.items()
    }
    return SimpleNamespace(
        error=None if error is None else KafkaError(error), partitions=partitions
    )


def test_a_leader_that_is_not_among_the_brokers_is_nobody() -> None:
    source = ClientSource(client({"t": topic_with(p0=1, p1=-1, p2=9)}))

    assert source.leaders("t", 1.0) == {0: 1, 1: -1, 2: -1}
    assert source.racks(1.0) == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic),
        (KafkaError.LEADER_NOT_AVAILABLE, BrokerUnavailable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, MeasurementError),
    ],
)
def test_errors_of_a_topic_are_told_apart(code: int, kind: type[TrimtabError]) -> None:
    with pytest.raises(kind):
        ClientSource(client({"t": topic_with(code)})).leaders("t", 1.0)


def test_a_topic_without_leaders_yet_holds_up_no_other() -> None:
    topics = {"new": topic_with(p0=1), "t": topic_with(p0=1)}
    with LeaderWatch(ClientSource(client(topics)), refresh_s=HOURS) as watch:
        watch.ensure_known("new")
        watch.ensure_known("t")
        topics["new"], topics["t"] = topic_with(KafkaError.LEADER_NOT_AVAILABLE), topic_with(p0=2)

        watch.refresh()

        assert watch.snapshot.topic("t").leader == {0: 2}


def test_silence_is_told_as_such() -> None:
    def silent(topic: str, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    with pytest.raises(BrokerUnavailable, match="who leads topic t"):
        ClientSource(SimpleNamespace(list_topics=silent)).leaders("t", 1.0)


def test_a_client_that_somebody_closed_answers_no_more() -> None:
    producer = Producer({"bootstrap.servers": "x", "test.mock.num.brokers": 1, "log_level": 0})
    producer.close()

    with pytest.raises(BrokerUnavailable, match="closed"):
        ClientSource(producer).leaders("t", 1.0)


def test_racks_come_from_an_admin_client() -> None:
    nodes = [SimpleNamespace(id=1, rack="a"), SimpleNamespace(id=2, rack=None)]
    asked = SimpleNamespace(result=lambda: SimpleNamespace(nodes=nodes))
    admin: Any = SimpleNamespace(describe_cluster=lambda request_timeout: asked)

    assert ClientSource(client({}), lambda: admin).racks(1.0) == {1: "a", 2: None}


def test_a_thread_that_waited_for_another_asks_only_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    class Down:
        def leaders(self, topic: str, timeout_s: float) -> Any:
            given.append(timeout_s)
            raise BrokerUnavailable("down")

        def close(self) -> None: ...

    times = iter([0.0, 100.0])  # when it is called, and when it is its turn
    monkeypatch.setattr(leader_watch, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(leader_watch, "attempts", lambda *, within_s, stop: iter([within_s]))

    with pytest.raises(BrokerUnavailable):
        LeaderWatch(cast("Any", Down()), first_use_s=10.0).ensure_known("t")

    assert given == [pytest.approx(0.1)]
