"""Laws of steering: what holds for the weights whatever was seen."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.apply.records.probe_log import Probes
from trimtab.apply.records.steering import Observation, SteeringState, step

latency = st.floats(0.0001, 2.0)
silence = st.one_of(st.just(0.0), st.floats(0.0, 30.0))
rate = st.none() | st.floats(0, 1e9)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """A broker: some steady latency, some outliers, perhaps silent, perhaps asked."""
    usual, often = draw(latency), draw(st.integers(0, 100))
    odd = draw(st.lists(latency, max_size=20))
    latencies = [*[usual] * often, *odd]
    answers = tuple((0.1 * n, latencies[n]) for n in reversed(range(len(latencies))))
    return Observation(
        probes=Probes(answers=answers, silent_s=draw(silence), pace_s=0.1),
        requests_s=tuple(draw(st.lists(latency, max_size=10))),
        bytes_s=draw(rate),
        records_s=draw(rate),
    )


clusters = st.dictionaries(st.integers(0, 2000), observations(), min_size=1, max_size=6)
passing = st.floats(0.01, 30.0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[SteeringState, float]:
    """Where steering stands after some steps on the same brokers."""
    brokers = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True))
    state, now = SteeringState(), 0.0
    for _ in range(draw(st.integers(0, 4))):
        now += draw(passing)
        state, _ = step(state, {b: draw(observations()) for b in brokers}, now)
    return state, now


@settings(max_examples=60)
@given(histories(), clusters, passing)
def test_weights_lie_in_zero_to_one_and_somebody_has_one(history, seen, passed):
    state, now = history
    _, verdicts = step(state, seen, now + passed)

    assert verdicts.keys() == seen.keys()
    assert all(0 <= v.weight <= 1 for v in verdicts.values())
    assert max(v.weight for v in verdicts.values()) == 1
    assert all(v.reason for v in verdicts.values())


@given(observations(), st.integers(1, 9), st.lists(passing, min_size=1, max_size=4))
def test_brokers_that_look_the_same_weigh_the_same(seen, brokers, steps):
    state, now = SteeringState(), 0.0
    for passed in steps:
        now += passed
        state, verdicts = step(state, dict.fromkeys(range(brokers), seen), now)
        assert {v.weight for v in verdicts.values()} == {1.0}


@given(clusters, st.lists(passing, min_size=1, max_size=3))
def test_equal_input_gives_equal_output_and_names_do_not_matter(seen, steps):
    renamed = {-broker - 1: observation for broker, observation in seen.items()}
    ours, theirs, again, now = SteeringState(), SteeringState(), SteeringState(), 0.0
    for passed in steps:
        now += passed
        ours, verdicts = step(ours, seen, now)
        again, same = step(again, seen, now)
        theirs, others = step(theirs, renamed, now)
        assert verdicts == same
        assert ours == again
        assert {-b - 1: v for b, v in verdicts.items()} == others


@settings(max_examples=60)
@given(histories(), clusters, passing, st.data())
def test_a_broker_that_is_slower_never_weighs_more(history, seen, passed, data):
    state, now = history
    broker = data.draw(st.sampled_from(sorted(seen)))
    times = data.draw(st.floats(1.0, 50.0))
    probes = seen[broker].probes
    slower = replace(
        seen[broker],
        probes=replace(
            probes,
            answers=tuple((ago, latency_s * times) for ago, latency_s in probes.answers),
            silent_s=probes.silent_s * times,
        ),
        requests_s=tuple(r * times for r in seen[broker].requests_s),
    )
    # With everybody silent it is we who are deaf, which says nothing of this one.
    others_answer = any(seen[b].probes.silent_s == 0 for b in seen if b != broker)

    _, before = step(state, seen, now + passed)
    _, after = step(state, {**seen, broker: slower}, now + passed)

    if others_answer:
        assert after[broker].weight <= before[broker].weight


@settings(max_examples=60)
@given(histories(), clusters, passing)
def test_what_was_seen_and_remembered_is_left_unchanged(history, seen, passed):
    state, now = history
    copied = dict(seen)
    first = step(state, seen, now + passed)

    assert seen == copied
    assert step(state, seen, now + passed) == first
