"""What starts and stops consumers: what it is told, and what is refused."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from trimtab.apply.consumers.backends import kubernetes, processes
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.control import Action, Decision
from trimtab.services.backends import BackendName, ConsumerScaling, ScaledGroup, open_backend
from trimtab.services.consume import ConsumeMode

IN_GROUP = ConsumerScaling(mode=ConsumeMode.GROUP, consume="--handler shop:book")
PODS = ConsumerScaling(backend=BackendName.KUBERNETES, workload="statefulset/pay")


@pytest.mark.parametrize(
    ("scaling", "complaint"),
    [
        (ConsumerScaling(), "--consume is required"),
        (ConsumerScaling(backend=BackendName.KUBERNETES), "--workload is required"),
        (
            ConsumerScaling(backend=BackendName.KUBERNETES, workload="deployment/pay"),
            "a stable index",
        ),
        (
            ConsumerScaling(
                backend=BackendName.KUBERNETES, workload="statefulset/pay", consume="--lake x"
            ),
            "does not start the consumers",
        ),
    ],
)
def test_what_is_missing_or_contradicts_itself_is_refused(
    scaling: ConsumerScaling, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        scaling.check(execute=True)


def test_only_acting_needs_to_know_what_consumers_do() -> None:
    ConsumerScaling().check(execute=False)
    ConsumerScaling(backend=BackendName.KUBERNETES).check(execute=False)
    IN_GROUP.check(execute=True)
    PODS.check(execute=True)


def test_a_process_is_told_its_group_its_place_and_its_options(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    class Backend:
        def __init__(self, command: Any, folder: Path, **_: Any) -> None:
            commands.append(command(3))
            assert folder == tmp_path

        def close(self) -> None:
            commands.append(["closed"])

    monkeypatch.setattr(processes, "ProcessBackend", Backend)
    group = ScaledGroup(
        cluster=cluster,
        group="pay",
        topics=("orders", "bills"),
        folder=tmp_path,
        command_config=Path("/etc/client.properties"),
    )

    with open_backend(group, IN_GROUP, on_decision=lambda _: None, fresh_s=1.0):
        assert len(commands) == 1

    words, closed = commands
    assert words[:3] == [sys.executable, "-m", "trimtab.cli.main"]
    assert shlex.join(words[3:-6]) == (
        "consume --group pay --topic orders --topic bills --index 3 --mode group "
        "--controller-url http://127.0.0.1:8765 --handler shop:book"
    )
    assert words[-6] == "--in-hand"
    assert words[-4:] == [
        *("--bootstrap-server", "in-memory:9092"),
        *("--command-config", "/etc/client.properties"),
    ]
    assert closed == ["closed"]


def test_pods_are_those_of_the_workload(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    class Backend:
        def __init__(self, workload: Any) -> None:
            seen.append(workload)

        def close(self) -> None:
            seen.append("closed")

    monkeypatch.setattr(kubernetes, "KubernetesBackend", Backend)
    group = ScaledGroup(cluster=cluster, group="pay", topics=("orders",), folder=tmp_path)

    with open_backend(group, PODS, on_decision=lambda _: None, fresh_s=1.0):
        (workload,) = seen

    assert workload.name == "pay"
    assert seen[1:] == ["closed"]


def test_keda_is_told_decisions_and_its_members_are_those_of_the_group(
    cluster: Cluster, tmp_path: Path
) -> None:
    keda = ConsumerScaling(mode=ConsumeMode.GROUP, keda="127.0.0.1:1")
    group = ScaledGroup(cluster=cluster, group="g", topics=("orders",), folder=tmp_path)
    decision = Decision(ts=0, group="g", action=Action.NONE, before=1, after=1, reason="")
    told: list[Decision] = []

    with open_backend(group, keda, on_decision=told.append, fresh_s=1.0) as opened:
        opened.on_decision(decision)
        living = opened.backend.running()

    assert told == [decision]
    assert len(living) == 1
