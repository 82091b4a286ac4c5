"""The ring of recent samples: rates right now, tumbling windows once, repeats for free."""

from __future__ import annotations

from random import Random

from trimtab.measure.ring import SampleRing
from trimtab.measure.windows import MICROS, PartitionSample, speed
from trimtab.model.cluster import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(second: float, size: int | None, **committed: int) -> PartitionSample:
    return PartitionSample(
        ts=round(second * MICROS), leader=1, log_bytes=size, end_offset=size, committed=committed
    )


def ring(window_s: float = 10, min_span_s: float = 3) -> SampleRing:
    return SampleRing(window_s=window_s, min_span_s=min_span_s)


def test_no_rate_is_given_before_the_samples_span_enough() -> None:
    r = ring()
    for second in (100, 101, 102):
        r.add(P0, at(second, second))
    assert list(r.rates()) == []
    r.add(P0, at(103, 103))
    assert [t.partitions[0].bytes_s for t in r.rates()] == [1.0]


def test_one_topic_has_all_its_partitions_in_one_value() -> None:
    r = ring()
    for second in range(100, 106):
        r.add(P0, at(second, 10 * second, g=10 * second - 7))
        r.add(P1, at(second, 5 * second))
    (rates,) = r.rates()
    assert [(p.partition, p.bytes_s, p.lag) for p in rates.partitions] == [
        (0, 10.0, {"g": 7}),
        (1, 5.0, {}),
    ]
    assert (rates.ts, rates.stale) == (105 * MICROS, frozenset())


def test_feeding_the_same_samples_again_changes_nothing() -> None:
    r = ring()
    samples = [at(second, 3 * second) for second in range(100, 108)]
    assert all(r.add(P0, s) for s in samples)
    before = list(r.rates())
    assert not any(r.add(P0, s) for s in samples)
    assert list(r.rates()) == before


def test_a_silent_partition_keeps_its_rate_as_stale_and_is_forgotten_after_a_window() -> None:
    r = ring(window_s=10)
    for second in range(100, 105):
        r.add(P0, at(second, 10 * second))
        r.add(P1, at(second, 5 * second))
    for second in range(105, 110):
        r.add(P0, at(second, 10 * second))
    (rates,) = r.rates()
    assert rates.stale == {1}
    assert rates.partitions[1].bytes_s == 5.0
    for second in range(110, 130):
        r.add(P0, at(second, 10 * second))
        list(r.close())
    (rates,) = r.rates()
    assert [p.partition for p in rates.partitions] == [0]


def test_a_partition_whose_size_is_unknown_right_now_keeps_its_rate_as_stale() -> None:
    r = ring()
    for second in range(100, 105):
        r.add(P0, at(second, 10 * second))
    r.add(P0, at(105, None))
    (rates,) = r.rates()
    assert (rates.partitions[0].bytes_s, rates.stale) == (10.0, frozenset({0}))


def test_after_a_drop_the_last_rate_is_shown_until_there_is_a_new_one() -> None:
    r = ring()
    for second in range(100, 105):
        r.add(P0, at(second, 10 * second))
    assert [t.partitions[0].bytes_s for t in r.rates()] == [10.0]
    r.add(P0, at(105, 3))
    (rates,) = r.rates()
    assert (rates.partitions[0].bytes_s, rates.partitions[0].complete) == (10.0, False)


def test_a_window_is_closed_once_when_samples_have_passed_it() -> None:
    r = ring(window_s=10)
    closed = []
    for second in range(100, 125):
        r.add(P0, at(second, second))
        closed += [(start // MICROS, len(samples[P0])) for start, samples in r.close()]
    assert closed == [(100, 10), (110, 10)]


def test_a_window_that_could_not_be_kept_is_given_again() -> None:
    r = ring(window_s=10)
    for second in range(100, 125):
        r.add(P0, at(second, second))
    first, _ = next(r.close())  # whoever asked failed to write it, and never came back
    assert [start // MICROS for start, _ in r.close()] == [first // MICROS, 110]


def test_a_sample_of_a_closed_window_is_late_and_changes_nothing() -> None:
    r = ring(window_s=10)
    for second in range(100, 115):
        r.add(P0, at(second, second))
    list(r.close())
    assert not r.add(P0, at(105.5, 105))
    assert r.late == 1


def test_samples_of_the_past_serve_the_sliding_window_of_a_restarted_driver() -> None:
    r = SampleRing(window_s=10, min_span_s=3, closed_until=110 * MICROS)
    for second in range(103, 113):
        assert r.add(P0, at(second, 7 * second), past=True)
    assert [t.partitions[0].bytes_s for t in r.rates()] == [7.0]
    for second in range(113, 123):
        r.add(P0, at(second, 7 * second))
    assert [(start // MICROS, len(s[P0])) for start, s in r.close()] == [(110, 10)]


def test_a_long_silence_does_not_produce_empty_windows() -> None:
    r = ring(window_s=10)
    for second in (100, 101, 5000, 5001, 5013):
        r.add(P0, at(second, second))
    assert [start // MICROS for start, _ in r.close()] == [100, 5000]


def test_windows_closed_on_the_way_have_the_rates_of_the_whole_series() -> None:
    """Order of arrival within the grace does not matter."""
    rng = Random(2)
    samples = [at(100 + i * 0.5, rng.randrange(1000)) for i in range(120)]
    r = ring(window_s=10)
    closed = {}
    for i in range(0, len(samples), 3):
        block = samples[i : i + 3]
        rng.shuffle(block)
        for sample in block:
            r.add(P0, sample)
        closed.update({start: inside[P0] for start, inside in r.close()})
    for start, inside in closed.items():
        wanted = [s for s in samples if start <= s.ts < start + 10 * MICROS]
        limits = {"min_span_s": 3, "max_gap_s": 3}
        assert speed(inside, **limits) == speed(wanted, **limits)
    assert len(closed) == 5
