"""The protocol of the keyed data path under random schedules: V1 to V6 of the receipts."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.keyed_world import KeyedWorld, link
from trimtab.apply.keys.key_entry import EntryStatus
from trimtab.apply.keys.key_route import GatewayMode, RoutePhase
from trimtab.apply.keys.message_sets import EndMarker, StartMarker

EXACTLY_ONCE, LOW_LATENCY = GatewayMode.EXACTLY_ONCE, GatewayMode.LOW_LATENCY

worlds = st.builds(
    KeyedWorld,
    partitions=st.integers(2, 4),
    shards=st.integers(1, 2),
    keys=st.integers(1, 4),
    modes=st.sampled_from([[EXACTLY_ONCE], [LOW_LATENCY], [LOW_LATENCY, EXACTLY_ONCE]]),
)
schedules = st.builds(lambda seed, steps: (seed, steps), st.integers(0, 2**32), st.integers(0, 300))


def run(world, schedule):
    """Sources write, processes work, and sometimes something happens; then all settles."""
    seed, steps = schedule
    random = Random(seed)
    for _ in range(steps):
        kind = random.random()
        if kind < 0.15:
            world.append(random.choice(world.keys))
            continue
        choices = world.expected()
        if kind < 0.25:
            choices = world.moves()
        elif kind < 0.30:
            choices = world.faults()
        if choices:
            random.choice(choices)()
    world.settle()


def check(world):
    """V1 to V6."""
    for key in world.keys:
        receipts = [line for line in world.receipts if line.key == key]
        total = world.sent_of[key]
        in_order = sorted(receipts, key=lambda line: line.set_id)  # stable: then by offset
        assert [line.number for line in in_order] == list(range(1, total + 1))  # V1
        assert in_order == receipts
        chain = b""
        for line in receipts:
            chain = link(chain, line.number)
            assert line.chain == chain  # V2
        check_rest(world, key, total)
        check_sets(world, key, receipts)


def check_rest(world, key, total):
    """V3."""
    assert len(world.owners(key)) == (1 if total else 0)
    for work in world.committed:
        entry = work.entries.get(key)
        assert entry is None or (entry.status is not EntryStatus.WAIT and not entry.parked)
        assert not work.queues[key]
    assert not world.live
    routes = [route for durable in world.durable for route in durable.routes.values()]
    assert all(route.phase is RoutePhase.DONE for route in routes)


def check_sets(world, key, receipts):
    """V4 to V6."""
    starts = world.markers(key, StartMarker)
    ends = world.markers(key, EndMarker)
    places = {0: world.home[key]} | {start.set_id: p for p, start in starts}
    adopted = [set_id for name, set_id, _ in world.adoptions if name == key]
    assert sorted(adopted) == sorted({start.set_id for _, start in starts})  # V4
    assert {end.next_set for _, end in ends} == set(adopted)
    assert all(p == places[set_id] for name, set_id, p in world.adoptions if name == key)
    assert all(line.partition == places[line.set_id] for line in receipts)  # V5
    assert all(earlier < later for earlier, later in pairwise(adopted))  # V6


@given(worlds, schedules)
@settings(max_examples=150, deadline=None)
def test_order_and_state_survive_any_schedule(world, schedule):
    run(world, schedule)

    check(world)


@given(st.integers(1, 8), st.integers(0, 2**16), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_chain_of_moves_there_and_back_keeps_the_order(moves, seed, low_latency):
    """A→B→A… with a record before each move; tasks run only now and then."""
    world = KeyedWorld(
        partitions=2, shards=1, keys=1, modes=[LOW_LATENCY if low_latency else EXACTLY_ONCE]
    )
    for n in range(moves):
        world.append("k0")
        world.route(0)
        world.migrate("k0", (n + 1) % 2)
        while "k0" in world.gateways[0].migrations:
            if world.can_go_on(0, "k0"):
                world.go_on(0, "k0")
            else:
                p = next(p for p, flight in enumerate(world.gateways[0].flights) if flight)
                world.store(world.gateways[0].flights[p], p)
        if world.can_commit(0):
            world.commit_gateway(0)
        for _ in range(seed >> n & 3):
            choices = world.expected()
            if choices:
                choices[seed % len(choices)]()
    world.settle()

    check(world)
    assert len(world.adoptions) == moves


@given(worlds, schedules, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_records_that_are_read_twice_take_effect_once(world, schedule, which):
    """A copy of any stored record, markers too, behind the log of its partition."""
    run(world, schedule)
    copies = [(p, letter) for p, log in enumerate(world.logs) for letter in log]
    before = list(world.receipts)
    p, letter = copies[which % len(copies)]
    world.logs[p].append(letter)
    world.settle()

    assert world.receipts == before
    check(world)
