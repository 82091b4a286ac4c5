"""Rates that are split into several records, and joined again."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadFile
from trimtab.model.codec import MOST_RATES_BYTES, Json, dumps, rates_records, rates_to
from trimtab.model.control import PartitionRate, TopicRates
from trimtab.model.control_codec import topic_rates_from
from trimtab.model.json_reader import parse
from trimtab.model.load import PartitionLoad, Source
from trimtab.model.rate_parts import RateParts


def written(*names: str, topic: str = "t", ts: int = 9) -> Json:
    """Rates of a topic; each name is the group that reads one of its partitions."""
    loads = [
        PartitionLoad(
            topic=topic,
            partition=n,
            bytes_s=n + 0.5,
            records_s=None,
            source=Source.LOG_DIRS,
            end_offset=n,
            lag={name: n},
        )
        for n, name in enumerate(names)
    ]
    return rates_to(topic, loads, ts=ts, window_start=1, window_end=ts, stale=frozenset({0}))


def read(record: Json) -> TopicRates:
    return topic_rates_from(parse(dumps(record), origin="rates"))


def part(part: int, of: int, *, ts: int, topic: str = "t", mark: int = 0) -> TopicRates:
    """A part with one partition, of which the end offset is `mark`."""
    rate = PartitionRate(bytes_s=1.0, records_s=1.0, end_offset=mark, complete=True, stale=False)
    return TopicRates(topic=topic, ts=ts, part=part, of=of, partitions={part: rate})


def joined(records: Iterable[TopicRates]) -> list[tuple[int, list[int]]]:
    """The rates that were returned: their `ts`, and the end offsets of their partitions."""
    parts = RateParts()
    found = (parts.joined(record) for record in records)
    return [(r.ts, [p.end_offset or 0 for p in r.partitions.values()]) for r in found if r]


# ---------------------------------------------------------------- writing


def test_rates_that_fit_are_one_record_without_new_fields() -> None:
    rates = written("a", "b")

    assert [dumps(r) for r in rates_records(rates)] == [dumps(rates)]


def test_ten_thousand_partitions_are_split_below_900_kb() -> None:
    rates = written(*["group"] * 10_000)

    records = list(rates_records(rates))

    sizes = [len(dumps(record).encode()) for record in records]
    assert sum(sizes) > MOST_RATES_BYTES >= max(sizes)
    assert [(r["part"], r["of"]) for r in records] == [(n, len(sizes)) for n in range(len(sizes))]
    assert [list(r)[-1] for r in records] == ["partitions"] * len(sizes)


def test_a_partition_that_is_too_large_by_itself_is_written_whole() -> None:
    assert list(rates_records(written("x" * 2000), most_bytes=1000)) == [written("x" * 2000)]

    records = list(rates_records(written("a", "x" * 2000, "b"), most_bytes=1000))

    assert [list(r["partitions"]) for r in records] == [["0"], ["1"], ["2"]]


@given(
    names=st.lists(st.text("aé€😀", max_size=200), min_size=1, max_size=30),
    most=st.integers(500, 8000),
    order=st.randoms(),
)
def test_what_is_split_is_below_the_limit_and_joined_again_whatever_the_order(
    names: list[str], most: int, order: object
) -> None:
    rates = written(*names)
    records = list(rates_records(rates, most_bytes=most))
    sizes = [len(dumps(record).encode()) for record in records]
    assert all(
        size <= most or len(record["partitions"]) == 1
        for size, record in zip(sizes, records, strict=True)
    )

    order.shuffle(records)  # type: ignore[attr-defined]
    parts = RateParts()
    *before, last = [parts.joined(read(record)) for record in records]

    assert before == [None] * len(before)
    assert last == read(rates)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"part": 2, "of": 2}, "part: is 2, but there are 2 parts"),
        ({"part": 1}, "part: is 1, but there are 1 parts"),
        ({"part": 0, "of": 0}, "of: is 0, the minimum is 1"),
        ({"part": -1, "of": 2}, "part: is negative"),
        ({"part": "0", "of": 2}, "part: should be a number"),
    ],
)
def test_a_part_that_cannot_be_is_refused(fields: Json, place: str) -> None:
    with pytest.raises(BadFile) as caught:
        read(written("a") | fields)

    assert place in str(caught.value)


def test_a_record_without_the_fields_is_complete_and_nulls_are_no_fields() -> None:
    plain = read(written("a"))

    assert (plain.part, plain.of) == (0, 1)
    assert read(written("a") | {"part": None, "of": None}) == plain
    assert RateParts().joined(plain) is plain


def test_a_lag_in_seconds_is_read_where_it_is_given() -> None:
    rates = json.loads(dumps(written("a", "b")))
    rates["partitions"]["1"]["lag_s"] = {"g": 0.5, "h": None}

    found = read(rates).partitions

    assert (found[0].lag_s, found[1].lag_s) == ({}, {"g": 0.5, "h": None})


# ---------------------------------------------------------------- joining


def test_parts_of_different_times_are_never_mixed() -> None:
    assert joined([part(0, 2, ts=1, mark=10), part(1, 2, ts=2, mark=21)]) == []

    crossed = [part(0, 2, ts=1), part(0, 2, ts=2, mark=20), part(1, 2, ts=2, mark=21)]
    assert joined([*crossed, part(1, 2, ts=1)]) == [(2, [20, 21])]


def test_parts_of_another_number_of_parts_or_another_topic_do_not_count() -> None:
    other = part(1, 2, ts=1, topic="other")

    assert joined([part(0, 2, ts=1), part(1, 3, ts=1), other]) == []


def test_a_set_that_never_ends_is_passed_by_the_next_and_a_complete_record() -> None:
    first, second = part(0, 2, ts=1), [part(0, 2, ts=2, mark=5), part(1, 2, ts=2, mark=6)]

    assert joined([first, *second]) == [(2, [5, 6])]
    assert joined([first, part(0, 1, ts=3, mark=7), part(1, 2, ts=1)]) == [(3, [7])]


def test_a_part_that_is_repeated_counts_once_and_the_later_one_wins() -> None:
    twice = [part(0, 2, ts=1, mark=1), part(0, 2, ts=1, mark=2), part(1, 2, ts=1, mark=3)]

    assert joined(twice) == [(1, [2, 3])]
    assert joined([*twice, *twice]) == [(1, [2, 3]), (1, [2, 3])]


def test_sets_that_are_never_complete_do_not_pile_up() -> None:
    many = [part(0, 2, ts=ts) for ts in range(100)]

    assert joined([*many, part(1, 2, ts=50)]) == []
    assert joined([*many, part(1, 2, ts=98, mark=4)]) == [(98, [0, 4])]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([(0, 1), (0, 2), (1, 2)])), max_size=12)
)
def test_the_newest_rates_are_those_of_the_newest_time_of_which_all_parts_came(
    arrivals: list[tuple[int, tuple[int, int]]],
) -> None:
    """Against a naive model that keeps everything."""
    parts, newest, came = RateParts(), 0, set[tuple[int, int, int]]()
    for ts, (number, of) in arrivals:
        rates = parts.joined(part(number, of, ts=ts, mark=ts))
        came.add((ts, number, of))
        if rates is not None:
            assert sorted(rates.partitions) == list(range(of))
            assert {p.end_offset for p in rates.partitions.values()} == {rates.ts} == {ts}
            newest = max(newest, rates.ts)

        whole = [t for t, _, of in came if {(t, n, of) for n in range(of)} <= came]
        assert newest == max(whole, default=0)
