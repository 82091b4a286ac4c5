"""What is found, and how bad it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab.audit.finding import Finding
from trimtab.audit.findings import at_least, findings
from trimtab.audit.loads import TopicLoad, topic_rates
from trimtab.audit.topology import AuditOptions, audit
from trimtab.audit.unevenness import Level
from trimtab.model.cluster import BrokerId, ClusterSnapshot, Replicas, TopicPartition
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


# ---------------------------------------------------------------- with measured rates


def measured(snapshot: ClusterSnapshot, **rates: list[float | None]) -> TopicLoad:
    """Rates of the partitions of each topic; None was not measured."""
    found = {
        TopicPartition(topic, number): rate
        for topic, of in rates.items()
        for number, rate in enumerate(of)
        if rate is not None
    }
    return topic_rates(snapshot, found, Unit.BYTES_S)


def judged(
    snapshot: ClusterSnapshot, options: AuditOptions | None = None, **rates: list[float | None]
) -> dict[str, Finding]:
    found = audit(snapshot, measured(snapshot, **rates), options)
    return {one.kind: one for one in findings(found)}


def test_a_broker_that_carries_nearly_everything_is_found_whatever_the_dealing_would_be() -> None:
    # Records dealt to partitions or leaders in turn would be even: that is not what was measured.
    found = judged(placement(EVEN), A=[9e6, 5e5, 5e5])

    assert list(found) == ["peak"]
    assert found["peak"].level is Level.WARNING
    assert "broker 1 has 2.70 times the mean" in found["peak"].text
    assert "A-0 alone has 2.70 times the mean" in found["peak"].advice


def test_a_topic_that_is_level_as_measured_gives_no_finding_whatever_its_counts() -> None:
    # Three partitions on broker 2 and one on broker 1; `node` sends each broker one half.
    snapshot = placement({"A": [[1, 2], [2, 1], [2, 1], [2, 1]]})

    assert judged(snapshot, A=[3.0, 1.0, 1.0, 1.0]) == {}
    assert "uneven" in kinds(snapshot)


@pytest.mark.parametrize(
    ("lists", "rates"),
    [
        ([[1], [1], [2], [3]], [1.0, 1.01, 1.0, 0.99]),
        ([[1], [2]], [5.0, 5.0]),  # the third broker has none
        ([[1]], [5.0]),
    ],
)
def test_what_only_more_partitions_would_change_is_a_note(
    lists: list[list[int]], rates: list[float | None]
) -> None:
    snapshot = placement({"A": lists}, brokers=[1, 2, 3])

    found = judged(snapshot, AuditOptions(up_to=0), A=rates)

    assert found["peak"].level is Level.NOTE
    assert found["peak"].advice.startswith("leaders are as even as the number of partitions allows")


def test_the_wanted_peak_is_an_option_and_is_itself_still_fine() -> None:
    def levels(wanted: float) -> list[str]:
        options = AuditOptions(wanted_peak=wanted, up_to=0)
        return list(judged(placement(EVEN), options, A=[1.5, 0.9, 0.6]))

    assert (levels(1.25), levels(1.5), levels(1.6)) == (["peak"], [], [])


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (placement({"A": [[1, 2]] * 4 + [[3, 2]] * 2}), "2 leader moves to replicas in sync"),
        (led({"A": {1: 4, 2: 1, 3: 1}}), "no leader can move to a replica in sync"),
    ],
)
def test_a_peak_says_what_could_help(snapshot: ClusterSnapshot, said: str) -> None:
    found = judged(snapshot, A=[1.0] * 6)

    assert found["peak"].level is Level.WARNING
    assert said in found["peak"].advice


def test_rates_that_are_all_zero_say_nothing_and_leaders_are_judged_instead() -> None:
    found = judged(led({"A": {1: 6}, "B": {2: 1}, "C": {3: 1}}), A=[0.0] * 6, B=[0.0], C=[0.0])

    assert found["no_load"].level is Level.NOTE
    assert found["leaders"].level is Level.WARNING


@pytest.mark.parametrize(
    ("of_b", "level"), [([1.0] * 10 + [None], Level.NOTE), ([None] * 11, Level.WARNING)]
)
def test_partitions_without_a_rate_are_named_and_many_of_them_are_a_warning(
    of_b: list[float | None], level: Level
) -> None:
    snapshot = placement({"A": [[1], [2]], "B": [[1]] * 6 + [[2]] * 5})

    found = judged(snapshot, A=[1.0, 1.0], B=of_b)

    assert found["unmeasured"].level is level
    assert "1 topic without a measured rate" in found["unmeasured"].text


def test_where_rates_are_missing_leaders_are_judged_by_their_number() -> None:
    # The rates that are known are even; nothing is known of what broker 1 leads beside them.
    snapshot = led({"A": {1: 1, 2: 1, 3: 1}, "B": {1: 12}})

    found = judged(snapshot, A=[1.0, 1.0, 1.0])

    assert found["leaders"].level is Level.WARNING
    assert found["stacked"].count == 1
    assert "leaders" not in judged(snapshot, A=[1.0, 1.0, 1.0], B=[0.0] * 12)


# ---------------------------------------------------------------- without rates


def with_sizes(snapshot: ClusterSnapshot, *sizes: int | None) -> ClusterSnapshot:
    placed = zip(snapshot.partitions, sizes, strict=True)
    return replace(snapshot, partitions=tuple(replace(p, log_bytes=size) for p, size in placed))


@pytest.mark.parametrize(
    ("leads", "level"),
    [
        ((18, 1, 1), Level.WARNING),
        ((3, 0, 0), Level.WARNING),
        ((4, 1, 1), Level.WARNING),
        ((12, 4, 4), Level.WARNING),
        ((9, 6, 5), Level.NOTE),
        ((3, 1), Level.NOTE),
        ((2, 0), Level.NOTE),
        ((8, 6, 6), None),
        ((5, 4, 3), None),
        ((2, 1, 1), None),
        ((1, 1, 1), None),
        ((1, 0, 0), None),
        ((40,), None),
        ((110, 100, 90), None),
    ],
)
def test_leaders_per_broker_are_judged_against_the_best_spread(
    leads: tuple[int, ...], level: Level | None
) -> None:
    # Each partition is a topic of its own, so that no topic is uneven by itself.
    owners = [broker for broker, count in enumerate(leads, 1) for _ in range(count)]
    snapshot = placement(
        {f"t{n:03}": [[owner]] for n, owner in enumerate(owners)},
        brokers=range(1, len(leads) + 1),
    )

    assert kinds(snapshot).get("leaders") is level


def test_the_threshold_of_leaders_is_an_option() -> None:
    snapshot = led({f"t{n}": {1 if n < 9 else 2 if n < 15 else 3: 1} for n in range(20)})

    assert kinds(snapshot, wanted_leaders=1.2)["leaders"] is Level.WARNING
    assert kinds(snapshot, wanted_leaders=1.3)["leaders"] is Level.NOTE
    assert "leaders" not in kinds(snapshot, wanted_leaders=1.3, wanted_peak=1.3)


def test_leaders_count_their_bytes_where_all_sizes_are_known() -> None:
    # Two partitions each; the large ones are both on broker 1.
    snapshot = led({"A": {1: 1, 2: 1}, "B": {1: 1, 2: 1}})

    assert kinds(with_sizes(snapshot, 90, 10, 90, 10))["leaders"] is Level.NOTE
    assert "leaders" not in kinds(with_sizes(snapshot, 90, 10, 10, 90))
    assert "leaders" not in kinds(with_sizes(snapshot, 90, 10, 90, None))
    assert "leaders" not in kinds(with_sizes(snapshot, 0, 0, 0, 0))


def test_many_leaders_with_few_bytes_are_a_note_only() -> None:
    snapshot = led({"A": {1: 10}, "B": {2: 1}, "C": {3: 1}})

    assert kinds(snapshot)["leaders"] is Level.WARNING
    assert kinds(with_sizes(snapshot, *[1] * 10, 10, 10))["leaders"] is Level.NOTE


# ---------------------------------------------------------------- after a failure


def ring(brokers: int, times: int) -> ClusterSnapshot:
    """Whatever a broker leads, the next one takes over."""
    lists = [[b, b % brokers + 1] for b in range(1, brokers + 1) for _ in range(times)]
    return placement({"A": lists})


@pytest.mark.parametrize(
    ("snapshot", "level"),
    [
        (ring(6, 4), Level.WARNING),  # one broker doubles, 1.67 × the mean of five
        (ring(3, 4), Level.NOTE),  # 8 and 4
        (placement({"A": [[1, 2], [1, 3], [2, 1], [2, 3], [3, 1], [3, 2]]}), None),
        (placement(EVEN), None),  # 2 and 1 is the best for three partitions
        (placement({"A": [[1], [2], [3]]}), None),  # nothing is taken over
        (placement({"A": [[1]]}), None),
    ],
)
def test_a_failure_that_leaves_one_broker_with_too_much_is_found(
    snapshot: ClusterSnapshot, level: Level | None
) -> None:
    assert kinds(snapshot).get("one_failure_peak") is level


def test_the_load_after_a_failure_is_the_measured_one_carried_along() -> None:
    # Even by number after every failure; by load, broker 2 takes over both hot partitions of 1.
    lists = [[1, 2], [1, 2], [1, 3], [1, 3], [2, 1], [2, 3], [2, 1], [2, 3]]
    lists += [[3, 1], [3, 2], [3, 1], [3, 2]]
    snapshot = placement({"A": lists})
    rates: list[float | None] = [4.0, 4.0, 0.1, 0.1, *[2.0] * 8]

    found = judged(snapshot, A=rates)

    assert found["one_failure_peak"].level is Level.NOTE
    assert "worst: broker 1 fails, broker 2 then has 1.32 times" in found["one_failure_peak"].text
    assert "one_failure_peak" not in kinds(snapshot)
    after = AuditOptions(wanted_after=1.3)
    assert judged(snapshot, after, A=rates)["one_failure_peak"].level is Level.WARNING


def test_what_no_order_of_replicas_could_change_is_a_note() -> None:
    # Four partitions on three brokers: one of these has two.
    snapshot = placement({"A": [[1, 3], [2, 4], [3, 1], [4, 2]]})
    even: list[float | None] = [1.0] * 4

    found = judged(snapshot, AuditOptions(wanted_after=1.4), A=even)

    assert found["one_failure_peak"].level is Level.NOTE
    said = "1.50 times the mean load of the remaining brokers; 1.50 is possible"
    assert said in found["one_failure_peak"].text
    assert "one_failure_peak" not in judged(snapshot, A=even)


def test_a_failure_is_not_blamed_for_what_is_so_already() -> None:
    found = judged(placement({"A": [[1, 2], [2, 3], [3, 1]]}), A=[9.0, 0.5, 0.5])

    assert "one_failure_peak" not in found


def test_topics_that_a_failure_makes_uneven_are_a_note() -> None:
    found = {f.kind: f for f in findings(audit(ring(6, 4)))}

    assert found["one_failure_uneven"].level is Level.NOTE
    assert found["one_failure_uneven"].count == 6
    assert "1 topic with 100% of the load" in found["one_failure_uneven"].text
    assert "one_failure_uneven" not in kinds(ring(6, 4), wanted_after=1.6)
    assert "one_failure_uneven" not in judged(ring(6, 4), A=[1.0] * 24)
    lists = {"A": [[b, b % 6 + 1] for b in range(1, 7) for _ in range(4)]}
    many = {f"t{n}": [[n % 6 + 1, (n + 2) % 6 + 1]] for n in range(240)}
    assert "one_failure_uneven" not in kinds(placement(lists | many))
    assert "one_failure_uneven" not in kinds(placement(EVEN))


def test_racks_are_judged_as_one_failure() -> None:
    # What broker 1 or 2 leads goes to the other one and to 3 in halves; if both die, 3 has all.
    lists = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 4], [3, 4, 2], [4, 3, 1], [4, 1, 3]]
    snapshot = placement({"A": lists * 2}, racks={1: "a", 2: "a", 3: "b", 4: "b"})

    assert "one_failure_peak" not in kinds(snapshot, wanted_after=1.4)
    options = AuditOptions(racks=True, wanted_after=1.4)
    (found,) = [f for f in findings(audit(snapshot, options=options)) if "peak" in f.kind]
    assert found.level is Level.WARNING
    assert "worst: rack a (brokers 1, 2) fail, broker 3 then has 1.50" in found.text


# ---------------------------------------------------------------- brokers that are down


def test_a_broker_that_is_down_is_said_once() -> None:
    found = kinds(placement(EVEN, out_of_sync=[3]), down=frozenset({3}))

    assert found["down"] is Level.WARNING
    assert "silent_brokers" not in found


def test_partitions_still_listed_under_a_broker_that_is_down_have_the_next_leader() -> None:
    found = audit(placement({"A": [[3, 1], [3]]}), options=AuditOptions(down=frozenset({3})))

    assert (found.led_by_down, found.leaders_per_broker) == (2, {1: 1, 3: 0})
    assert [str(name) for name in found.offline_partitions] == ["A-1"]
    said = {f.kind: f.text for f in findings(found)}
    assert "still listed as the leader of 2 partitions" in said["down"]


def test_drift_from_a_broker_that_is_down_is_a_note() -> None:
    lists = {"A": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}
    elsewhere = placement(lists, out_of_sync=[3])

    assert kinds(elsewhere)["drift"] is Level.WARNING
    assert kinds(elsewhere, down=frozenset({3}))["drift"] is Level.NOTE


def test_loads_that_are_mostly_unknown_are_no_warning_but_that_they_are_is() -> None:
    # Every partition has the same load; those of broker 3 were not measured.
    snapshot = placement({"A": [[n % 3 + 1, (n + 1) % 3 + 1] for n in range(12)]})
    rates = [None if n % 3 == 2 else 1.0 for n in range(12)]

    found = {kind: one.level for kind, one in judged(snapshot, A=rates).items()}

    assert found["unmeasured"] is Level.WARNING
    assert found["peak"] is Level.NOTE
    assert Level.WARNING not in [found.get("one_failure_peak"), found.get("leaders")]


def test_no_leader_is_moved_by_rates_that_are_mostly_unknown() -> None:
    snapshot = placement({"A": [[1, 2], [1, 2], [2, 1]], "B": [[1, 2]]})

    found = judged(snapshot, A=[5.0, 5.0, None])

    assert "measure all partitions before moving leaders" in found["peak"].advice


def test_a_hot_partition_whose_rate_has_a_gap_is_no_clean_bill() -> None:
    # 30 partitions, one of which has most of the load; its log was cut, so its rate is not sure.
    snapshot = placement({"A": [[n % 3 + 1, (n + 1) % 3 + 1] for n in range(30)]})
    hot = TopicPartition("A", 0)
    loads = {p.name: 1e6 for p in snapshot.partitions if p.name != hot}

    def level(rate: float) -> Level:
        rates = topic_rates(snapshot, loads, Unit.BYTES_S, left_out={hot: rate})
        found = {one.kind: one for one in findings(audit(snapshot, rates))}
        return found["unmeasured"].level

    assert level(9e7) is Level.WARNING
    assert level(1e6) is Level.NOTE


@pytest.mark.parametrize(("quiet", "level"), [(0.0, Level.WARNING), (10.0, Level.NOTE)])
def test_a_trickle_in_a_quiet_cluster_is_a_note(quiet: float, level: Level) -> None:
    snapshot = placement(EVEN)

    found = judged(snapshot, AuditOptions(quiet=quiet), A=[9.0, 0.0, 0.0])

    assert found["peak"].level is level
    assert ("too little load to act on" in found["peak"].advice) == (quiet > 0)
    loaded = judged(snapshot, AuditOptions(quiet=quiet), A=[9e6, 0.0, 0.0])
    assert loaded["peak"].level is Level.WARNING


def test_no_leader_of_a_quiet_cluster_is_moved() -> None:
    snapshot = placement({"A": [[1, 2]] * 6})
    rates = measured(snapshot, A=[1.0] * 6)

    assert audit(snapshot, rates).leader_moves
    assert not audit(snapshot, rates, AuditOptions(quiet=10.0)).leader_moves


def test_leaders_are_not_moved_by_lists_that_name_a_broker_that_is_down() -> None:
    # kafka-reassign-partitions would refuse the whole file: "Unknown broker id 3".
    one, two, three = map(BrokerId, (1, 2, 3))
    on_three = Replicas(
        topic="A",
        partition=0,
        leader=one,
        replicas=(one, two, three),
        isr=(one, two),
        log_bytes=None,
    )
    snapshot = replace(
        placement({"A": [[1, 2]] * 6}, brokers=[1, 2, 3]),
        partitions=tuple(replace(on_three, partition=n) for n in range(6)),
    )
    how = AuditOptions(down=frozenset({3}))

    found = audit(snapshot, measured(snapshot, A=[1.0] * 6), how)

    assert found.leader_moves == ()
    (peak,) = (finding for finding in findings(found) if finding.kind == "peak")
    assert "leaders cannot be moved while broker 3 is down" in peak.advice
    elsewhere = replace(
        snapshot,
        partitions=(
            *snapshot.partitions[:3],
            *(replace(p, replicas=(one, two)) for p in snapshot.partitions[3:]),
        ),
    )
    moves = audit(elsewhere, measured(snapshot, A=[1.0] * 6), how).leader_moves
    assert [move.name.partition for move in moves] == [3, 4, 5]


def test_an_audit_of_no_partition_is_no_clean_cluster() -> None:
    assert kinds(placement({}, brokers=[1, 2, 3])) == {"no_partitions": Level.WARNING}


def test_the_worst_stand_first_and_levels_include_the_worse_ones() -> None:
    found = findings(audit(placement({"A": [[], [1], [1]], "B": [[2]]})))

    ranks = [one.level.rank for one in found]
    assert ranks == sorted(ranks, reverse=True)
    assert len(at_least(found, Level.NOTE)) == len(found)
    assert {one.level for one in at_least(found, Level.WARNING)} == {Level.WARNING, Level.ERROR}
    assert [one.kind for one in at_least(found, Level.ERROR)] == ["offline"]
