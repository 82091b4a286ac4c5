"""The service that compares ways to spread records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.errors import ConfigError
from trimtab.model.codec import dumps, snapshot_to
from trimtab.services.simulate_brokers import (
    PolicyComparison,
    SlowPeriod,
    compare_policies,
    topology_of,
)
from trimtab.simulate.brokers import Service
from trimtab.simulate.dispatchers import policy_of
from trimtab.simulate.policy import DispatchSettings
from trimtab.simulate.policy_comparison import Effort
from trimtab.testing.placements import placement


def comparison(**changes: Any) -> PolicyComparison:
    asked: dict[str, Any] = {
        "topology": topology_of(2, None, own_prefix="trimtab."),
        "policies": [policy_of("random"), policy_of("jsq")],
        "utilisations": [0.5],
        "dispatchers": [1, 2],
        "service": Service.EXPONENTIAL,
        "settings": DispatchSettings(),
        "effort": Effort(count=200, seeds=2),
    }
    return PolicyComparison(**(asked | changes))


def test_every_policy_has_a_cell_for_each_utilisation() -> None:
    told = Told()

    cells, world = compare_policies(comparison(utilisations=[0.5, 0.8]), listener=told)

    assert (cells[0].policy, cells[0].utilisation) == ("random", 0.5)
    assert {c.utilisation for c in cells} == {0.5, 0.8}
    assert world.brokers == (1, 2)
    runs = len(cells) * 2
    assert [done for _, done, total in told.steps] == list(range(runs + 1))


def test_a_slow_period_ends_with_the_usual_speed() -> None:
    slow = SlowPeriod(broker=1, speed=0.2, start=0.4, end=0.6)

    _, world = compare_policies(comparison(slow=[slow]))

    assert [(c.broker, c.speed) for c in world.changes] == [(1, 0.2), (1, 1.0)]
    assert world.changes[0].at < world.changes[1].at


def test_foreign_load_that_fills_a_broker_is_refused() -> None:
    with pytest.raises(ConfigError, match="Invalid simulation"):
        compare_policies(comparison(foreign={1: 1.0}))


def test_a_topology_is_read_from_a_snapshot_file(tmp_path: Path) -> None:
    told = Told()
    file = tmp_path / "snapshot.json"
    file.write_text(dumps(snapshot_to(placement({"A": [[1], [2]], "dark": [[]], "__own": [[1]]}))))

    found = topology_of(None, str(file), own_prefix="trimtab.", listener=told)

    assert list(found.leaders.topics) == ["A"]
    assert found.speeds == {1: 1.0, 2: 1.0}
    assert told.warnings == ["topic dark has no leader and is left out"]


@pytest.mark.parametrize(
    ("brokers", "topology", "complaint"),
    [
        (2, "U2", "cannot be combined"),
        (None, "nowhere.json", "neither a file nor a built-in topology"),
    ],
)
def test_a_topology_that_is_not_there_is_refused(
    brokers: int | None, topology: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        topology_of(brokers, topology, own_prefix="trimtab.")
