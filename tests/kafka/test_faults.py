"""Faults on real processes: each ends with heal, drain and the order audit."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.kafka.judges import Interval, Said, falls, intervals, overlaps
from tests.kafka.live_group import HIGH, LOW, WITHIN_S, LiveGroup, Run, live_group
from tests.kafka.streams import wait_until
from trimtab.apply.consumers.backends.measure_process import measuring
from trimtab.apply.consumers.backends.processes import ProcessBackend
from trimtab.evaluate.order import Commit, RecordPosition, ViolationKind, audit, findings
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import (
    Action,
    ControlMessage,
    GroupState,
    ReadingStarted,
    ReadingStopped,
    Receipt,
    Start,
    Stop,
)

SPREAD = HIGH, LOW, HIGH, LOW
"""Two partitions that no consumer can carry together."""


# ---------------------------------------------------------------- the judges themselves

P0 = TopicPartition("orders", 0)


def started(name: str, ts: int) -> Said:
    what = ReadingStarted(consumer=0, incarnation=name, epoch=1, seq=1, partitions=(P0,))
    return Said(0, ts, ts, what)


def stopped(name: str, ts: int) -> Said:
    what = ReadingStopped(consumer=0, incarnation=name, epoch=1, seq=1, partitions=(P0,))
    return Said(0, ts, ts, what)


def receipt(name: str, offset: int, ts: int) -> Receipt:
    return Receipt(
        run="r",
        group="g",
        topic="orders",
        partition=0,
        offset=offset,
        key=b"k",
        seq=offset + 1,
        consumer=0,
        incarnation=name,
        event_ts=0,
        started_ts=ts,
        finished_ts=ts + 1,
    )


def test_two_readers_at_once_are_found_by_their_own_words() -> None:
    in_turn = [started("a", 1), stopped("a", 4), started("b", 5)]
    too_early = [started("a", 1), started("b", 3), stopped("a", 4)]
    never_stopped = [started("a", 1), started("b", 5)]

    def found(reports: list[Said], *living: str, until: int = 1) -> list[str]:
        return overlaps(intervals(reports, [receipt("a", 0, until)], living))

    assert not found(in_turn, "b")
    assert found(too_early, "b")
    assert found(never_stopped, "a", "b")
    assert not found(never_stopped, "b")  # killed, and its last sign is older
    assert found(never_stopped, "b", until=7)


def test_an_overlap_is_found_across_an_interval_that_lies_within_it() -> None:
    long = [Interval("a", 1, 9), Interval("a", 2, 3), Interval("b", 5, 6)]

    assert overlaps({P0: long})


def test_an_epoch_that_falls_is_found() -> None:
    assert falls([1, 1, 2, 1, 3]) == [(2, 1)]
    assert not falls([1, 2, 2])


def test_the_audit_finds_what_a_fault_could_break() -> None:
    whole = [receipt("a", 0, 0), receipt("a", 1, 2), receipt("b", 2, 4)]
    sent = {RecordPosition("orders", 0, offset) for offset in range(3)}

    def kinds(receipts: list[Receipt], *commits: Commit) -> set[ViolationKind]:
        return set(findings(audit(receipts, expected=sent, commits=commits)))

    assert not kinds(whole)
    assert kinds(whole[:2]) == {ViolationKind.LOST}
    assert ViolationKind.INVERSION in kinds([whole[0], receipt("a", 2, 2), receipt("b", 1, 4)])
    assert ViolationKind.TWO_OWNERS in kinds([whole[0], receipt("b", 1, 2), receipt("c", 2, 2)])
    assert kinds(whole, Commit("orders", 0, 3, 3)) == {ViolationKind.REWIND}


# ---------------------------------------------------------------- the group that is hurt


@pytest.fixture(scope="module")
def shared(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGroup]:
    with live_group(cluster, tmp_path_factory.mktemp("live")) as group:
        yield group


@pytest.fixture
def group(shared: LiveGroup) -> LiveGroup:
    """One controller, one consumer that reads everything, nothing left to read."""
    living = [run for run in shared.runs if run.is_alive]
    for run in living[1:]:
        run.end()
    if not living:
        shared.run()
    shared.ask(LOW)
    shared.settle(1)
    shared.drain()
    shared.mark()
    return shared


def leader(group: LiveGroup) -> Run:
    [run] = [run for run in group.runs if run.is_alive]
    return run


def epoch(group: LiveGroup) -> int:
    return group.states()[-1].epoch


# ---------------------------------------------------------------- consumers


def test_a_consumer_killed_mid_batch_is_replaced_and_nothing_is_lost(group: LiveGroup) -> None:
    [(index, pid)] = group.consumers().items()
    before = group.committed()
    group.send(300)
    wait_until(lambda: group.committed() != before, within_s=WITHIN_S, what="a commit")

    group.signal(index, signal.SIGSTOP)  # where it is, so that there is time to look
    assert not group.is_drained(), "it was not in the middle of anything"
    group.signal(index, signal.SIGKILL)

    wait_until(lambda: group.consumers().get(index, pid) != pid, what="another one")
    group.settle(1)
    group.judge()


def test_a_consumer_killed_before_it_can_stop_gives_its_partitions_up(group: LiveGroup) -> None:
    [index] = group.consumers()
    with group.under_load(), group.watch() as watching:
        group.signal(index, signal.SIGSTOP)  # so that the stop stays without an answer
        group.ask(*SPREAD)
        watching.sees_command(Stop)

        group.signal(index, signal.SIGKILL)

        group.settle(2)
    group.judge()


def test_a_consumer_killed_before_it_can_start_leaves_the_partitions_to_others(
    group: LiveGroup,
) -> None:
    group.ask(*SPREAD)
    group.settle(2)
    with group.under_load(), group.watch() as watching:
        group.ask(LOW)
        source = watching.sees_command(Stop)
        [target] = set(group.consumers()) - {source}
        group.signal(target, signal.SIGSTOP)  # so that the start stays without an answer
        watching.sees_command(Start)

        group.signal(target, signal.SIGKILL)

        group.settle(1)
    group.judge()


def test_a_consumer_frozen_for_a_while_is_left_alone_and_goes_on(group: LiveGroup) -> None:
    before = group.consumers()
    [index] = before
    with group.under_load():
        group.signal(index, signal.SIGSTOP)
        decided = len(group.decisions())
        wait_until(lambda: len(group.decisions()) > decided, what="another decision")
        group.signal(index, signal.SIGCONT)

    group.drain()
    assert group.consumers() == before
    group.judge(no_repeats=True)


def test_a_consumer_frozen_for_too_long_is_ended_for_certain_before_others_read(
    group: LiveGroup,
) -> None:
    [(index, pid)] = group.consumers().items()
    with group.under_load():
        group.signal(index, signal.SIGSTOP)

        wait_until(lambda: group.consumers().get(index, pid) != pid, what="another one")

        with pytest.raises(ProcessLookupError):  # its return finds nobody
            os.kill(pid, signal.SIGCONT)
        group.settle(1)
    group.judge()


def test_scaling_down_ends_consumers_between_two_batches(group: LiveGroup) -> None:
    group.ask(*SPREAD)
    group.settle(2)
    logs = {i: group.folder / f"consumer-{i}.log" for i in group.consumers()}
    with group.watch() as watching:
        group.ask(LOW)
        group.send(400)
        watching.sees_command(Stop)
        assert not group.is_drained(), "nobody was busy"

    group.settle(1)
    [stayed] = group.consumers()
    [left] = logs.keys() - {stayed}
    last_words = logs[left].read_text().splitlines()[-1]
    assert "records" in last_words, last_words  # its totals, said only at an orderly end
    assert "dead letters" in last_words
    group.judge(no_repeats=True)


# ---------------------------------------------------------------- the controller


def is_unclean(what: ControlMessage | GroupState) -> bool:
    return isinstance(what, GroupState) and not what.clean


def of_kind(kind: type) -> Callable[[ControlMessage | GroupState], bool]:
    return lambda what: isinstance(what, kind)


def test_a_controller_killed_at_any_step_of_a_hand_over_is_replaced_by_one_that_asks(
    group: LiveGroup,
) -> None:
    wanted = 1
    steps = (
        is_unclean,
        of_kind(Stop),
        of_kind(ReadingStopped),
        of_kind(Start),
        of_kind(ReadingStarted),
    )
    for is_it in steps:
        first, before, wanted = leader(group), epoch(group), 3 - wanted
        with group.under_load(), group.watch() as watching:
            group.run()  # begins meanwhile, and waits
            group.ask(*(SPREAD if wanted == 2 else (LOW,)))
            watching.sees(is_it)

            first.kill()

            group.settle(wanted, above=before)
    group.judge()


def test_a_second_controller_waits_and_takes_over_when_the_first_one_dies(
    group: LiveGroup,
) -> None:
    first, before = leader(group), epoch(group)
    second = group.run()
    second.says("controller_waiting_for_lease")
    assert epoch(group) == before

    first.kill()

    second.says("controller_became_leader")
    with group.under_load():
        group.ask(*SPREAD)
        group.settle(2, above=before)
    group.judge()


def test_a_controller_frozen_beyond_its_lease_wakes_up_without_a_voice(group: LiveGroup) -> None:
    first, before = leader(group), epoch(group)
    second = group.run()
    second.says("controller_waiting_for_lease")

    first.pause()
    second.says("controller_became_leader")
    with group.under_load():
        group.ask(*SPREAD)
        group.settle(2, above=before)
        first.resume()
        wait_until(
            lambda: {"controller_was_fenced", "controller_lost_lease"} & {*first.events()},
            what="its word that it lost",
        )
        first.says("controller_waiting_for_lease")
        group.ask(LOW)
        group.settle(1)

    assert first.events().count("controller_became_leader") == 1
    assert epoch(group) == before + 1
    group.judge()


# ---------------------------------------------------------------- the world around


def test_a_broker_killed_during_a_hand_over_holds_it_up_and_breaks_nothing(
    group: LiveGroup, cluster: LocalCluster
) -> None:
    with group.under_load():
        with group.watch() as watching:
            group.ask(*SPREAD)
            watching.sees_command(Stop)
            cluster.kill(1)
        try:
            group.settle(2)
        finally:
            cluster.start(1)
        group.ask(LOW)
        group.settle(1)
    group.judge()


def test_rates_that_grew_old_are_not_acted_on_and_the_decision_says_so(group: LiveGroup) -> None:
    with group.under_load():
        group.clock_stands_at = group.decisions()[-1].ts
        try:
            refused = refusals(group, at_least=1)
            group.ask(*SPREAD)  # would move something, were it fresh
            commands = commanded(group)
            refusals(group, at_least=len(refused) + 2)
            assert commanded(group) == commands
            assert "s old, the limit is 5" in refused[-1]
        finally:
            group.clock_stands_at = None
        group.settle(2)
    group.judge()


def commanded(group: LiveGroup) -> list[Said]:
    return [said for said in group.said() if said.partition != 0]


def refusals(group: LiveGroup, *, at_least: int) -> list[str]:
    found: list[str] = []

    def are_there() -> bool:
        found[:] = [d.reason for d in group.decisions() if d.action is Action.REFUSE]
        return len([why for why in found if "old" in why]) >= at_least

    wait_until(are_there, within_s=WITHIN_S, what="a refusal")
    return [why for why in found if "old" in why]


def test_a_topic_that_grows_has_all_its_partitions_read(group: LiveGroup) -> None:
    with group.under_load():
        group.grow(2)
        group.ask(LOW)

        state = group.settle(1)

        assert TopicPartition(group.topic, group.partitions - 1) in state.assignment
        group.send(10)
    group.judge()


def test_measuring_that_dies_is_started_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    processes = ProcessBackend(lambda _: command, tmp_path)
    with measuring(processes, lambda: False):
        wait_until(processes.running, what="the first one")
        [first] = processes.running().values()

        processes.kill(0)

        wait_until(lambda: processes.running().get(0, first) != first, what="another one")
    assert not processes.running()


def test_a_spark_driver_that_is_killed_is_started_again_and_rates_come_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with live_group(cluster, tmp_path) as group, group.under_load():
        group.clock_stands_at = 1  # what is published for other tests counts for nothing here
        run = group.watch_only("--measure")
        wait_until(lambda: group.measured_ts() > 1, what=f"rates ({run.log})")
        before = group.measured_ts()
        [first] = group.measuring.running().values()

        os.kill(int(first.split()[0]), signal.SIGKILL)

        wait_until(lambda: group.measuring.running().get(0, first) != first, what="another one")
        wait_until(lambda: group.measured_ts() > before + 5_000_000, what=f"rates ({run.log})")
        assert run.end() == 0
        assert not group.measuring.running()


# ---------------------------------------------------------------- subscribed groups


def test_a_subscribed_group_goes_on_without_its_controller_and_follows_it_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        listen = "127.0.0.1:%d" % free.getsockname()[1]  # noqa: UP031 - a port
    with live_group(cluster, tmp_path) as group:
        group.ask(*SPREAD)
        first = group.run("--mode", "group", "--listen", listen)
        with group.under_load():
            group.settle(2)
            wait_until(lambda: follows(group), within_s=WITHIN_S, what="the plan")

            second = group.run("--mode", "group", "--listen", listen)
            second.says("controller_waiting_for_lease")
            first.pause()
            second.says("port_is_taken")  # the frozen one has the port, and does not answer
            group.signal(1, signal.SIGTERM)  # a rebalance that nobody can be asked about
            wait_until(lambda: shares(group) == [group.partitions], what="the one that is left")
            before = group.committed()
            wait_until(lambda: group.committed() != before, what="its work")

            first.kill()
            second.says("controller_became_leader")
            group.settle(2)
            wait_until(lambda: follows(group), within_s=WITHIN_S, what="the plan once more")
        group.judge(directed=False)


def test_a_subscribed_group_is_scaled_by_what_its_members_report(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    with live_group(cluster, tmp_path, capacity=None) as group:
        group.ask(200.0, 90.0, 90.0, 90.0)  # a member takes 4 ms and more per record
        group.send(1500)
        run = group.run("--mode", "group", "--listen", listen, "--cooldown", "0s")
        wait_until(
            lambda: (
                len(group.states()[-1:]) == 1
                and len(group.states()[-1].assignment.consumers) > 1
                and follows(group)
            ),
            within_s=WITHIN_S,
            what=f"more members ({run})",
        )
        [up] = [d for d in group.decisions() if d.action is Action.SCALE_UP and d.before == 1]
        assert "carries" in up.reason
        assert run.events().count("group_was_not_scaled") == 0
        group.judge(directed=False)


def shares(group: LiveGroup) -> list[int]:
    return [len(partitions) for partitions in owned(group).values()]


def owned(group: LiveGroup) -> dict[int, set[TopicPartition]]:
    """What members own, as the brokers see it, by the index in their names."""
    members = [m for g in group.admin.groups([group.group]) for m in g.members]
    return {int(m.client_id.rpartition("-")[2]): set(m.partitions) for m in members}


def follows(group: LiveGroup) -> bool:
    """Whether the members' shares are those of the plan, whoever has which."""
    planned: dict[int, set[TopicPartition]] = {}
    for partition, consumer in group.states()[-1].assignment.items():
        planned.setdefault(consumer, set()).add(partition)
    return sorted(map(sorted, owned(group).values())) == sorted(map(sorted, planned.values()))
