"""Consumers as pods of a StatefulSet or a Deployment, through the official client.

Why      Where Kubernetes runs the consumers, Kubernetes should count, place and restart them.
Promise  Only the replica count is written and only pods of the workload are deleted; a change by
         somebody else in between (409) is read again, never overwritten. A pod counts as gone when
         the API no longer knows its uid: force deletion, which forgets a pod that may still run,
         is never used.
Cost     Two requests per look.

A StatefulSet serves directed consumers: the ordinal in a pod's name is the consumer's index. It can
only be cut from the top, so an idle consumer below a busy one stays as a spare. A Deployment serves
group mode, where consumers have no names: indexes merely count its pods.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from trimtab.errors import ApplyError, ConfigError

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
    """What can run consumers."""

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
                f"{text!r} names no workload.",
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
    words: str

    @property
    def ordinal(self) -> int:
        """The number at the end of a StatefulSet's pod name."""
        return int(self.name.rpartition("-")[2])


class KubernetesBackend:
    """Scales one workload and knows its pods."""

    def __init__(
        self,
        workload: KubernetesWorkload,
        *,
        namespace: str | None = None,
        kubeconfig: Path | None = None,
        patience_s: float = 120.0,
    ) -> None:
        """Connects, and asks nothing yet.

        As KUBECONFIG says if it is set, else as the pod's service account, else as `~/.kube` says.
        """
        self._client, home = _connected(kubeconfig)
        from kubernetes.client import AppsV1Api, CoreV1Api

        self._apps, self._core = AppsV1Api(self._client), CoreV1Api(self._client)
        self._workload = workload
        self._namespace = namespace or home
        self._patience_s = patience_s
        self._words: Mapping[int, str] = {}

    def living(self) -> Mapping[int, str]:
        """Returns each pod whose process runs or is about to, with its uid and restart count."""
        known = self._pods()
        pods = [pod for pod in known if pod.has_process]
        if self._workload.kind is WorkloadKind.STATEFUL_SET:
            self._words = {pod.ordinal: pod.words for pod in known if pod.words}
        if self._workload.kind is WorkloadKind.DEPLOYMENT:
            numbered = dict(enumerate(sorted(pods, key=lambda pod: (pod.created, pod.name))))
        else:
            numbered = {pod.ordinal: pod for pod in sorted(pods, key=lambda pod: pod.ordinal)}
        return {index: f"{pod.uid} {pod.restarts}" for index, pod in numbered.items()}

    def last_words(self) -> Mapping[int, str]:
        """Returns what Kubernetes says of pods that do not run, as of the last look."""
        return self._words

    def names(self) -> Collection[str] | None:
        """Returns the names of a Deployment's pods that run; those of a StatefulSet have numbers.

        One that has no node or no image yet is not there: it may never come.
        """
        if self._workload.kind is WorkloadKind.STATEFUL_SET:
            return None
        return frozenset(pod.name for pod in self._pods() if pod.runs)

    def create(self, consumers: Collection[int]) -> None:
        """Raises the replica count so far that all of these exist; never lowers it.

        Of a Deployment, which does not number its pods, there will be as many as these.
        """
        numbered = self._workload.kind is WorkloadKind.STATEFUL_SET
        if consumers:
            least = max(consumers) + 1 if numbered else len(set(consumers))
            self._scale(lambda replicas: max(replicas, least))

    def remove(self, idle: Collection[int]) -> None:
        """Lowers the replica count and waits until those pods are gone.

        Of a StatefulSet, only idle consumers above every busy one can go. Of a Deployment, as many
        pods as named go: which ones, Kubernetes chooses.
        """
        if self._workload.kind is WorkloadKind.DEPLOYMENT:
            left = self._scale(lambda replicas: max(0, replicas - len(set(idle))))
            grace_s = max((pod.grace_s for pod in self._pods()), default=0.0)
            self._wait_until(lambda: len(self.living()) <= left, f"{left} pods are left", grace_s)
            return
        left = self._scale(lambda replicas: _cut_from_the_top(replicas, idle))
        going = [pod for pod in self._pods() if pod.ordinal >= left and pod.ordinal in idle]
        leaving = {pod.uid for pod in going}
        self._wait_until(
            lambda: not any(pod.uid in leaving for pod in self._pods()),
            f"pods {left} and above are gone",
            max((pod.grace_s for pod in going), default=0.0),
        )
        if kept := sorted(index for index in idle if index < left):
            log.info("idle_consumers_kept", workload=str(self._workload), consumers=kept)

    def kill(self, consumer: int) -> None:
        """Deletes a pod and waits until its uid is gone; a StatefulSet then makes a new one."""
        if self._workload.kind is WorkloadKind.DEPLOYMENT:
            raise ApplyError(
                f"Pods of {self._workload} have no numbers: consumer {consumer} could be any.",
                hint="In group mode the brokers fence members; nothing must be killed.",
            )
        doomed = next((pod for pod in self._pods() if pod.ordinal == consumer), None)
        if doomed is None:
            return
        self._delete(doomed)
        self._wait_until(
            lambda: not any(pod.uid == doomed.uid for pod in self._pods()),
            f"pod {doomed.name} ({doomed.uid}) is gone",
        )
        log.info("consumer_killed", consumer=consumer, pod=doomed.name, uid=doomed.uid)

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
                # Gone already, or another pod has its name by now.
                if error.status not in (404, 409):
                    raise

    def _scale(self, wanted: Callable[[int], int]) -> int:
        """Changes the replica count and returns it; starts over when somebody else was faster."""
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
            f"The replica count of {self._workload} changed under us {_TRIES} times in a row.",
            hint="Let one alone scale it: no HorizontalPodAutoscaler or KEDA beside the "
            "kubernetes backend.",
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
        """Returns the pods that the API knows of this workload, those that are leaving included."""
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
        """Looks until it is so; pods may take their whole grace period to end."""
        patience_s = self._patience_s + grace_s
        deadline = time.monotonic() + patience_s
        while not is_so():
            if time.monotonic() > deadline:
                raise ApplyError(
                    f"Waited {patience_s:g} s for {self._workload} until {what}, in vain.",
                    hint="If its node does not answer, Kubernetes cannot know whether the consumer "
                    "still runs. Bring the node back, or fence it and delete the Node object.",
                )
            time.sleep(_LOOK_EVERY_S)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Translates the client's exceptions."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except ApiException as error:
            what = f"Kubernetes answered {error.status} ({error.reason}) when {doing}"
            if error.status in (401, 403):
                raise ConfigError(
                    f"{what} in namespace {self._namespace}.",
                    hint="It needs the role in deploy/kubernetes/directed/execute/consumers.yaml.",
                ) from error
            if error.status == 404:
                raise ConfigError(
                    f"{what}: it is not in namespace {self._namespace}.",
                    hint="Create it first (deploy/), or name the right one.",
                ) from error
            raise ApplyError(f"{what}.") from error
        except HTTPError as error:
            raise ApplyError(
                f"Kubernetes did not answer when {doing}: {error}.",
                hint="Consumers go on with what they have. Check the API server's address.",
            ) from error


def _cut_from_the_top(replicas: int, idle: Collection[int]) -> int:
    """Returns how many replicas are left when idle ones go, highest first, up to a busy one.

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
        words=_words(item, status),
    )


def _words(item: Any, status: Any) -> str:
    """Why a pod does not run: its container's state, else why it has no node; empty if it runs."""
    if status is None:
        conditions = item.status.conditions or ()
        placed = next((c for c in conditions if c.type == "PodScheduled"), None)
        return "" if placed is None or placed.status == "True" else _said(placed)
    if status.state is None or status.state.running:
        return ""
    now = status.state.waiting or status.state.terminated
    before = status.last_state.terminated if status.last_state else None
    ended = before if status.state.waiting else status.state.terminated
    code = f"exit code {ended.exit_code}" if ended else ""
    return ", ".join(filter(None, (_said(now) if now else "", code)))


def _said(state: Any) -> str:
    return ": ".join(filter(None, (state.reason, state.message)))


def _has_ended(status: Any) -> bool:
    """Has the container ended, without another one in its place yet?"""
    if status.state is None or status.state.running:
        return False
    backs_off = status.state.waiting and status.last_state and status.last_state.terminated
    return bool(status.state.terminated or backs_off)


def _connected(kubeconfig: Path | None) -> tuple[ApiClient, str]:
    """Returns a client and the namespace that it is at home in."""
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
            f"No way to Kubernetes: {error}.",
            hint="Run in a pod with a service account, or name a kubeconfig.",
        ) from error
    return client.ApiClient(configuration), home
