"""The experiment on partitioners, shortened: a slowed broker, steering, two policies."""

from __future__ import annotations

from contextlib import contextmanager

from trimtab.observe.clock import TimedOut
from trimtab_lab.papers.burato.design import (
    OURS,
    SLOWED,
    BrokerWorld,
    BuratoCell,
    ExperimentSetting,
    PolicyName,
)
from trimtab_lab.papers.burato.experiment import BuratoDesign, burato
from trimtab_lab.papers.burato.kafka import brokers
from trimtab_lab.papers.burato.kafka.brokers import prepared

SETTING = ExperimentSetting(topic="U2", acks="1", world=BrokerWorld.SLOWED)


def test_producers_that_follow_the_weights_leave_a_slow_broker_alone_and_others_do_not(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(brokers, "_SETTLED_WITHIN_S", 120.0)
    policies = (OURS, "uniform-sticky")
    design = BuratoDesign(
        cells=tuple(
            BuratoCell(setting=SETTING, policy=PolicyName(name), load=0.3) for name in policies
        ),
        repetitions=1,
        duration_s=1.5,
    )

    settled = []

    @contextmanager
    def place():
        with prepared(cluster, tmp_path / "said") as ground:
            yield ground
            settled.append(dict(ground.weights()))

    found = burato(place, design, tmp_path / "runs", on_run=lambda *_: None)

    if settled[0][SLOWED] >= 0.5:  # where all brokers are starved, none of them is slow
        raise TimedOut(f"no evidence against broker {SLOWED}: {settled[0]}")
    cells = {cell["policy"].split()[0]: cell for cell in found["open-loop"].figures["cells"]}
    assert cells[OURS]["by_broker"][str(SLOWED)] < 0.2
    assert cells["uniform-sticky"]["by_broker"][str(SLOWED)] > 0.25
    assert all(cell["failed"] == 0 for cell in cells.values())
    assert cells[OURS]["p50_ms"][0] < cells["uniform-sticky"]["p95_ms"][0]

    again = burato(place, design, tmp_path / "runs", on_run=lambda *_: None)
    assert again == found  # kept, not run anew
