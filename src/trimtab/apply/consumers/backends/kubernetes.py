"""Consumers as pods of a StatefulSet or a Deployment, through the official client.

Promise  Only the replica count is written and only pods of the workload are deleted; a concurrent
         change (409) is read again, never overwritten. A pod has exited when the API no longer
         knows its uid: force deletion, which forgets a pod that may still run, is never used.
Cost     Two requests per observation.

A StatefulSet runs directed consumers: the ordinal in a pod's name is the consumer's index. Only its
highest pods can be removed, so the policy keeps the lowest consumers busy. A Deployment
runs consumers in group mode, which have no fixed index: its pods are simply numbered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from trimtab.errors import ApplyError, ConfigError
from trimtab.observe.clock import TimedOut, wait_until

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_REQUEST_S = 10.0
_TRIES = 10
_LOOK_EVERY_S = 0.5
# Zero would make the API forget the pod at once, whether or not its process has ended.
_KILL_GRACE_S = 1
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

log = structlog.get_logger()


class WorkloadKind(StrEnum):
    """The kinds of workload that can run consumers."""

    STATEFUL_SET = "statefulset"
    DEPLOYMENT = "deployment"


@dataclass(frozen=True, slots=True)
class KubernetesWorkload:
    """A workload by kind and name, as `kubectl` writes it: `statefulset/orders`."""

    kind: WorkloadKind
    name: str

    @classmethod
    def named(cls, text: str) -> KubernetesWorkload:
        """Reads `statefulset/NAME` or `deployment/NAME`."""
        kind, _, name = text.partition("/")
        if kind not in set(WorkloadKind) or not name:
            raise ConfigError(
                f"Invalid workload: {text!r}.",
                hint="Write statefulset/NAME for directed mode, deployment/NAME for group mode.",
            )
        return cls(WorkloadKind(kind), name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pod:
    name: str
    uid: str
    created: str
    restarts: int
    has_process: bool
    runs: bool
    grace_s: float
    reason: str

    @property
    def ordinal(self) -> int:
        """The number at the end of a StatefulSet's pod name."""
        return int(self.name.rpartition("-")[2])


class KubernetesBackend:
    """Scales one workload and lists its pods."""

    def __init__(
        self,
        workload: KubernetesWorkload,
        *,
        namespace: str | None = None,
        kubeconfig: Path | None = None,
        patience_s: float = 120.0,
    ) -> None:
        """Loads KUBECONFIG if set, else the pod's service account, else `~/.kube`; asks nothing."""
        self._client, home = _connected(kubeconfig)
        from kubernetes.client import AppsV1Api, CoreV1Api

        self._apps, self._core = AppsV1Api(self._client), CoreV1Api(self._client)
        self._workload = workload
        self._namespace = namespace or home
        self._patience_s = patience_s
        self._reasons: Mapping[int, str] = {}

    def running(self) -> Mapping[int, str]:
        """Returns each pod whose process runs or is about to, with its uid and restart count."""
        known = self._pods()
        pods = [pod for pod in known if pod.has_process]
        if self._workload.kind is WorkloadKind.STATEFUL_SET:
            self._reasons = {pod.ordinal: pod.reason for pod in known if pod.reason}
        if self._workload.kind is WorkloadKind.DEPLOYMENT:
            numbered = dict(enumerate(sorted(pods, key=lambda pod: (pod.created, pod.name))))
        else:
            numbered = {pod.ordinal: pod for pod in sorted(pods, key=lambda pod: pod.ordinal)}
        return {index: f"{pod.uid} {pod.restarts}" for index, pod in numbered.items()}

    def exit_reasons(self) -> Mapping[int, str]:
        """Returns why pods do not run, as Kubernetes reported it at the last call of `running`."""
        return self._reasons

    def names(self) -> Collection[str] | None:
        """Returns the names of a Deployment's running pods; None for a StatefulSet.

        A pod without a node or an image is not included: it may never run.
        """
        if self._workload.kind is WorkloadKind.STATEFUL_SET:
            return None
        return frozenset(pod.name for pod in self._pods() if pod.runs)

    def create(self, consumers: Collection[int]) -> None:
        """Raises the replica count until all of these exist; never lowers it.

        A Deployment, which does not number its pods, gets as many pods as these.
        """
        numbered = self._workload.kind is WorkloadKind.STATEFUL_SET
        if consumers:
            least = max(consumers) + 1 if numbered else len(set(consumers))
            self._scale(lambda replicas: max(replicas, least))

    def remove(self, idle: Collection[int]) -> None:
        """Lowers the replica count and waits until those pods have exited.

        A StatefulSet can only remove idle consumers with higher ordinals than all busy ones. A
        Deployment removes as many pods as named; Kubernetes chooses which.
        """
        if self._workload.kind is WorkloadKind.DEPLOYMENT:
            left = self._scale(lambda replicas: max(0, replicas - len(set(idle))))
            grace_s = max((pod.grace_s for pod in self._pods()), default=0.0)
            self._wait_until(lambda: len(self.running()) <= left, f"{left} pods remain", grace_s)
            return
        left = self._scale(lambda replicas: _cut_from_the_top(replicas, idle))
        going = [pod for pod in self._pods() if pod.ordinal >= left and pod.ordinal in idle]
        leaving = {pod.uid for pod in going}
        self._wait_until(
            lambda: not any(pod.uid in leaving for pod in self._pods()),
            f"pods {left} and above have exited",
            max((pod.grace_s for pod in going), default=0.0),
        )
        if kept := sorted(index for index in idle if index < left):
            log.info("idle_consumers_kept", workload=str(self._workload), consumers=kept)

    def kill(self, consumer: int) -> None:
        """Deletes a pod and waits until its uid is gone; a StatefulSet then makes a new one."""
        if self._workload.kind is WorkloadKind.DEPLOYMENT:
            raise ApplyError(
                f"Consumer {consumer} cannot be killed: pods of {self._workload} have no numbers.",
                hint="In group mode brokers fence members, so no consumer has to be killed.",
            )
        target = next((pod for pod in self._pods() if pod.ordinal == consumer), None)
        if target is None:
            return
        self._delete(target)
        self._wait_until(
            lambda: not any(pod.uid == target.uid for pod in self._pods()),
            f"pod {target.name} ({target.uid}) has exited",
        )
        log.info("consumer_killed", consumer=consumer, pod=target.name, uid=target.uid)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _delete(self, pod: _Pod) -> None:
        from kubernetes.client import V1DeleteOptions, V1Preconditions
        from kubernetes.client.exceptions import ApiException

        with self._errors(f"deleting pod {pod.name}"):
            try:
                self._core.delete_namespaced_pod(
                    pod.name,
                    self._namespace,
                    body=V1DeleteOptions(
                        grace_period_seconds=_KILL_GRACE_S,
                        preconditions=V1Preconditions(uid=pod.uid),
                    ),
                    _request_timeout=_REQUEST_S,
                )
            except ApiException as error:
                # Deleted already, or another pod has its name now.
                if error.status not in (404, 409):
                    raise

    def _scale(self, wanted: Callable[[int], int]) -> int:
        """Changes the replica count and returns it; retries after a concurrent change."""
        from kubernetes.client.exceptions import ApiException

        for _ in range(_TRIES):
            scale = self._read_scale()
            before = int(scale.spec.replicas or 0)
            after = wanted(before)
            if after == before:
                return after
            scale.spec.replicas = after
            with self._errors(f"scaling {self._workload}"):
                try:
                    self._replace_scale(scale)
                except ApiException as error:
                    if error.status != 409:
                        raise
                    continue
            log.info("workload_scaled", workload=str(self._workload), before=before, after=after)
            return after
        raise ApplyError(
            f"The replica count of {self._workload} was changed by another client {_TRIES} times "
            "in a row.",
            hint="Only one component may set replicas: use no HorizontalPodAutoscaler or KEDA "
            "together with the kubernetes backend.",
        )

    def _read_scale(self) -> Any:
        with self._errors(f"reading the scale of {self._workload}"):
            read = {
                WorkloadKind.STATEFUL_SET: self._apps.read_namespaced_stateful_set_scale,
                WorkloadKind.DEPLOYMENT: self._apps.read_namespaced_deployment_scale,
            }[self._workload.kind]
            return read(self._workload.name, self._namespace, _request_timeout=_REQUEST_S)

    def _replace_scale(self, scale: Any) -> None:
        replace = {
            WorkloadKind.STATEFUL_SET: self._apps.replace_namespaced_stateful_set_scale,
            WorkloadKind.DEPLOYMENT: self._apps.replace_namespaced_deployment_scale,
        }[self._workload.kind]
        replace(self._workload.name, self._namespace, scale, _request_timeout=_REQUEST_S)

    def _pods(self) -> list[_Pod]:
        """Returns all pods of this workload that the API knows, terminating ones included."""
        scale = self._read_scale()
        with self._errors(f"listing the pods of {self._workload}"):
            found = self._core.list_namespaced_pod(
                self._namespace,
                label_selector=scale.status.selector,
                _request_timeout=_REQUEST_S,
            )
        return [
            _pod(item)
            for item in found.items
            if self._workload.kind is WorkloadKind.DEPLOYMENT or _is_owned(item, scale.metadata.uid)
        ]

    def _wait_until(self, is_so: Callable[[], bool], what: str, grace_s: float = 0.0) -> None:
        """Waits for a condition; pods may take their whole grace period to exit."""
        patience_s, goal = self._patience_s + grace_s, f"{self._workload} until {what}"
        try:
            wait_until(is_so, within_s=patience_s, every_s=_LOOK_EVERY_S, what=goal)
        except TimedOut as error:
            raise ApplyError(
                str(error),
                hint="If its node does not answer, Kubernetes cannot know whether the consumer "
                "still runs. Bring the node back, or fence it and delete the Node object.",
            ) from None

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Translates the client's exceptions."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except ApiException as error:
            what = f"Kubernetes answered {error.status} ({error.reason}) while {doing}"
            if error.status in (401, 403):
                raise ConfigError(
                    f"{what} in namespace {self._namespace}.",
                    hint="The account needs the role in "
                    "deploy/kubernetes/directed/execute/consumers.yaml.",
                ) from error
            if error.status == 404:
                raise ConfigError(
                    f"{what}: not found in namespace {self._namespace}.",
                    hint="Create it first (see deploy/), or check its name and namespace.",
                ) from error
            raise ApplyError(f"{what}.") from error
        except HTTPError as error:
            raise ApplyError(
                f"Kubernetes did not answer while {doing}: {error}.",
                hint="Consumers keep their partitions. Check the API server's address.",
            ) from error


def _cut_from_the_top(replicas: int, idle: Collection[int]) -> int:
    """Returns how many replicas remain when idle ones are removed, highest first, up to a busy one.

    >>> _cut_from_the_top(5, {1, 3, 4})
    3
    """
    while replicas > 0 and replicas - 1 in idle:
        replicas -= 1
    return replicas


def _is_owned(pod: Any, uid: str) -> bool:
    return any(owner.uid == uid for owner in pod.metadata.owner_references or ())


def _pod(item: Any) -> _Pod:
    """Reads a pod; the consumer is its first container."""
    name = item.spec.containers[0].name
    statuses = item.status.container_statuses or ()
    status = next((s for s in statuses if s.name == name), None)
    ended = item.status.phase in ("Succeeded", "Failed") or bool(status and _has_ended(status))
    return _Pod(
        name=item.metadata.name,
        uid=item.metadata.uid,
        created=str(item.metadata.creation_timestamp),
        restarts=status.restart_count if status else 0,
        has_process=not ended,
        runs=not ended and item.status.phase == "Running",
        grace_s=float(item.spec.termination_grace_period_seconds or 0),
        reason=_reason(item, status),
    )


def _reason(item: Any, status: Any) -> str:
    """Why a pod does not run: its container's state, else why it has no node; empty if it runs."""
    if status is None:
        conditions = item.status.conditions or ()
        placed = next((c for c in conditions if c.type == "PodScheduled"), None)
        return "" if placed is None or placed.status == "True" else _described(placed)
    if status.state is None or status.state.running:
        return ""
    now = status.state.waiting or status.state.terminated
    before = status.last_state.terminated if status.last_state else None
    ended = before if status.state.waiting else status.state.terminated
    code = f"exit code {ended.exit_code}" if ended else ""
    return ", ".join(filter(None, (_described(now) if now else "", code)))


def _described(state: Any) -> str:
    return ": ".join(filter(None, (state.reason, state.message)))


def _has_ended(status: Any) -> bool:
    """Whether the container has exited and no other has replaced it yet."""
    if status.state is None or status.state.running:
        return False
    backs_off = status.state.waiting and status.last_state and status.last_state.terminated
    return bool(status.state.terminated or backs_off)


def _connected(kubeconfig: Path | None) -> tuple[ApiClient, str]:
    """Returns a client and its default namespace."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise ConfigError(
            "The Kubernetes client is not installed.",
            hint="Install it with: pip install 'trimtab[kubernetes]'",
        ) from error
    configuration = client.Configuration()
    try:
        if kubeconfig is None and not os.environ.get("KUBECONFIG") and _SERVICE_ACCOUNT.exists():
            config.load_incluster_config(client_configuration=configuration)
            home = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        else:
            file = str(kubeconfig) if kubeconfig else None
            config.load_kube_config(config_file=file, client_configuration=configuration)
            context = config.list_kube_config_contexts(config_file=file)[1]["context"]
            home = context.get("namespace") or "default"
    except config.ConfigException as error:
        raise ConfigError(
            f"The configuration for Kubernetes could not be loaded: {error}.",
            hint="Run in a pod with a service account, or set KUBECONFIG.",
        ) from error
    return client.ApiClient(configuration), home
