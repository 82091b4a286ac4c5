"""Simulates policies over utilisations and numbers of dispatchers, and compares closed forms.

Why      To show how much of the wait is due to missing knowledge of a dispatcher.
Promise  Equal arguments give equal cells. All policies get the same records for each seed. The mean
         over the seeds has a 95 % confidence interval (Student); a single seed has none. The first
         fifth of each run is warm-up. If a broker is overloaded, no mean is given; overload is
         judged by the expected load if known, else by the measured one beyond random error.
Cost     Records × seeds × policies, see `dispatchers`; closed forms are computed once per cell.
Paper    Burato, chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

from trimtab.simulate import closed_forms
from trimtab.simulate.brokers import (
    QueueOutcome,
    QueueWorld,
    Service,
    arrivals,
    outcome,
    sending_rates,
    served,
)
from trimtab.simulate.closed_forms import ClosedForm, FormKind
from trimtab.simulate.dispatchers import policy_of
from trimtab.simulate.policy import DispatchPolicy, DispatchSettings

TOPOLOGIES: Mapping[str, Mapping[str, Mapping[int, int]]] = MappingProxyType(
    {
        "B2": {"B2": {0: 1, 1: 2}},
        "U2": {"U2": {0: 1, 1: 2, 2: 2}},
        "6.4": {"A": {0: 1, 1: 2, 2: 2}, "B": {0: 2, 1: 3}},
    }
)
"""Leaders of Burato's worked examples: topic, partition, broker."""

_IN_TURN = frozenset({"round-robin", "default", "improved", "node", "sqf", "weighted-node"})
_BY_PARTITION = frozenset({"default", "improved"})
_BY_LEADER = frozenset({"random", "round-robin", "node"})
_CHANCE = 4.0
"""Number of standard errors that count as random error."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonCell:
    """One policy at one utilisation and number of dispatchers (None if it makes no difference)."""

    policy: str
    dispatchers: int | None
    utilisation: float
    runs: tuple[QueueOutcome, ...]
    closed_form: ClosedForm | None
    expected: Mapping[int, float] | None = None
    """The expected load of each broker over its capacity; None if unknown."""

    @property
    def offered(self) -> Mapping[int, float]:
        """The work that each broker received over its capacity."""
        return self._mean_by_broker([run.offered for run in self.runs])

    @property
    def shares(self) -> Mapping[int, float]:
        """Each broker's share of the dispatchers' records."""
        return self._mean_by_broker([run.shares for run in self.runs])

    @staticmethod
    def _mean_by_broker(of_runs: Sequence[Mapping[int, float]]) -> dict[int, float]:
        return {broker: fmean(run[broker] for run in of_runs) for broker in of_runs[0]}

    @property
    def overloaded(self) -> tuple[int, ...]:
        """Brokers that receive more than they can serve: waits grow with the length of the run."""
        if self.expected is not None:
            return tuple(b for b, part in self.expected.items() if part >= 1 - _ROUNDING)
        return tuple(b for b, part in self.offered.items() if part >= 1 + self._margin(b))

    def _margin(self, broker: int) -> float:
        errors = [run.offered_error.get(broker, 0.0) for run in self.runs]
        return _CHANCE * math.hypot(*errors) / len(errors)

    def mean(self, figure: Callable[[QueueOutcome], float]) -> float | None:
        """The mean of a figure over the seeds; None if a broker is overloaded."""
        return None if self.overloaded else fmean(map(figure, self.runs))

    @property
    def mean_wait(self) -> float | None:
        """The mean of the mean waits."""
        return self.mean(lambda run: run.mean_wait)

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % confidence interval of the mean wait."""
        if self.overloaded or len(self.runs) < 2:
            return None
        from scipy.stats import t

        spread = stdev(run.mean_wait for run in self.runs) / math.sqrt(len(self.runs))
        return float(t.ppf(0.975, len(self.runs) - 1)) * spread

    @property
    def difference(self) -> float | None:
        """The relative difference of the simulated mean from the closed form."""
        form, mean = self.closed_form, self.mean_wait
        if form is None or mean is None or not 0 < form.mean_wait < math.inf:
            return None
        return mean / form.mean_wait - 1

    def to_json(self) -> dict[str, Any]:
        """The cell as JSON; unknown or infinite values are None."""
        form = self.closed_form
        return {
            "policy": self.policy,
            "dispatchers": self.dispatchers,
            "utilisation": self.utilisation,
            "mean_wait": self.mean_wait,
            "half_width": self.half_width,
            "p50": self.mean(lambda run: run.p50),
            "p95": self.mean(lambda run: run.p95),
            "p99": self.mean(lambda run: run.p99),
            "mean_stay": self.mean(lambda run: run.mean_stay),
            "closed_form": None
            if form is None
            else {
                "name": form.name,
                "kind": str(form.kind),
                "mean_wait": form.mean_wait if math.isfinite(form.mean_wait) else None,
                "p95": form.quantile(0.95),
                "p99": form.quantile(0.99),
            },
            "difference": self.difference,
            "offered": {str(broker): part for broker, part in self.offered.items()},
            "shares": {str(broker): part for broker, part in self.shares.items()},
            "overloaded": list(self.overloaded),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The size of the simulation: records per run, and runs with seeds from `seed` on."""

    count: int = 100_000
    seeds: int = 5
    seed: int = 0


def sweep(
    world: Callable[[float], QueueWorld],
    policies: Sequence[DispatchPolicy],
    *,
    utilisations: Sequence[float],
    dispatchers: Sequence[int] = (1,),
    settings: DispatchSettings,
    effort: Effort,
    on_run: Callable[[str], None] | None = None,
) -> Iterator[ComparisonCell]:
    """Runs each utilisation, policy and number of dispatchers; calls `on_run` after each run.

    The world may depend on the utilisation, so that changes happen at a given part of each run.
    """
    for utilisation in utilisations:
        here = world(utilisation)
        for policy, many in cells(policies, dispatchers, settings):
            runs = []
            for seed in range(effort.seed, effort.seed + effort.seeds):
                by_seed = replace(effort, seed=seed)
                runs.append(run(here, policy, utilisation, many or 1, settings, by_seed))
                if on_run is not None:
                    on_run(policy.name)
            yield ComparisonCell(
                policy=policy.name,
                dispatchers=many,
                utilisation=utilisation,
                runs=tuple(runs),
                closed_form=known(here, policy, utilisation, many or 1, settings),
                expected=expected(here, policy, utilisation),
            )


def cells(
    policies: Sequence[DispatchPolicy], dispatchers: Sequence[int], settings: DispatchSettings
) -> list[tuple[DispatchPolicy, int | None]]:
    """The pairs of policy and dispatchers for each utilisation."""
    return [
        (policy, many)
        for policy in policies
        for many in ((None,) if policy.alike(settings) else dispatchers)
    ]


def run(
    world: QueueWorld,
    policy: DispatchPolicy,
    utilisation: float,
    dispatchers: int,
    settings: DispatchSettings,
    effort: Effort,
) -> QueueOutcome:
    """One run with the seed of `effort`."""
    records = arrivals(
        world,
        utilisation=utilisation,
        count=effort.count,
        dispatchers=dispatchers,
        seed=effort.seed,
    )
    told = replace(settings, seed=effort.seed)
    return outcome(world, records, served(world, records, policy.choose(world, records, told)))


def expected(
    world: QueueWorld, policy: DispatchPolicy, utilisation: float
) -> dict[int, float] | None:
    """The expected utilisation of each broker; None if it depends on the simulation."""
    if world.changes or len(world.leaders) > 1:
        return None
    if policy.name not in _BY_LEADER | _BY_PARTITION:
        return None
    loads = _dealt(world, utilisation, by_partition=policy.name in _BY_PARTITION)
    foreign = world.foreign_rates
    return {b: (load + foreign.get(b, 0.0)) / world.speeds[b] for b, load in loads.items()}


def _dealt(world: QueueWorld, utilisation: float, *, by_partition: bool) -> dict[int, float]:
    """The rate of each broker if the records of a topic are spread evenly."""
    own = world.own_rate(utilisation)
    total = sum(world.rate_of(topic) for topic in world.topics)
    loads = dict.fromkeys(world.brokers, 0.0)
    for topic in world.topics:
        table = world.leaders[0][1].topic(topic)
        to = [table.leader[p] for p in table.available] if by_partition else table.brokers
        for broker in to:
            loads[broker] += own * world.rate_of(topic) / total / len(to)
    return loads


# ---------------------------------------------------------------- closed forms


def curves(
    world: QueueWorld,
    shown: Sequence[ComparisonCell],
    settings: DispatchSettings,
    *,
    points: int = 15,
) -> dict[tuple[str, int | None], list[tuple[float, ClosedForm]]]:
    """Closed forms between the lowest and highest utilisation, by policy and dispatchers."""
    low, high = min(c.utilisation for c in shown), max(c.utilisation for c in shown)
    steps = sorted({low + (high - low) * i / (points - 1) for i in range(points)})
    found = {}
    for name, many in dict.fromkeys((c.policy, c.dispatchers) for c in shown):
        forms = [(u, known(world, policy_of(name), u, many or 1, settings)) for u in steps]
        found[name, many] = [(u, form) for u, form in forms if form is not None]
    return found


def known(
    world: QueueWorld,
    policy: DispatchPolicy,
    utilisation: float,
    dispatchers: int,
    settings: DispatchSettings,
) -> ClosedForm | None:
    """The closed form of a policy in this world; None if there is none."""
    if world.changes or len(world.leaders) > 1:
        return None
    if policy.name == "random":
        return _by_chance(world, utilisation)
    speeds = {world.speeds[world.brokers[place]] for places in world.led for place in places}
    if world.foreign_rates or len(set(world.led)) > 1 or len(speeds) > 1:
        return None
    (speed,), brokers = speeds, len(world.led[0])
    busy = world.own_rate(utilisation) / (brokers * speed)
    if busy >= 1:
        return None
    alone = _alone(world, policy, dispatchers, settings)
    constant = world.service is Service.CONSTANT
    one_queue = (closed_forms.m_d_n if constant else closed_forms.m_m_n)(brokers, busy)
    found: ClosedForm | None = None
    if policy.name == "least-work":
        found = one_queue
    elif policy.name in _IN_TURN and alone:
        found = one_queue if constant else closed_forms.round_robin(brokers, busy)
    elif policy.name == "jiq" and not constant and brokers > 1:
        found = _idle_queue(world, brokers, busy, dispatchers)
    elif not constant:
        found = _by_length(policy.name, brokers, busy, settings, alone=alone)
    if found is None and one_queue is not None:
        found = replace(one_queue, kind=FormKind.BOUND)
    return None if found is None else _at_speed(found, speed)


def _alone(
    world: QueueWorld, policy: DispatchPolicy, dispatchers: int, settings: DispatchSettings
) -> bool:
    """Whether a single view decides: all see the same, or there is one dispatcher."""
    if policy.looks:
        return settings.refresh is None
    if policy.name in _IN_TURN:
        in_turn = policy.name not in _BY_PARTITION or _partitions_take_turns(world)
        return dispatchers == 1 and len(world.topics) == 1 and in_turn
    return dispatchers == 1


def _partitions_take_turns(world: QueueWorld) -> bool:
    """Whether the leaders of the topic's partitions, in order, rotate over all leaders."""
    table = world.leaders[0][1].topic(world.topics[0])
    leaders, n = [table.leader[p] for p in table.available], len(table.brokers)
    rounds = [tuple(leaders[i : i + n]) for i in range(0, len(leaders), n)]
    return len(set(rounds)) == 1 and len(set(rounds[0])) == n


def _idle_queue(
    world: QueueWorld, brokers: int, busy: float, dispatchers: int
) -> ClosedForm | None:
    """The limit applies to dispatchers with equal rates and equal numbers of tokens."""
    rates = sending_rates(world, dispatchers)
    if dispatchers == 1:  # one dispatcher has all tokens, which is another system
        return None
    if max(rates) - min(rates) > _ROUNDING * max(rates):
        return None
    return closed_forms.idle_queue_many(brokers / dispatchers, busy)


def _by_length(
    name: str, brokers: int, busy: float, settings: DispatchSettings, *, alone: bool
) -> ClosedForm | None:
    if brokers == 1:
        return closed_forms.m_m_1(busy)
    if not alone:
        return None
    d = min(settings.d, brokers) if name == "jsq-d" else brokers
    few = closed_forms.shortest_of_few(d, brokers, busy)
    return few or (closed_forms.shortest_of_many(d, busy) if d < brokers else None)


def _by_chance(world: QueueWorld, utilisation: float) -> ClosedForm:
    """A random split makes each broker a separate queue."""
    loads = _dealt(world, utilisation, by_partition=False)
    constant = world.service is Service.CONSTANT
    busy = {(load / world.speeds[broker], world.speeds[broker]) for broker, load in loads.items()}
    if len(busy) == 1 and not world.foreign_rates:
        ((part, speed),) = busy
        queue = closed_forms.m_d_1 if constant else closed_forms.m_m_1
        return _at_speed(queue(part), speed)
    return closed_forms.split(loads, world.speeds, constant=constant, foreign=world.foreign_rates)


def _at_speed(form: ClosedForm, speed: float) -> ClosedForm:
    """A form for brokers of another speed than 1."""
    decay = None if form.decay is None else form.decay * speed
    return replace(form, mean_wait=form.mean_wait / speed, decay=decay)
