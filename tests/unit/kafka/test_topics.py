"""The topics Trimtab owns."""

from __future__ import annotations

import pytest

from trimtab.errors import ConfigError, MeasurementError
from trimtab.kafka import topics
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.topics import OwnTopics, ensure_per_broker, ensure_topics
from trimtab.model.cluster import Broker, BrokerId
from trimtab.model.timeouts import Timeouts
from trimtab.testing.fakes import FakeAdmin


def brokers(count: int) -> FakeAdmin:
    return FakeAdmin(brokers=[Broker(id=BrokerId(i + 1)) for i in range(count)])


def test_missing_topics_are_made_once() -> None:
    admin = brokers(3)

    first = ensure_topics(admin, OwnTopics())
    second = ensure_topics(admin, OwnTopics())

    assert first == ("trimtab.telemetry", "trimtab.rates", "trimtab.hotkeys")
    assert second == ()
    assert len(admin.topics(["trimtab.rates"])) == 1


@pytest.mark.parametrize(
    ("count", "replication", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (5, 3, "2")]
)
def test_replication_follows_the_live_brokers(count: int, replication: int, in_sync: str) -> None:
    admin = brokers(count + 1)
    admin.silent = {BrokerId(1)}

    ensure_topics(admin, OwnTopics())

    assert {len(p.replicas) for p in admin.topics()} == {replication}
    assert admin.settings["trimtab.rates"]["min.insync.replicas"] == in_sync


def test_another_prefix_gives_other_topics() -> None:
    assert ensure_topics(brokers(1), OwnTopics("blue."))[0] == "blue.telemetry"


@pytest.mark.parametrize(
    ("name", "partitions", "settings", "says"),
    [
        ("trimtab.rates", 2, {}, "2 partitions"),
        ("trimtab.telemetry", 1, {"cleanup.policy": "compact"}, "cleanup.policy=compact"),
        ("trimtab.hotkeys", 1, {"cleanup.policy": "compact,delete"}, "compact,delete"),
        ("trimtab.telemetry", 1, {"retention.ms": "1000"}, "retention.ms=1000"),
        ("trimtab.rates", 1, {"min.insync.replicas": "2"}, "min.insync.replicas=2"),
    ],
)
def test_a_topic_that_breaks_a_promise_is_refused_and_left_as_it_is(
    name: str, partitions: int, settings: dict[str, str], says: str
) -> None:
    admin = brokers(1)
    admin.create_topic(
        TopicSpec(name=name, partitions=partitions, replication=1, settings=settings)
    )
    before = dict(admin.settings[name])

    with pytest.raises(ConfigError, match=says):
        ensure_topics(admin, OwnTopics())

    assert admin.settings[name] == before


def test_a_topic_kept_for_ever_and_with_more_partitions_is_welcome() -> None:
    admin = brokers(1)
    admin.create_topic(
        TopicSpec(
            name="trimtab.telemetry", partitions=9, replication=1, settings={"retention.ms": "-1"}
        )
    )

    assert "trimtab.telemetry" not in ensure_topics(admin, OwnTopics())


def test_a_topic_made_by_another_process_meanwhile_is_checked() -> None:
    admin = brokers(1)

    def intruder() -> None:
        admin.before.clear()
        admin.create_topic(
            TopicSpec(
                name="trimtab.telemetry",
                partitions=1,
                replication=1,
                settings={"cleanup.policy": "compact"},
            )
        )

    admin.before["create_topic"] = intruder

    with pytest.raises(ConfigError, match="compact"):
        ensure_topics(admin, OwnTopics())


def test_a_topic_just_made_by_another_process_is_checked_once_the_brokers_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    #  asked      none ──▶ create: exists already ──▶ not shown yet ──▶ shown
    admin = brokers(3)
    ensure_topics(admin, OwnTopics())
    real, answers = admin.topic_settings, [None, None]
    monkeypatch.setattr(
        admin, "topic_settings", lambda name: answers.pop() if answers else real(name)
    )

    assert ensure_topics(admin, OwnTopics()) == ()
    assert answers == []


def test_a_broker_that_does_not_know_the_partitions_yet_is_not_taken_for_one_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    #  asked      settings: min.insync.replicas=2 ──▶ partitions: none yet ──▶ three replicas
    admin = brokers(3)
    ensure_topics(admin, OwnTopics())
    real, answers = admin.topics, [(), ()]
    monkeypatch.setattr(admin, "topics", lambda names: answers.pop() if answers else real(names))

    assert ensure_topics(admin, OwnTopics()) == ()
    assert answers == []


def test_a_topic_whose_partitions_never_appear_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = brokers(3)
    admin.timeouts = Timeouts(visible_s=0.01)
    ensure_topics(admin, OwnTopics())
    monkeypatch.setattr(admin, "topics", lambda names: ())

    with pytest.raises(MeasurementError, match="settings but no partitions"):
        ensure_topics(admin, OwnTopics())


def test_a_topic_per_broker_made_by_another_process_is_found_once_the_brokers_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = brokers(2)
    ensure_per_broker(admin, WEIGHTS, {1, 2}, {1, 2})
    real, answers = admin.topics, [(), (), ()]
    monkeypatch.setattr(admin, "topics", lambda names: answers.pop() if answers else real(names))

    assert ensure_per_broker(admin, WEIGHTS, {1, 2}, {1, 2}) == {1: 0, 2: 1}


WEIGHTS = OwnTopics().of_steering[0]


def test_a_topic_per_broker_has_a_partition_on_each_that_is_there():
    admin = FakeAdmin(brokers=[Broker(id=BrokerId(7)), Broker(id=BrokerId(42))])

    assert ensure_per_broker(admin, WEIGHTS, {7, 42}, {7, 42}) == {7: 0, 42: 1}
    assert [p.replicas for p in admin.topics([WEIGHTS.name])] == [(7,), (42,)]
    assert admin.settings[WEIGHTS.name]["cleanup.policy"] == "compact"


def test_a_topic_per_broker_grows_when_a_broker_joins_and_forgets_who_has_left():
    admin = FakeAdmin(brokers=[Broker(id=BrokerId(1)), Broker(id=BrokerId(2))])
    ensure_per_broker(admin, WEIGHTS, {1, 2}, {1, 2})

    assert ensure_per_broker(admin, WEIGHTS, {2, 3}, {2, 3}) == {2: 1, 3: 2}
    assert [p.replicas for p in admin.topics([WEIGHTS.name])] == [(1,), (2,), (3,)]


def test_a_broker_that_is_down_gets_its_partition_later():
    admin = FakeAdmin(brokers=[Broker(id=BrokerId(1)), Broker(id=BrokerId(2))])

    assert ensure_per_broker(admin, WEIGHTS, {1, 2}, {1}) == {1: 0}
    assert ensure_per_broker(admin, WEIGHTS, {1, 2}, {1, 2}) == {1: 0, 2: 1}


def test_two_that_grow_a_topic_per_broker_at_once_find_the_same():
    admin = brokers(3)
    ensure_per_broker(admin, WEIGHTS, {1, 2, 3}, {1})

    def faster() -> None:
        admin.before.clear()
        ensure_per_broker(admin, WEIGHTS, {1, 2, 3}, {1, 2, 3})

    admin.before["add_partitions"] = faster

    assert ensure_per_broker(admin, WEIGHTS, {1, 2, 3}, {1, 2, 3}) == {1: 0, 2: 1, 3: 2}
    assert [p.replicas for p in admin.topics([WEIGHTS.name])] == [(1,), (2,), (3,)]


def test_a_topic_per_broker_that_cannot_grow_is_an_error(monkeypatch):
    monkeypatch.setattr(topics, "_EXTENDED_WITHIN_S", 0.0)
    admin = brokers(2)
    ensure_per_broker(admin, WEIGHTS, {1, 2}, {1})

    def refuse() -> None:
        raise MeasurementError("not permitted")

    admin.before["add_partitions"] = refuse

    with pytest.raises(MeasurementError, match="not permitted"):
        ensure_per_broker(admin, WEIGHTS, {1, 2}, {1, 2})
