"""A ring in a file is the ring; whatever is wrong with a file, the log is read instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab.measure import ring_files
from trimtab.measure.column_ring import ColumnRing
from trimtab.measure.rate_text import rates_texts
from trimtab.measure.ring_files import RingFiles
from trimtab.measure.topic_samples import TopicSample, read_sample

SECOND = 1_000_000


def sample(second: int, topic: str = "t", partitions: int = 3) -> TopicSample:
    value = {
        "v": 2,
        "sample_id": "s",
        "ts": second * SECOND,
        "topic": topic,
        "partition": list(range(partitions)),
        "leader": [1] * partitions,
        "log_bytes": [second * 100 * (n + 1) for n in range(partitions)],
        "end_offset": [second * (n + 1) for n in range(partitions)],
        "committed": {"g": [second] + [None] * (partitions - 1)},
    }
    return read_sample(json.dumps(value).encode(), arrived_ts=second * SECOND)


def ring_until(second: int) -> ColumnRing:
    ring = ColumnRing(window_s=10, min_span_s=3)
    for now in range(1, second + 1):
        ring.add(sample(now))
        ring.add(sample(now, "u", 2))
    return ring


def texts(ring: ColumnRing) -> list[bytes]:
    return [text for rates in ring.rates(["t", "u"]) for text in rates_texts(rates)]


def test_a_ring_goes_on_after_it_was_stored(tmp_path: Path) -> None:
    files = RingFiles(tmp_path)
    files.save(2, ring_until(8), 40)
    again = files.load(2)
    assert again is not None
    ring, offset = again
    assert offset == 40
    for second in (9, 10):
        ring.add(sample(second, partitions=4))  # it grows
        ring.add(sample(second, "u", 2))
    whole = ring_until(8)
    for second in (9, 10):
        whole.add(sample(second, partitions=4))
        whole.add(sample(second, "u", 2))
    assert texts(ring) == texts(whole) != []


def test_only_the_newest_ring_is_kept(tmp_path: Path) -> None:
    files = RingFiles(tmp_path)
    for second in (4, 5, 6):
        files.save(0, ring_until(second), second * 10)
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["60.ring"]
    found = files.load(0)
    assert found is not None
    assert found[0].newest_ts == 6 * SECOND


def test_the_ring_stored_last_counts_even_if_its_offset_is_lower(tmp_path: Path) -> None:
    """After the log was made anew, or for a batch that is repeated."""
    files = RingFiles(tmp_path)
    files.save(0, ring_until(6), 60)
    files.save(0, ring_until(7), 5)
    found = files.load(0)
    assert found is not None
    assert (found[0].newest_ts, found[1]) == (7 * SECOND, 5)


@pytest.mark.parametrize("keep", [0, 10, 200, 900])
def test_a_damaged_file_counts_as_absent(tmp_path: Path, keep: int) -> None:
    files = RingFiles(tmp_path)
    files.save(0, ring_until(6), 60)
    path = tmp_path / "0" / "60.ring"
    path.write_bytes(path.read_bytes()[:keep])
    assert files.load(0) is None


def test_there_is_no_ring_where_none_was_stored(tmp_path: Path) -> None:
    assert RingFiles(tmp_path / "missing").load(3) is None


def test_an_empty_ring_can_be_stored(tmp_path: Path) -> None:
    files = RingFiles(tmp_path)
    files.save(0, ColumnRing(window_s=10, min_span_s=3), 0)
    found = files.load(0)
    assert found is not None
    assert found[0].rows == []


def test_a_ring_that_cannot_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every attempt would take some more of a disk that is full."""

    def full(*_: object) -> None:
        raise OSError("no space left")

    files = RingFiles(tmp_path)
    files.save(0, ring_until(6), 60)
    monkeypatch.setattr(ring_files, "_write", full)
    with pytest.raises(OSError, match="no space"):
        files.save(0, ring_until(7), 70)
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["60.ring"]
