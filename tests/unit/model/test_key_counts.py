"""Counts of a window: what is refused, in a value and in a file."""

import json
from typing import Any

import pytest

from tests.unit.plan.keys.windows import window
from trimtab.errors import BadFile
from trimtab.model.codec import counts_from, counts_to, read_counts
from trimtab.model.json_files import write_counts
from trimtab.model.json_reader import parse
from trimtab.model.key_counts import KeyCount

GOOD: dict[str, Any] = {
    "v": 1,
    "partitions": 2,
    "window_s": 10,
    "threshold": 5,
    "keys": [{"key": "a", "count": 7, "partition": 1, "routed": True}],
    "partition_totals": [3, 9],
}


def test_the_file_of_the_contract_is_read_and_written(tmp_path):
    counts = counts_from(parse(json.dumps(GOOD), origin="counts.json"))

    assert counts.keys == (KeyCount(key=b"a", count=7, partition=1, routed=True),)
    assert counts.routes == {b"a": 1}
    assert (counts.records, counts.max_error, counts.listed) == (12, 0, [0, 7])
    assert counts_to(counts) == GOOD
    write_counts(counts, tmp_path / "counts.json")
    assert read_counts(tmp_path / "counts.json") == (counts, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partition_totals": [3]}, "partition_totals has 1 numbers for 2 partitions"),
        ({"partition_totals": [3, 6]}, "partition 1 have 7 records, but its total is 6"),
        ({"keys": [{"key": "a", "count": 7, "partition": 2}]}, 'key "a" is on partition 2'),
        ({"keys": GOOD["keys"] * 2, "partition_totals": [0, 99]}, 'key "a" is listed twice'),
        ({"keys": [{"key": "a", "count": 7, "partition": 1, "upper": 6}]}, "upper bound 6, below"),
        ({"keys": [{"key": "a", "count": -7, "partition": 1}]}, r"keys\[0\].count"),
        ({"partition_totals": [-3, 9]}, r"partition_totals\[0\]"),
        ({"threshold": 0}, "threshold"),
        ({"partitions": 0}, "partitions"),
        ({"window_s": 0}, "window_s"),
        ({"v": 2}, "v"),
    ],
)
def test_a_file_whose_numbers_do_not_fit_is_refused_in_one_line(change, message):
    with pytest.raises(BadFile, match=message) as raised:
        counts_from(parse(json.dumps(GOOD | change), origin="counts.json"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("keys", "totals"),
    [({b"a": (-1, 0)}, (5, 5)), ({b"a": (1, 2)}, (5, 5)), ({b"a": (6, 0)}, (5, 5)), ({}, (-1, 5))],
)
def test_a_value_whose_numbers_do_not_fit_is_a_value_error(keys, totals):
    with pytest.raises(ValueError, match=r"negative|partition"):
        window(keys, totals)
