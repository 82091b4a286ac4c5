"""The counts that a measurement of `trimtab measure` stands for, and warnings about counts.

A measurement has rates of partitions and counts of heavy keys over a window of their own. That
window is the time in which the topic has as many records, at its rates, as were counted by key:
all records of the topic are taken to have a key. Keys are at their home partitions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from trimtab.errors import ConfigError, ThinData
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.load import KeyLoad, Measurement, PartitionLoad
from trimtab.model.murmur2 import home
from trimtab.plan.keys.planner import KeyOptions
from trimtab.plan.keys.tracking import tracked_keys
from trimtab.plan.measurement_age import about_age

_NAMED = 5


def measured_topic(measured: Measurement, asked: str | None) -> str:
    """The topic to plan for; it must be named if heavy keys of several were measured."""
    topics = sorted({p.topic for p in measured.partitions})
    if asked is not None:
        if asked not in topics:
            raise ConfigError(
                f'There is no load of topic "{asked}".',
                hint=f"The measurement has {_some(topics) or 'no topic at all'}.",
            )
        return asked
    with_keys = sorted({key.topic for key in measured.keys}.intersection(topics)) or topics
    if len(with_keys) != 1:
        raise ConfigError(
            f"The measurement has {len(with_keys)} topics, and keys are planned for one.",
            hint=f"Choose one with --topic: {_some(with_keys)}." if with_keys else "Measure again.",
        )
    return with_keys[0]


def counts_of_measurement(measured: Measurement, topic: str) -> KeyCounts:
    """The counts of a topic's heavy keys and partitions; unknown or unsound ones raise."""
    partitions = [p for p in measured.partitions if p.topic == topic]
    keys = [key for key in measured.keys if key.topic == topic]
    rates = _rates(partitions)
    window_s = _window_s(measured, keys, sum(rates))
    listed = [0] * len(rates)
    counted = []
    for key in keys:
        place = home(key.key, len(rates)) if key.partition_home is None else key.partition_home
        if place >= len(rates):
            raise ConfigError(
                f"A key of {topic} has the home partition {place}, but the topic has "
                f"{len(rates)} partitions.",
                hint="Measure again: partitions may have been added since.",
            )
        listed[place] += key.lower
        counted.append(KeyCount(key=key.key, count=key.lower, partition=place, upper=key.upper))
    try:
        return KeyCounts(
            partitions=len(rates),
            window_s=window_s,
            threshold=max(1, min((key.upper for key in keys), default=1)),
            keys=tuple(counted),
            partition_totals=tuple(
                max(own, round(rate * window_s)) for own, rate in zip(listed, rates, strict=True)
            ),
        )
    except ValueError as error:
        raise ConfigError(
            f"The measurement of {topic} is not sound: {error}.", hint="Measure again."
        ) from error


def _rates(partitions: Collection[PartitionLoad]) -> list[float]:
    """The records per second of partitions 0 to m − 1."""
    by_number = {p.partition: p for p in partitions}
    missing = [n for n in range(max(by_number) + 1) if n not in by_number]
    unknown = [n for n, p in sorted(by_number.items()) if p.records_s is None]
    for what, numbers in (("is not in the measurement", missing), ("is unknown", unknown)):
        if numbers:
            topic = next(iter(partitions)).topic
            raise ThinData(
                f"The load of {_some([f'{topic}-{n}' for n in numbers])} {what}.",
                hint="Measure again over a longer span.",
            )
    return [by_number[n].records_s or 0.0 for n in range(len(by_number))]


def _window_s(measured: Measurement, keys: Collection[KeyLoad], rate: float) -> float:
    """The length of the window that the keys were counted in."""
    largest = max(keys, key=lambda key: (key.lower, key.key), default=None)
    if largest is None or not (rate > 0 and largest.share > 0 and largest.lower > 0):
        return measured.window_s
    return round(largest.lower / largest.share) / rate


def cautions(counts: KeyCounts, options: KeyOptions) -> Iterator[str]:
    """Warnings about these counts that a user must know before trusting the plan."""
    if not counts.records:
        yield "there are no records in the window: no key is hot"
        return
    if not counts.keys:
        yield "no hot keys are listed: nothing can move"
        return
    tracked = tracked_keys(counts, options)
    if not tracked.tracked:
        yield f"no key has {tracked.threshold} records in the window: nothing is hot"
    if tracked.threshold < counts.threshold:
        yield (
            f"the counts list keys from {counts.threshold} records on: keys between "
            f"{tracked.threshold} and {counts.threshold} records may be missing"
        )


def cautions_of_measurement(
    measured: Measurement, topic: str, *, now_ts: int, max_age_s: float, incomplete: bool = True
) -> Iterator[str]:
    """Warnings about a measurement: its age, and rates that are not complete."""
    yield from about_age(measured, now_ts=now_ts, max_age_s=max_age_s)
    thin = [str(p.name) for p in measured.partitions if p.topic == topic and not p.complete]
    if thin and incomplete:
        yield (
            f"the rate of {_some(thin)} is incomplete: it has a gap, covers less time than "
            "requested, or is based on timestamps that are not arrival times"
        )
    yield from _contradictions(measured, topic)


def _contradictions(measured: Measurement, topic: str) -> Iterator[str]:
    """Partitions whose heavy keys have far more records than their rate allows."""
    counts = counts_of_measurement(measured, topic)
    rates = _rates([p for p in measured.partitions if p.topic == topic])
    for partition, (own, rate) in enumerate(zip(counts.listed, rates, strict=True)):
        expected = round(rate * counts.window_s)
        if own - expected > max(own / 10, 5 * math.sqrt(own)):
            yield (
                f"the heavy keys of {topic}-{partition} have {own} records, but at its rate it "
                f"gets {expected} in the same time: rates and keys are not of the same load"
            )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
