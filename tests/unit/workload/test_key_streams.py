"""Zipf–Mandelbrot keys and their arrivals."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.workload.key_streams import KeyBlock, KeyStream, ZipfMandelbrot, key_bytes

SMALL = ZipfMandelbrot(keys=50)


def together(stream: KeyStream, duration_s: float, block_records: int = 5000) -> KeyBlock:
    blocks = list(stream.blocks(duration_s, block_records=block_records))
    return KeyBlock(
        np.concatenate([block.times_s for block in blocks]),
        np.concatenate([block.keys for block in blocks]),
    )


def test_the_first_three_keys_have_their_published_shares():
    drawn = ZipfMandelbrot().sample(10_000_000, np.random.default_rng(11))
    shares = 100 * np.bincount(drawn[drawn < 3], minlength=3) / drawn.size
    assert shares == pytest.approx([4.48, 3.17, 2.44], abs=0.05)


@pytest.mark.parametrize("s", [0.6, 1, 1.1, 2.5])
@pytest.mark.parametrize("v", [0.7, 1, 2.72])
def test_draws_fit_the_exact_distribution(s, v):
    zipf = ZipfMandelbrot(s=s, v=v, keys=40)
    weights = (v + np.arange(40.0)) ** -s
    expected = 200_000 * weights / weights.sum()
    seen = np.bincount(zipf.sample(200_000, np.random.default_rng(4)), minlength=40)
    chi_square = float(np.sum((seen - expected) ** 2 / expected))
    # 39 degrees of freedom: 86 is exceeded once in 40 000 sound samples.
    assert chi_square < 86


def test_the_fit_would_show_an_exponent_that_is_a_little_wrong():
    weights = (2.72 + np.arange(40.0)) ** -1.1
    expected = 200_000 * weights / weights.sum()
    off = ZipfMandelbrot(s=1.15, keys=40).sample(200_000, np.random.default_rng(4))
    seen = np.bincount(off, minlength=40)
    assert float(np.sum((seen - expected) ** 2 / expected)) > 86


@pytest.mark.parametrize("s", [0.9, 1.0, 1.1])
def test_shares_add_up_to_one_also_where_the_tail_is_not_summed_key_by_key(s):
    keys = 30_000
    zipf = ZipfMandelbrot(s=s, keys=keys)
    weights = (zipf.v + np.arange(float(keys))) ** -s
    assert zipf.share(7) == pytest.approx(weights[7] / weights.sum(), rel=1e-12)
    assert zipf.share(keys) == zipf.share(-1) == 0.0


def test_a_single_key_is_always_drawn():
    assert set(ZipfMandelbrot(keys=1).sample(100, np.random.default_rng(1)).tolist()) == {0}


def test_a_stream_does_not_depend_on_the_size_of_its_blocks():
    stream = KeyStream(rate_s=30_000, seed=3, distribution=SMALL, shift=10, shift_every_s=0.5)
    one, other = together(stream, 3.0, 777), together(stream, 3.0, 100_000)
    assert np.array_equal(one.times_s, other.times_s)
    assert np.array_equal(one.keys, other.keys)


def test_a_longer_stream_begins_with_the_shorter_one():
    stream = KeyStream(rate_s=1000, seed=3, distribution=SMALL)
    short, long = together(stream, 2.0), together(stream, 5.0)
    assert np.array_equal(long.times_s[: short.times_s.size], short.times_s)
    assert np.array_equal(long.keys[: short.keys.size], short.keys)


def test_another_seed_gives_another_stream():
    one, other = (together(KeyStream(rate_s=1000, seed=s, distribution=SMALL), 1.0) for s in (1, 2))
    assert not np.array_equal(one.times_s[:100], other.times_s[:100])
    assert not np.array_equal(one.keys[:100], other.keys[:100])


def test_arrivals_are_poisson_in_order_and_within_the_duration():
    times = together(KeyStream(rate_s=2000, seed=5, distribution=SMALL), 100.0).times_s
    gaps = np.diff(times)
    assert (gaps >= 0).all()
    assert times[0] > 0
    assert times[-1] < 100.0
    assert times.size == pytest.approx(200_000, abs=5 * 200_000**0.5)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)  # exponential gaps


def test_ticks_hold_records_back_until_the_next_tick():
    steady = KeyStream(rate_s=500, seed=5, distribution=SMALL)
    ticking = KeyStream(rate_s=500, seed=5, distribution=SMALL, tick_s=0.25)
    due, sent = together(steady, 2.0), together(ticking, 2.0)
    assert set(sent.times_s.tolist()) == {0.25 * i for i in range(1, 9)}
    assert ((sent.times_s >= due.times_s) & (sent.times_s - due.times_s < 0.25)).all()
    assert np.array_equal(due.keys, sent.keys)


def test_keys_shift_with_time():
    still = KeyStream(rate_s=100, seed=6, distribution=SMALL)
    drifting = KeyStream(rate_s=100, seed=6, distribution=SMALL, shift=1000)
    one, other = together(still, 150.0), together(drifting, 150.0)
    minutes = np.floor(one.times_s / 60).astype(int)
    assert set(minutes.tolist()) == {0, 1, 2}
    assert np.array_equal(other.keys - one.keys, 1000 * minutes)


def test_keys_are_written_as_decimal_ascii():
    assert key_bytes(np.array([0, 7, 28_000_001])) == [b"0", b"7", b"28000001"]


def test_a_stream_of_no_duration_is_empty():
    assert list(KeyStream(rate_s=10, seed=1).blocks(0.0)) == []


@pytest.mark.parametrize(
    "fields", [{"rate_s": 0}, {"shift_every_s": 0}, {"shift": -1}, {"tick_s": 0}]
)
def test_fields_that_make_no_stream_are_refused(fields):
    with pytest.raises(ValueError, match=r"rate|tick"):
        KeyStream(**{"rate_s": 1.0, "seed": 1, **fields})


@pytest.mark.parametrize("fields", [{"s": 0}, {"v": 0}, {"keys": 0}])
def test_parameters_that_make_no_distribution_are_refused(fields):
    with pytest.raises(ValueError, match="positive"):
        ZipfMandelbrot(**fields)
