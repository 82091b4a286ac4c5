"""Weights per broker from what was seen of it: evidence, how slow, silence, recovery, memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from trimtab.apply.records.probe_log import ProbeLog, Probes
from trimtab.apply.records.steering import (
    BrokerVerdict,
    Observation,
    SteeringState,
    WeightReason,
    step,
)

PACE_S = 0.1


def steady(
    latency_s: float,
    *,
    seconds: float = 10.0,
    bytes_s: float | None = None,
    records_s: float | None = None,
) -> Observation:
    """A broker whose probes all took the same."""
    answers = tuple((PACE_S * n, latency_s) for n in range(round(seconds / PACE_S)))
    return Observation(
        probes=Probes(answers=answers[::-1], pace_s=PACE_S), bytes_s=bytes_s, records_s=records_s
    )


def silent(for_s: float) -> Observation:
    """A broker that was good, and then said nothing."""
    answers = tuple((for_s + PACE_S * n, 0.002) for n in range(80))
    return Observation(probes=Probes(answers=answers[::-1], silent_s=for_s, pace_s=PACE_S))


def judged(**brokers: Observation) -> dict[int, BrokerVerdict]:
    """The first verdict on brokers b1, b2, …"""
    _, verdicts = step(
        SteeringState(), {int(name[1:]): seen for name, seen in brokers.items()}, 0.0
    )
    return verdicts


@pytest.mark.parametrize(
    ("latencies_ms", "weights"),
    [
        ((2, 2, 2), (1, 1, 1)),
        ((2, 3, 4), (1, 1, 1)),  # a broker that is a little farther away
        ((50, 60, 55), (1, 1, 1)),  # all are slow: nobody is better
        ((2, 6, 2), (1, 0.56, 1)),  # (6 + 3) / (2 + 3) = 1.8 × as slow
        ((2, 12, 2), (1, 0.1, 1)),  # 3 ×
        ((2, 17, 2), (1, 0.03, 1)),  # 4 ×
        ((2, 300, 2), (1, 0, 1)),
        ((2, 300, 400), (1, 0, 0)),
    ],
)
def test_the_weight_falls_with_how_many_times_slower_a_broker_is(latencies_ms, weights):
    verdicts = judged(**{f"b{n + 1}": steady(ms / 1000) for n, ms in enumerate(latencies_ms)})

    assert tuple(v.weight for v in verdicts.values()) == weights


def test_a_silent_broker_weighs_nothing():
    verdicts = judged(b1=steady(0.002), b2=silent(1.2))

    assert [v.weight for v in verdicts.values()] == [1, 0]
    assert verdicts[2].why is WeightReason.SILENT
    assert verdicts[2].reason == "silent for 1.2 s"


def test_a_second_is_no_silence_where_all_are_slow():
    slow = [(1.2 + 0.4 * n, 0.4) for n in range(25)]
    waiting = Observation(probes=Probes(answers=tuple(slow[::-1]), silent_s=1.2, pace_s=PACE_S))

    assert judged(b1=steady(0.4), b2=waiting)[2].weight == 1


def test_when_nobody_answers_it_is_we_who_are_deaf():
    verdicts = judged(b1=silent(3), b2=silent(3))

    assert [v.weight for v in verdicts.values()] == [1, 1]
    assert verdicts[1].why is WeightReason.UNKNOWN


def test_a_broker_that_was_hardly_looked_at_counts_like_others():
    verdicts = judged(b1=steady(0.002), b2=steady(0.3, seconds=0.5))

    assert verdicts[2].weight == 1
    assert verdicts[2].why is WeightReason.UNKNOWN


def test_nothing_is_decided_about_nobody():
    assert step(SteeringState(), {}, 0.0)[1] == {}


def test_a_broker_that_is_slow_to_answer_light_requests_is_slow():
    def asked(took_s: float, times: int = 6) -> Observation:
        return Observation(probes=steady(0.002).probes, requests_s=(took_s,) * times)

    verdicts = judged(b1=asked(0.002), b2=asked(0.03), b3=asked(0.03, times=2), b4=asked(0.008))

    assert [v.weight for v in verdicts.values()] == [1, 0.004, 1, 1]


def test_a_broker_without_load_is_quick_for_that_alone_and_blames_nobody():
    busy = steady(0.030, records_s=5000.0)
    idle = steady(0.002, records_s=10.0)

    assert {v.weight for v in judged(b1=busy, b2=busy, b3=idle).values()} == {1.0}
    assert judged(b1=busy, b2=busy, b3=steady(0.002, records_s=4000.0))[1].weight < 0.1
    assert {v.weight for v in judged(b1=busy, b2=busy, b3=steady(0.002)).values()} == {1.0}


def test_a_hot_broker_does_not_make_all_others_idle():
    others = {f"b{n}": steady(0.002, records_s=500.0) for n in range(2, 20)}
    hot = steady(0.004, records_s=100_000.0)

    verdicts = judged(b1=hot, b20=steady(0.020, records_s=500.0), **others)

    assert verdicts[20].weight < 0.1


def test_where_next_to_nothing_is_written_a_broker_is_slow_by_itself():
    verdicts = judged(b1=steady(0.030, records_s=3.0), b2=steady(0.002, records_s=0.0))

    assert verdicts[1].weight < 0.1


def test_two_that_are_nearly_as_slow_weigh_nearly_the_same_whatever_the_third_is():
    verdicts = judged(b1=steady(0.0165), b2=steady(0.0175), b3=steady(0.002))

    assert verdicts[2].weight > 0.7 * verdicts[1].weight > 0


def test_the_reason_says_how_slow_and_what_it_leads():
    verdicts = judged(b1=steady(0.002), b2=steady(0.012, bytes_s=2_500_000.0))

    assert verdicts[2].reason == "3.0 × as slow as the best, leads 2.50 MB/s"
    assert verdicts[2].slowness == 3.0
    assert verdicts[1].reason == "as good as the best"


def test_recovery_is_gradual_and_complete():
    good, bad = steady(0.002), steady(0.1)
    state, verdicts = step(SteeringState(), {1: good, 2: bad}, 0.0)
    path = [verdicts[2].weight]
    for n in range(1, 30):
        state, verdicts = step(state, {1: good, 2: good}, 60.0 + n * 0.2)
        path.append(verdicts[2].weight)

    assert path[0] == 0
    assert path == sorted(path)
    assert max(b - a for a, b in pairwise(path[1:])) <= 0.06
    assert path[-1] == 1
    assert verdicts[2].why is WeightReason.WELL


def test_a_broker_that_is_slow_whenever_it_has_load_is_kept_below_where_it_fell():
    good, bad = steady(0.002), steady(0.1)
    some_late = tuple((PACE_S * n, 0.1 if n % 5 < 2 else 0.002) for n in reversed(range(100)))
    pausing = Observation(probes=Probes(answers=some_late, pace_s=PACE_S))

    def after_two_falls(between_s: float, then_s: float, bad: Observation = bad) -> BrokerVerdict:
        state, now, verdicts = SteeringState(), 0.0, dict[int, BrokerVerdict]()
        for lasts_s in (between_s, then_s):
            state, verdicts = step(state, {1: good, 2: bad}, now)
            for _ in range(round(lasts_s / 0.2)):
                now += 0.2
                state, verdicts = step(state, {1: good, 2: good}, now)
        return verdicts[2]

    assert after_two_falls(8, 8).weight == 0.7
    assert after_two_falls(8, 8).why is WeightReason.HELD
    assert after_two_falls(8, 40).weight == 1
    assert after_two_falls(30, 8).weight == 1  # the second time had nothing to do with the first
    assert after_two_falls(8, 8, pausing).weight == 1  # it is no queue that some probes met


def test_a_broker_that_is_gone_is_forgotten():
    good, bad = steady(0.002), steady(0.1)
    state, _ = step(SteeringState(), {1: good, 2: bad}, 0.0)
    state, verdicts = step(state, {1: good}, 1.0)
    assert verdicts.keys() == {1}

    _, verdicts = step(state, {1: good, 2: good}, 2.0)
    assert verdicts[2].weight == 1


def test_the_last_one_left_carries_all_even_while_it_recovers():
    good, bad = steady(0.002), steady(0.1)
    state, _ = step(SteeringState(), {1: good, 2: bad}, 0.0)
    state, _ = step(state, {1: good, 2: good}, 20.0)
    state, _ = step(state, {1: good, 2: good}, 20.4)
    _, verdicts = step(state, {1: silent(2), 2: good}, 20.6)

    assert verdicts[1].weight == 0
    assert verdicts[2].weight == 1


# ---------------------------------------------------------------- closed loop


@dataclass
class World:
    """Brokers as queues: records go where the weights say, probes meet what they left behind.

    `speed` is what each broker can do in a second, `pauses` the share of each 100 ms in which it
    does nothing. A probe waits for the queue before it, takes its own service time, which scatters,
    and waits for the end of a pause.
    """

    speed: dict[int, float]
    load: float
    spread: float = 0.5
    pauses: dict[int, float] = field(default_factory=dict)
    leads: tuple[int, ...] = ()  # who takes records, where not all; then they are counted, too
    delay: float = 0.0  # what a probe waits for beside records, per load

    def __post_init__(self) -> None:
        self.rng = Random(3)
        self.now = 0.0
        self.state = SteeringState()
        self.queue = dict.fromkeys(self.speed, 0.0)
        self.weights = dict.fromkeys(self.speed, 1.0)
        self.logs = {b: ProbeLog(pace_s=PACE_S, kept_s=10.0) for b in self.speed}
        self.due = {b: (self.rng.random() * PACE_S, 0.0) for b in self.speed}
        self.history: list[dict[int, float]] = []
        self.comings: list[dict[int, float]] = []

    def run(self, seconds: float) -> list[dict[int, float]]:
        """Lets time pass; returns the weights of each step of 200 ms."""
        begun = len(self.history)
        for tick in range(1, round(seconds / 0.02) + 1):
            self.now += 0.02
            for broker in self.speed:
                self._serve(broker)
                self._probe(broker)
            if tick % 10 == 0:
                self.comings.append({b: self._comes(b) for b in self.speed})
                seen = {
                    b: Observation(probes=log.seen(self.now), records_s=self._counted(b))
                    for b, log in self.logs.items()
                }
                self.state, verdicts = step(self.state, seen, self.now)
                self.weights = {b: v.weight for b, v in verdicts.items()}
                self.history.append(self.weights)
        return self.history[begun:]

    def _comes(self, broker: int) -> float:
        leads = self.leads or tuple(self.speed)
        if broker not in leads:
            return 0.0
        weights = {b: self.weights[b] for b in leads}
        total = sum(weights.values())
        return self.load * (weights[broker] / total if total else 1 / len(leads))

    def _counted(self, broker: int) -> float | None:
        """As of three seconds ago, when there was a count."""
        if not self.leads or self.now < 3.0:
            return None
        past = self.comings[max(0, len(self.comings) - 15)]
        return 1000 * past[broker]

    def _serve(self, broker: int) -> None:
        comes = self._comes(broker)
        does = self.speed[broker] * (1 - self.pauses.get(broker, 0.0))
        self.queue[broker] = max(0.0, self.queue[broker] + (comes - does) * 0.02)

    def _probe(self, broker: int) -> None:
        at, latency_s = self.due[broker]
        log = self.logs[broker]
        if log.waiting and at + latency_s <= self.now:
            log.answered(at + latency_s, latency_s=latency_s)
            self.due[broker] = (max(self.now, at + PACE_S * self.rng.uniform(0.5, 1.5)), 0.0)
        elif not log.waiting and at <= self.now:
            service = 0.002 / self.speed[broker] * self.rng.lognormvariate(0, self.spread)
            phase = self.rng.random() * 0.1
            pause = max(0.0, self.pauses.get(broker, 0.0) * 0.1 - phase)
            log.sent(self.now)
            self.due[broker] = (
                self.now,
                service
                + self.delay * self._comes(broker) * self.rng.lognormvariate(0, 0.3)
                + self.queue[broker] / self.speed[broker]
                + pause,
            )


def test_equal_brokers_with_noise_stay_exactly_equal():
    world = World({1: 1.0, 2: 1.0, 3: 1.0}, load=2.5, spread=0.7)

    assert {tuple(weights.values()) for weights in world.run(120)} == {(1.0, 1.0, 1.0)}


@pytest.mark.parametrize("quiet_s", [0, 12], ids=["begun under load", "load comes later"])
def test_two_busy_brokers_are_not_judged_by_a_third_that_has_nothing_to_do(quiet_s):
    """Under load a probe takes tens of milliseconds at 1 and 2, and two at 3."""
    world = World({1: 1.0, 2: 1.0, 3: 1.0}, load=0.0, leads=(1, 2), delay=0.05)
    world.run(quiet_s)

    world.load = 1.2
    world.run(15)

    assert {(w[1], w[2]) for w in world.run(40)} == {(1.0, 1.0)}


def test_a_broker_that_pauses_is_left_alone_within_two_seconds_and_taken_back_afterwards():
    world = World({1: 1.0, 2: 1.0, 3: 1.0}, load=1.0)
    world.run(12)

    world.pauses = {2: 0.6}
    slowed = [weights[2] for weights in world.run(20)]
    world.pauses = {}
    after = [weights[2] for weights in world.run(20)]

    assert max(slowed[10:]) < 0.1  # no flapping though its load has left it
    assert after[-1] == 1.0
    assert [round(weight, 2) for weight in after] == sorted(round(weight, 2) for weight in after)


def test_a_broker_of_less_capacity_settles_at_a_share_that_it_can_carry():
    world = World({1: 1.0, 2: 0.4}, load=0.8)
    world.run(20)

    settled = [weights[2] for weights in world.run(60)]

    assert min(settled) > 0.3
    assert max(settled) < 0.8
    assert world.queue == {1: 0.0, 2: 0.0}


def test_shedding_does_not_drown_the_broker_that_is_left():
    """1.2 in, 1.0 and 0.4 out: equal shares drown the slow one, none for it drown the other."""
    world = World({1: 1.0, 2: 0.4}, load=1.2)
    longest = 0.0
    for _ in range(60):
        world.run(2)
        longest = max(longest, *world.queue.values())

    assert longest < 3.0  # with equal shares it is 24 by then, and grows
