"""Rates that executors have published are shown as metrics; a record is parsed only then."""

from __future__ import annotations

import math

from trimtab.kafka.cluster import Cluster
from trimtab.measure.kafka.rates_follower import RatesFollower
from trimtab.model.codec import dumps, rates_to
from trimtab.model.load import PartitionLoad, Source
from trimtab.observe.clock import wall_clock_us

NOW = 2_000_000_000


def load(partition: int, bytes_s: float) -> PartitionLoad:
    return PartitionLoad(
        topic="t",
        partition=partition,
        bytes_s=bytes_s,
        records_s=1.0,
        source=Source.LOG_DIRS,
        end_offset=5,
        complete=True,
    )


def record(ts: int, *loads: PartitionLoad, part: int | None = None, of: int = 2) -> bytes:
    value = rates_to("t", loads, ts=ts, window_start=ts - 1, window_end=ts)
    place = {} if part is None else {"part": part, "of": of}
    return dumps(value | place).encode()


def follower() -> RatesFollower:
    return RatesFollower(Cluster("127.0.0.1:1"))


def shown(rates: RatesFollower) -> dict[int, float | None]:
    return {n: rate.bytes_s for whole in rates.rates() for n, rate in whole.partitions.items()}


def test_the_newest_record_of_a_topic_is_shown() -> None:
    rates = follower()
    rates.take(b"t", record(NOW, load(0, 10.0)))
    rates.take(b"t", record(NOW + 1, load(0, 20.0), load(1, 30.0)))
    assert shown(rates) == {0: 20.0, 1: 30.0}
    assert rates.records == 2


def test_parts_of_a_topic_are_shown_when_all_have_come() -> None:
    rates = follower()
    rates.take(b"t", record(NOW, load(0, 10.0), part=0))
    assert shown(rates) == {}
    rates.take(b"t", record(NOW, load(1, 20.0), part=1))
    assert shown(rates) == {0: 10.0, 1: 20.0}


def test_a_topic_that_is_not_measured_any_more_is_left_out() -> None:
    rates = follower()
    rates.take(b"t", record(NOW, load(0, 10.0)))
    rates.take(b"u", record(NOW + 61_000_000, load(0, 20.0)).replace(b'"t"', b'"u"'))
    assert shown(rates) == {0: 20.0}


def test_a_topic_that_is_not_measured_any_more_takes_no_memory() -> None:
    rates = follower()
    for number in range(100):
        rates.take(b"t%d" % number, record(NOW + number * 10_000_000, load(0, 10.0)))
    assert len(rates._newest) <= 7 + 1


def test_an_older_record_does_not_replace_a_newer_one() -> None:
    """Two jobs may publish rates of the same topic."""
    rates = follower()
    rates.take(b"t", record(NOW + 1, load(0, 20.0)))
    rates.take(b"t", record(NOW, load(0, 10.0)))
    assert shown(rates) == {0: 20.0}


def test_parts_of_earlier_rates_do_not_hide_a_later_record() -> None:
    """A group that had made the record too long for one part is gone."""
    rates = follower()
    rates.take(b"t", record(NOW, load(0, 10.0), part=0))
    rates.take(b"t", record(NOW, load(1, 10.0), part=1))
    rates.take(b"t", record(NOW + 1, load(0, 20.0), load(1, 20.0)))
    assert shown(rates) == {0: 20.0, 1: 20.0}


def test_records_that_cannot_be_read_are_ignored() -> None:
    rates = follower()
    for value in (b"", b"nonsense", b'{"ts": 5, "v": 9}', b'{"ts": 5'):
        rates.take(b"t", value)
    assert shown(rates) == {}


def test_the_age_is_that_of_the_newest_sample() -> None:
    rates = follower()
    assert math.isnan(rates.age_s())
    rates.take(b"t", record(wall_clock_us() - 5_000_000, load(0, 1.0)))
    assert 5 <= rates.age_s() < 3600
