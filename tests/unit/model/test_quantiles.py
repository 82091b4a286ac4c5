"""The nearest-rank quantile."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.model.quantiles import quantile


@pytest.mark.parametrize(
    ("q", "value"), [(0.0, 1.0), (0.05, 1.0), (0.5, 10.0), (0.95, 19.0), (0.951, 20.0), (1.0, 20.0)]
)
def test_a_quantile_is_a_value_that_was_seen(q: float, value: float) -> None:
    assert quantile([float(x) for x in range(20, 0, -1)], q) == value


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("count", [1, 2, 19, 20, 100, 1000])
def test_it_is_what_numpy_calls_the_inverted_cdf(share: float, count: int) -> None:
    values = np.random.default_rng(count).random(count).tolist()

    assert quantile(values, share) == np.quantile(values, share, method="inverted_cdf")


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_to_1_is_an_error(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1.0], share)


def test_without_values_there_is_no_quantile() -> None:
    with pytest.raises(ValueError, match="without values"):
        quantile([], 0.5)
