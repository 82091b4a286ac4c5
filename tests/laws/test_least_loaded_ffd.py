"""Laws of least-loaded first fit decreasing, and its distance from the fewest consumers."""

import random

import pytest
from hypothesis import given, note, settings, target
from hypothesis import strategies as st

from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.ilp import exact
from trimtab.plan.consumers.latency_autoscaler import decide
from trimtab.plan.consumers.latency_demand import Demand, lower_bound
from trimtab.plan.consumers.least_loaded_ffd import fewest, ll_ffd, packed, spread
from trimtab.plan.consumers.planner import PackingContext

MU, SLA_S = 100, 5
unhurried = settings(max_examples=150, deadline=None)


def demands(most=40):
    rate = st.one_of(st.integers(0, 130), st.integers(0, 20), st.sampled_from([0, 50, 100, 101]))
    lag = st.one_of(st.just(0), st.integers(0, 700), st.sampled_from([250, 500, 501]))
    pairs = st.integers(0, most).flatmap(
        lambda n: st.lists(st.tuples(rate, lag), min_size=n, max_size=n)
    )
    return pairs.map(demand_of_pairs)


def demand_of_pairs(pairs):
    names = [TopicPartition("tu"[n % 2], n) for n in range(len(pairs))]
    return Demand(
        arrivals={p: rate for p, (rate, _) in zip(names, pairs, strict=True)},
        lags={p: lag for p, (_, lag) in zip(names, pairs, strict=True) if lag},
        mu=MU,
        sla_s=SLA_S,
    )


def scan(demand, start=1):
    """The paper's listing, word for word: from one bin up, all bins sorted for every partition."""
    rate = {p: min(x, demand.mu) for p, x in demand.arrivals.items()}
    lag = {p: min(demand.lags.get(p, 0), demand.mu * demand.sla_s) for p in rate}
    items = sorted(rate, key=lambda p: (-rate[p], -lag[p], p))
    n = start
    while (bins := scan_over(n, items, rate, lag, demand)) is None:
        n += 1
    return bins


def scan_over(n, items, rate, lag, demand):
    sums = [(0, 0, number) for number in range(n)]
    bins: list[list[TopicPartition]] = [[] for _ in range(n)]
    for p in items:
        for rates, lags, number in sorted(sums):
            if rates + rate[p] <= demand.mu and lags + lag[p] <= demand.mu * demand.sla_s:
                sums[number] = (rates + rate[p], lags + lag[p], number)
                bins[number].append(p)
                break
        else:
            return None
    return bins


@unhurried
@given(demand=demands())
def test_the_fast_packing_is_that_of_the_listing(demand):
    assert packed(demand) == scan(demand)


@unhurried
@given(demand=demands())
def test_starting_at_the_lower_bound_finds_what_starting_at_one_finds(demand):
    found = packed(demand, start=1)
    assert packed(demand) == found
    assert packed(demand, start=max(1, lower_bound(demand))) == found


@pytest.mark.parametrize(
    ("rates", "lags"),
    [
        pytest.param((0, 100), (0, 0), id="rates alone"),
        pytest.param((20, 50), (0, 0), id="three to a bin at most"),
        pytest.param((0, 10), (0, 50), id="both bind, many to a bin"),
        pytest.param((0, 100), (0, 500), id="both bind, few to a bin"),
        pytest.param((1, 2), (0, 500), id="lag binds"),
        pytest.param((50, 50), (0, 3), id="equal rates"),
    ],
)
def test_the_fast_packing_is_that_of_the_listing_for_larger_groups(rates, lags):
    rng = random.Random(6)
    demand = demand_of_pairs([(rng.randint(*rates), rng.randint(*lags)) for _ in range(250)])
    found = packed(demand)
    assert found == scan(demand, start=lower_bound(demand))


LAGS = {
    "two or more to a bin": lambda rng: rng.randint(100, 250),
    "a few are huge": lambda rng: min(500, int(10 * rng.paretovariate(1.2))),
    "some fill most of a bin": lambda rng: rng.choice([400, *[rng.randint(0, 20)] * 9]),
    "fractions": lambda rng: rng.random() * 200,
    "as good as none, or a third": lambda rng: rng.choice([5e-324, 500 / 3]),
}


@pytest.mark.parametrize("lag", LAGS.values(), ids=LAGS)
@pytest.mark.parametrize("most", [3, 10, 30])
def test_where_lag_binds_no_number_of_bins_is_passed_over_that_would_do(lag, most):
    rng = random.Random(7)
    demand = demand_of_pairs([(most * rng.random(), lag(rng)) for _ in range(150)])
    assert packed(demand) == scan(demand, start=lower_bound(demand))


@unhurried
@given(
    pairs=st.lists(
        st.tuples(st.floats(0, MU), st.one_of(st.floats(0, 600), st.sampled_from([0, 500 / 3]))),
        max_size=40,
    )
)
def test_fractions_are_packed_as_the_listing_does(pairs):
    demand = demand_of_pairs(pairs)
    assert packed(demand) == scan(demand)


@unhurried
@given(demand=demands())
def test_no_bin_is_above_its_room_and_each_partition_is_in_one(demand):
    bins = packed(demand)
    assert sorted(p for b in bins for p in b) == sorted(demand.arrivals)
    for b in bins:
        assert sum(min(demand.arrivals[p], MU) for p in b) <= MU
        assert sum(min(demand.lags.get(p, 0), MU * SLA_S) for p in b) <= MU * SLA_S


@unhurried
@given(demand=demands())
def test_the_number_of_bins_is_between_the_bounds_and_the_partitions(demand):
    n = len(packed(demand))
    assert lower_bound(demand) <= max(1, fewest(demand))
    assert fewest(demand) <= n <= max(1, len(demand.arrivals))


@unhurried
@given(demand=demands())
def test_every_bin_is_used_when_there_are_several(demand):
    bins = packed(demand)
    assert len(bins) == 1 or all(bins)


@unhurried
@given(demand=demands(), seed=st.integers(0, 9))
def test_a_plan_does_not_depend_on_the_order_of_its_input(demand, seed):
    rng = random.Random(seed)
    owners = {p: rng.randrange(9) for p in demand.arrivals}

    def planned(partitions):
        return ll_ffd(
            {p: demand.arrivals[p] for p in partitions},
            Assignment({p: owners[p] for p in partitions}),
            GroupLimits(capacity=MU),
            PackingContext(lags={p: demand.lags.get(p, 0) for p in partitions}, sla_s=SLA_S),
        )

    plan = planned(sorted(demand.arrivals))
    mixed = planned(rng.sample(sorted(demand.arrivals), len(demand.arrivals)))
    assert (mixed, mixed.notes) == (plan, plan.notes)


@unhurried
@given(demand=demands())
def test_a_plan_made_again_moves_nothing(demand):
    context = PackingContext(lags=demand.lags, sla_s=SLA_S)
    limits = GroupLimits(capacity=MU)
    first = ll_ffd(demand.arrivals, Assignment(), limits, context)
    again = ll_ffd(demand.arrivals, first, limits, context)
    assert moved(first, again) == ()


@settings(max_examples=60, deadline=None)
@given(demand=demands(most=9))
def test_it_never_needs_fewer_consumers_than_the_exact_model(demand):
    context = PackingContext(lags=demand.lags, sla_s=SLA_S)
    best = exact(demand.arrivals, Assignment(), GroupLimits(capacity=MU), context)
    n = len(packed(demand)) if demand.arrivals else 0
    ratio = n / max(1, len(best.consumers))
    note(f"{n} consumers, {len(best.consumers)} at best: ratio {ratio:.2f}")
    target(ratio)
    assert best.notes["status"] == "optimal"
    assert len(best.consumers) <= n


@unhurried
@given(demand=demands(most=20), seed=st.integers(0, 99), cooldown_s=st.sampled_from([0, 30]))
def test_a_decision_keeps_its_word(demand, seed, cooldown_s):
    rng = random.Random(seed)
    alive = frozenset(rng.sample(range(12), rng.randint(0, 8)))
    now = Assignment({p: rng.randrange(12) for p in demand.arrivals if rng.random() < 0.9})
    decision = decide(demand, now, alive, since_scaling_s=10, cooldown_s=cooldown_s)
    group = (alive | set(decision.start)) - set(decision.stop)

    assert (decision.before, decision.after) == (len(alive), len(group))
    assert set(decision.assignment.consumers) <= group
    scaled = decision.action in (Action.SCALE_UP, Action.SCALE_DOWN)
    assert scaled == (decision.before != decision.after)
    assert not (scaled and cooldown_s)
    if decision.action is Action.NONE:
        assert dict(decision.assignment) == {p: c for p, c in now.items() if c in alive}
    else:
        assert set(decision.assignment) == set(demand.arrivals)
        for c in decision.assignment.consumers:
            held = [p for p, owner in decision.assignment.items() if owner == c]
            assert sum(min(demand.arrivals[p], MU) for p in held) <= MU
            assert sum(min(demand.lags.get(p, 0), MU * SLA_S) for p in held) <= MU * SLA_S


@settings(max_examples=100, deadline=None)
@given(
    rates=st.lists(st.floats(0, 3), max_size=30),
    lags=st.lists(st.floats(0, 3), max_size=30),
    mu=st.floats(0.1, 2),
    sla_s=st.floats(0.1, 2),
)
def test_rounding_never_lifts_a_bound_above_the_packing(rates, lags, mu, sla_s):
    demand = Demand(
        arrivals={TopicPartition("t", n): rate for n, rate in enumerate(rates)},
        lags={TopicPartition("t", n): lag for n, lag in enumerate(lags)},
        mu=mu,
        sla_s=sla_s,
    )
    assert max(lower_bound(demand), fewest(demand)) <= len(packed(demand, start=1))


@unhurried
@given(demand=demands(most=15))
def test_numbers_below_the_one_found_leave_a_partition_over(demand):
    n = len(packed(demand))
    assert [spread(demand, fewer) for fewer in range(1, n)] == [None] * (n - 1)


def test_over_many_small_groups_the_ratio_to_the_fewest_is_modest(record_property):
    rng = random.Random(11)
    ratios = []
    for _ in range(40):
        demand = demand_of_pairs(
            [(rng.randint(1, 100), rng.randint(0, 500)) for _ in range(rng.randint(2, 9))]
        )
        context = PackingContext(lags=demand.lags, sla_s=SLA_S)
        best = exact(demand.arrivals, Assignment(), GroupLimits(capacity=MU), context)
        ratios.append(len(packed(demand)) / len(best.consumers))
    record_property("ll_ffd_to_fewest_mean", sum(ratios) / len(ratios))
    record_property("ll_ffd_to_fewest_worst", max(ratios))
    assert min(ratios) >= 1
    assert sum(ratios) / len(ratios) < 1.2
