"""Writes rates in columns as records of `trimtab.rates`.

Why      Building a value per partition and encoding it costs several times as much as the text.
Promise  The text has the content of `codec.rates_to`, and `lag_s` per group beside `lag`. A topic
         whose record would be longer than `most_bytes` is written as several, with `part` and `of`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from trimtab.measure.column_ring import Floats, RateColumns
from trimtab.measure.topic_samples import NO_OFFSET, UNKNOWN, Integers
from trimtab.model.codec import VERSION
from trimtab.model.load import Source

MOST_BYTES = 900_000
"""The longest record; brokers accept 1 MB unless told otherwise."""

_FLAG = ("false", "true")


def rates_texts(rates: RateColumns, *, most_bytes: int = MOST_BYTES) -> Iterator[bytes]:
    """The records of one topic; several if its partitions do not fit into one."""
    head = {
        "v": VERSION,
        "ts": rates.ts,
        "window_start": rates.window_start,
        "window_end": rates.ts,
        "topic": rates.topic,
    }
    parts = list(_parts(_entries(rates), most_bytes))
    for number, entries in enumerate(parts):
        place = {"part": number, "of": len(parts)} if len(parts) > 1 else {}
        opening = json.dumps(head | place, ensure_ascii=False)
        yield f'{opening[:-1]}, "partitions": {{{", ".join(entries)}}}}}'.encode()


def _parts(entries: Sequence[str], most_bytes: int) -> Iterator[list[str]]:
    """Entries in order, in lists of at most `most_bytes`; at least one entry each."""
    part: list[str] = []
    size = 0
    for entry in entries:
        # A group's name may have characters of up to four bytes; most have none.
        length = (len(entry) if entry.isascii() else len(entry.encode())) + 2
        if part and size + length > most_bytes:
            yield part
            part, size = [], 0
        part.append(entry)
        size += length
    yield part


def _entries(rates: RateColumns) -> list[str]:
    columns = zip(
        rates.partition.tolist(),
        _numbers(rates.bytes_s),
        _numbers(rates.records_s),
        _counts(rates.end_offset),
        _by_group({group: _counts(lag) for group, lag in rates.lag.items()}, rates),
        _by_group({group: _numbers(lag_s) for group, lag_s in rates.lag_s.items()}, rates),
        rates.complete.tolist(),
        rates.stale.tolist(),
        strict=True,
    )
    source = json.dumps(str(Source.LOG_DIRS))
    return [
        f'"{partition}": {{"bytes_s": {bytes_s}, "records_s": {records_s}, "end_offset": {end}, '
        f'"lag": {{{lag}}}, "lag_s": {{{lag_s}}}, "source": {source}, '
        f'"complete": {_FLAG[complete]}, "stale": {_FLAG[stale]}}}'
        for partition, bytes_s, records_s, end, lag, lag_s, complete, stale in columns
    ]


def _by_group(values: dict[str, list[str]], rates: RateColumns) -> list[str]:
    """For each partition the values of the groups that have an offset there."""
    size = len(rates.partition)
    if not values:
        return [""] * size
    pieces = []
    for group, texts in values.items():
        name = json.dumps(group, ensure_ascii=False)
        has_offset = (rates.lag[group] != NO_OFFSET).tolist()
        pieces.append(
            [f"{name}: {text}" if has else "" for text, has in zip(texts, has_offset, strict=True)]
        )
    if len(pieces) == 1:
        return pieces[0]
    return [", ".join(filter(None, row)) for row in zip(*pieces, strict=True)]


def _numbers(column: Floats) -> list[str]:
    if np.isnan(column).any():
        return ["null" if value != value else repr(value) for value in column.tolist()]  # noqa: PLR0124 - NaN
    return list(map(repr, column.tolist()))


def _counts(column: Integers) -> list[str]:
    if (column == UNKNOWN).any():
        return ["null" if value == UNKNOWN else str(value) for value in column.tolist()]
    return list(map(str, column.tolist()))
