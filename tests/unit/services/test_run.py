"""The controlling service: its defaults, what it refuses, and what it does up to its doors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.unit.services.listening import Told
from trimtab.apply.consumers.backends import processes
from trimtab.apply.consumers.kafka import directed_controller, subscribed_controller
from trimtab.errors import ApplyError, ConfigError, UnknownPlanner
from trimtab.kafka.cluster import Cluster
from trimtab.model.control import Action, Decision
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.plan.registry import planner_of
from trimtab.services.backends import BackendName, ConsumerScaling
from trimtab.services.consume import ConsumeMode
from trimtab.services.run import RunRequest, control_group, leave_consumers

DECISION = Decision(ts=0, group="new", action=Action.NONE, before=1, after=1, reason="all is well")
HANDLES = ConsumerScaling(consume="--handler shop:book")
IN_GROUP = ConsumerScaling(mode=ConsumeMode.GROUP, consume="--handler shop:book")


def request(**changes: Any) -> RunRequest:
    given: dict[str, Any] = {"group": "new", "topics": ("orders",), "measure": False}
    if isinstance(changes.get("planner"), str):
        changes["planner"] = planner_of(Layer.CONSUMERS, changes["planner"])
    return RunRequest(**(given | {"home": Path("home"), "warehouse": Path("w")} | changes))


class Living:
    """A backend with consumers 0 and 2."""

    def __init__(self) -> None:
        self.removed: list[int] = []

    def running(self) -> list[int]:
        return [2, 0]

    def remove(self, consumers: list[int]) -> None:
        self.removed += consumers


class Unreachable(Living):
    """An orchestrator that does not answer."""

    def running(self) -> Any:
        raise ApplyError("Kubernetes did not answer.")


# ---------------------------------------------------------------- the request


def test_defaults_depend_on_the_mode_and_on_what_starts_consumers() -> None:
    alone, in_group = request(), request(scaling=ConsumerScaling(mode=ConsumeMode.GROUP))
    pods = ConsumerScaling(backend=BackendName.KUBERNETES)
    keda = ConsumerScaling(mode=ConsumeMode.GROUP, keda="127.0.0.1:1")

    assert (alone.aim().cooldown_s, in_group.aim().cooldown_s) == (0.0, 10.0)
    assert request(cooldown_s=3.0).aim().cooldown_s == 3.0
    assert (alone.rules().dead_after_s, alone.rules().start_timeout_s) == (30.0, 60.0)
    assert request(scaling=pods).rules().start_timeout_s == 300.0
    assert request(scaling=keda).rules().start_timeout_s == 300.0
    assert request(scaling=pods).rules().removes_highest_only
    assert not request(scaling=keda).rules().removes_highest_only
    assert not alone.rules().removes_highest_only
    assert request(start_timeout_s=20.0, dead_after_s=12.0).rules().dead_after_s == 12.0


def test_loads_are_counted_in_records_where_there_is_a_latency_to_hold() -> None:
    assert request().aim().unit is Unit.BYTES_S
    assert request(sla_s=5.0).aim().unit is Unit.RECORDS_S
    assert request(sla_s=5.0, unit=Unit.BYTES_S).aim().unit is Unit.BYTES_S


def test_only_planners_that_search_have_a_time_limit() -> None:
    mine = planner_of(Layer.CONSUMERS, "trim").with_options(time_limit_s=3.0)

    assert request().aim().planner.changed_options == {"time_limit_s": 10.0}
    assert request(planner="exact").aim().planner.changed_options == {"time_limit_s": 10.0}
    assert request(planner=mine).aim().planner == mine
    assert request(planner="mwf").aim().planner == planner_of(Layer.CONSUMERS, "mwf")


def test_a_decision_holds_until_the_next_one_is_due() -> None:
    assert request().decisions_hold_s == 30.0
    assert request(max_quiet_s=60.0).decisions_hold_s == 120.0


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"planner": "ll-ffd"}, "plans for a latency"),
        ({"execute": True}, "--consume is required"),
        ({"dead_after_s": 5.0}, "--dead-after must be at least 10s"),
        ({"dead_after_s": 30.0, "scaling": IN_GROUP}, "no effect in group mode"),
        ({"start_timeout_s": 5.0}, "--start-timeout must be at least 10s"),
        ({"scaling": ConsumerScaling(keda="127.0.0.1:1")}, "--keda needs --mode group"),
        ({"scaling": ConsumerScaling(workload="statefulset/x")}, "--workload has no effect"),
    ],
)
def test_a_request_that_contradicts_itself_cannot_be_made(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        request(**changes)


def test_an_unknown_planner_is_refused() -> None:
    with pytest.raises(UnknownPlanner):
        request(planner="astrologer")


# ---------------------------------------------------------------- the work


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Decides once and ends, instead of watching."""
    seen: list[Any] = []

    def decide_without_acting(
        config: Any, judge: Any, on_decision: Any, stop: threading.Event
    ) -> None:
        seen.append(config)
        on_decision(DECISION)
        assert stop.wait(10)

    monkeypatch.setattr(directed_controller, "decide_without_acting", decide_without_acting)
    return seen


def test_without_execute_it_decides_and_keeps_the_decisions(
    cluster: Cluster, tmp_path: Path, watched: list[Any]
) -> None:
    told = Told()
    decided: list[Decision] = []

    led = control_group(
        cluster,
        request(warehouse=tmp_path, sla_s=5.0, unit=Unit.BYTES_S),
        stop=threading.Event(),
        for_s=0.05,
        on_decision=decided.append,
        listener=told,
    )

    assert not led
    assert (watched[0].group, watched[0].topics) == ("new", ("orders",))
    assert decided == [DECISION]
    (row,) = pq.read_table(tmp_path / "decisions").to_pylist()
    assert row["reason"] == "all is well"
    assert told.starts == ["Only watching: nothing is changed without --execute"]
    assert len(told.notes) == 1
    assert told.notes[0].startswith("trim packs by bytes/s and does not plan for --sla")


@pytest.mark.usefixtures("watched")
def test_a_topic_that_is_not_there_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no topic nowhere"):
        control_group(
            cluster,
            request(topics=("orders", "nowhere"), warehouse=tmp_path),
            stop=threading.Event(),
        )


def test_a_group_with_subscribed_members_is_not_directed(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 subscribed member"):
        control_group(
            cluster,
            request(group="g", warehouse=tmp_path, execute=True, scaling=HANDLES),
            stop=threading.Event(),
        )


@pytest.mark.parametrize("led", [True, False])
@pytest.mark.parametrize(
    ("door", "name", "scaling"),
    [
        (directed_controller, "DirectedController", HANDLES),
        (subscribed_controller, "SubscribedController", IN_GROUP),
    ],
)
def test_consumers_are_stopped_only_by_the_controller_that_led(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    led: bool,
    door: Any,
    name: str,
    scaling: ConsumerScaling,
) -> None:
    backend, told = Living(), Told()
    backend.close = lambda: None  # type: ignore[attr-defined]

    class Controller:
        def __init__(self, config: Any, given: Any, *_: Any, on_decision: Any, **__: Any) -> None:
            assert given is backend
            on_decision(DECISION)

        def run(self, stop: threading.Event) -> bool:
            assert not stop.is_set()
            return led

    monkeypatch.setattr(door, name, Controller)
    monkeypatch.setattr(processes, "ProcessBackend", lambda *_, **__: backend)
    asked = request(
        home=tmp_path, warehouse=tmp_path, execute=True, stop_consumers=True, scaling=scaling
    )

    assert control_group(cluster, asked, stop=threading.Event(), listener=told) is led

    assert backend.removed == ([0, 2] if led else [])
    assert told.starts == ["Controlling group new"]
    going_on = ["Consumers 0, 2 keep running with the partitions they have."]
    assert told.notes == ([] if led else going_on)


# ---------------------------------------------------------------- its end


def test_an_orchestrator_that_does_not_answer_is_no_error_when_consumers_keep_running() -> None:
    told = Told()

    leave_consumers(Unreachable(), HANDLES, stop_consumers=False, listener=told)  # type: ignore[arg-type]

    assert told.notes[0].endswith("they could not be listed. Kubernetes did not answer.")


def test_it_is_an_error_when_the_consumers_were_to_be_stopped() -> None:
    with pytest.raises(ApplyError):
        leave_consumers(Unreachable(), HANDLES, stop_consumers=True)  # type: ignore[arg-type]


def test_consumers_that_keda_started_are_left_to_it() -> None:
    keda, told = ConsumerScaling(mode=ConsumeMode.GROUP, keda="127.0.0.1:1"), Told()

    leave_consumers(Unreachable(), keda, stop_consumers=False, listener=told)  # type: ignore[arg-type]

    assert told.notes == []
