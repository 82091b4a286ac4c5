"""The Kubernetes backend, with the real client against a fake API over HTTP (no cluster)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import ROOT
from tests.unit.apply.consumers.backends.kubernetes_fake import (
    NAMESPACE,
    FakeKubernetes,
    served,
    status_of,
)
from trimtab.apply.consumers.backends import kubernetes as backend_module
from trimtab.apply.consumers.backends.kubernetes import KubernetesBackend, KubernetesWorkload
from trimtab.errors import ApplyError, ConfigError
from trimtab.observe import clock as clock_module

Connect = Callable[..., KubernetesBackend]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connects a backend to a fake as a user does: through a kubeconfig."""
    monkeypatch.setattr(backend_module, "_LOOK_EVERY_S", 0.01)
    with ExitStack() as stack:

        def connected(fake: FakeKubernetes, *, patience_s: float = 20.0) -> KubernetesBackend:
            url = stack.enter_context(served(fake))
            backend = KubernetesBackend(
                KubernetesWorkload.named(f"{fake.kind.lower()}/orders"),
                kubeconfig=_kubeconfig(tmp_path, url),
                patience_s=patience_s,
            )
            stack.callback(backend.close)
            return backend

        yield connected


def _kubeconfig(folder: Path, url: str) -> Path:
    file = folder / "kubeconfig"
    context = {"cluster": "fake", "user": "tester", "namespace": NAMESPACE}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "tester", "user": {}}],
        "contexts": [{"name": "fake", "context": context}],
    }
    file.write_text(json.dumps(document))  # JSON is YAML
    return file


def test_the_ordinal_of_a_pod_is_the_index_of_its_consumer(connect):
    fake = FakeKubernetes()
    backend = connect(fake)

    backend.create({0, 2})

    assert list(backend.running()) == [0, 1, 2]
    assert fake.replicas == 3


def test_creating_what_lives_changes_nothing(connect):
    fake = FakeKubernetes()
    fake.scaled(4)
    version = fake.version
    backend = connect(fake)

    backend.create({0, 3})
    backend.create(())

    assert (fake.replicas, fake.version) == (4, version)


def test_a_restarted_container_is_another_process(connect):
    fake = FakeKubernetes()
    fake.scaled(2)
    backend = connect(fake)
    before = backend.running()

    fake.restarted("orders-1")

    after = backend.running()
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_container_that_waits_to_be_restarted_is_no_process(connect):
    fake = FakeKubernetes()
    fake.scaled(2)
    fake.restarted("orders-1", backs_off=True)

    assert list(connect(fake).running()) == [0]


def test_a_pod_that_has_not_begun_yet_counts_as_living(connect):
    fake = FakeKubernetes()
    fake.scaled(1)
    fake.pods["orders-0"]["status"] = {"phase": "Pending"}

    assert list(connect(fake).running()) == [0]


def test_pods_of_a_deployment_are_there_when_they_run(connect):
    fake = FakeKubernetes(kind="Deployment")
    fake.scaled(4)
    runs, pending, waits, ended = sorted(fake.pods)
    fake.pods[pending]["status"] = {"phase": "Pending"}
    fake.pods[waits]["status"] = {
        "phase": "Pending",
        "containerStatuses": [status_of({"waiting": {"reason": "ImagePullBackOff"}})],
    }
    fake.restarted(ended, backs_off=True)

    assert connect(fake).names() == {runs}


def test_why_a_pod_does_not_run_is_known_after_a_look(connect):
    fake = FakeKubernetes()
    fake.scaled(4)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    fake.pods["orders-1"]["status"] = {
        "phase": "Pending",
        "containerStatuses": [status_of({"waiting": waiting})],
    }
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    fake.pods["orders-2"]["status"] = {"phase": "Pending", "conditions": [unplaced]}
    fake.restarted("orders-3", backs_off=True)
    backend = connect(fake)

    assert list(backend.running()) == [0, 1, 2]
    assert backend.exit_reasons() == {
        1: "ImagePullBackOff: no such image",
        2: "Unschedulable",
        3: "CrashLoopBackOff, exit code 137",
    }


def test_pods_of_others_with_the_same_labels_are_not_ours(connect):
    fake = FakeKubernetes()
    fake.scaled(1)
    stranger = json.loads(json.dumps(fake.pods["orders-0"]))
    stranger["metadata"] |= {"name": "debug-9", "uid": "uid-x", "ownerReferences": []}
    fake.pods["debug-9"] = stranger

    assert list(connect(fake).running()) == [0]


def test_only_idle_consumers_above_every_busy_one_are_scaled_away(connect):
    #   0     1     2     3     4
    #  busy  idle  busy  idle  idle     → 1 stays as a spare
    fake = FakeKubernetes()
    fake.scaled(5)
    backend = connect(fake)

    backend.remove({1, 3, 4})

    assert list(backend.running()) == [0, 1, 2]


def test_a_pod_that_does_not_leave_is_told_and_still_counts(connect):
    fake = FakeKubernetes(stuck={"orders-1"})
    fake.scaled(2)
    backend = connect(fake, patience_s=0.2)

    with pytest.raises(ApplyError, match="statefulset/orders"):
        backend.remove({1})

    assert list(backend.running()) == [0, 1]


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_a_pod_may_take_its_whole_grace_period_to_end(connect, monkeypatch, kind):
    fake = FakeKubernetes(kind=kind)
    fake.scaled(2)
    last = sorted(fake.pods)[-1]
    for pod in fake.pods.values():
        pod["spec"]["terminationGracePeriodSeconds"] = 300
    fake.stuck = {last}
    backend = connect(fake, patience_s=120.0)
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(
        clock_module,
        "time",
        SimpleNamespace(
            monotonic=lambda: next(clock), sleep=lambda _: clock_ends(fake, last, next(clock))
        ),
    )

    backend.remove([1])

    assert len(fake.pods) == 1


def clock_ends(fake: FakeKubernetes, pod: str, now: int) -> None:
    """The pod's process ends after 300 s."""
    if now >= 300:
        fake.stuck.discard(pod)
        fake.pods.pop(pod, None)


def test_a_killed_consumer_is_gone_and_the_one_in_its_place_is_another(connect):
    fake = FakeKubernetes()
    fake.scaled(2)
    backend = connect(fake)
    before = backend.running()

    backend.kill(0)

    assert backend.running()[0] != before[0]
    assert backend.running()[1] == before[1]


def test_killing_is_never_forced_and_names_the_uid_it_means(connect):
    fake = FakeKubernetes()
    fake.scaled(1)
    uid = fake.pods["orders-0"]["metadata"]["uid"]

    connect(fake).kill(0)

    [options] = fake.deleted
    assert options["gracePeriodSeconds"] > 0
    assert options["preconditions"] == {"uid": uid}


def test_a_kill_that_cannot_be_confirmed_is_an_error(connect):
    fake = FakeKubernetes(stuck={"orders-0"})
    fake.scaled(1)
    backend = connect(fake, patience_s=0.2)

    with pytest.raises(ApplyError, match="orders-0") as unconfirmed:
        backend.kill(0)

    assert "node" in str(unconfirmed.value.hint)
    assert list(backend.running()) == [0]


def test_killing_what_is_not_there_is_done_at_once(connect):
    connect(FakeKubernetes()).kill(5)


@pytest.mark.parametrize("changed", ["gone", "replaced"])
def test_a_pod_that_goes_while_it_is_to_be_killed_counts_as_gone(connect, changed):
    fake = FakeKubernetes()
    fake.scaled(1)
    backend = connect(fake)
    [doomed] = backend._pods()
    fake.pods.clear()
    if changed == "replaced":
        fake.reconcile()

    backend._delete(doomed)

    assert fake.deleted == []


def test_a_conflicting_write_is_read_again_and_done(connect):
    fake = FakeKubernetes(rivals=3)

    connect(fake).create({1})

    assert fake.replicas == 2


def test_a_rival_that_never_rests_is_named_as_the_cause(connect):
    fake = FakeKubernetes(rivals=1000)

    with pytest.raises(ApplyError, match="changed by another client") as given_up:
        connect(fake).create({1})

    assert "KEDA" in str(given_up.value.hint)


def test_a_deployment_is_counted_not_numbered(connect):
    fake = FakeKubernetes(kind="Deployment")
    backend = connect(fake)

    backend.create({0, 1, 2})
    backend.remove({1})

    assert list(backend.running()) == [0, 1]
    assert len(backend.names() or ()) == 2
    with pytest.raises(ApplyError, match="no numbers"):
        backend.kill(0)


def test_a_deployment_has_as_many_pods_as_the_plan_has_consumers_whatever_their_numbers(connect):
    backend = connect(FakeKubernetes(kind="Deployment"))

    backend.create({0, 5})
    assert len(backend.names() or ()) == 2
    backend.create({0, 1, 5})
    backend.remove({5})

    assert len(backend.names() or ()) == 2


@pytest.mark.parametrize(
    ("status", "kind", "word"),
    [(403, ConfigError, "role"), (404, ConfigError, "deploy/"), (500, ApplyError, None)],
)
def test_a_refusal_says_what_to_do(connect, status, kind, word):
    backend = connect(FakeKubernetes(refuse=status))

    with pytest.raises(kind, match=f"{status}.*statefulset/orders") as refused:
        backend.running()

    assert word is None or word in str(refused.value.hint)
    for named in re.findall(r"deploy/\S+\.yaml", str(refused.value.hint)):
        assert (ROOT / named).is_file()


def test_an_api_that_does_not_answer_is_an_apply_error(tmp_path):
    with served(FakeKubernetes()) as url:
        pass
    workload = KubernetesWorkload.named("statefulset/orders")
    backend = KubernetesBackend(workload, kubeconfig=_kubeconfig(tmp_path, url))

    with pytest.raises(ApplyError, match="did not answer"):
        backend.running()

    backend.close()


def test_without_the_client_the_hint_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)

    with pytest.raises(ConfigError, match="not installed") as missing:
        KubernetesBackend(KubernetesWorkload.named("statefulset/orders"))

    assert "trimtab[kubernetes]" in str(missing.value.hint)


def test_a_kubeconfig_that_is_not_there_is_a_configuration_error(tmp_path):
    workload = KubernetesWorkload.named("statefulset/orders")

    with pytest.raises(ConfigError, match="could not be loaded"):
        KubernetesBackend(workload, kubeconfig=tmp_path / "none")


@pytest.mark.parametrize("text", ["orders", "pod/orders", "statefulset/"])
def test_a_workload_needs_a_kind_and_a_name(text):
    with pytest.raises(ConfigError, match="Invalid workload"):
        KubernetesWorkload.named(text)
