"""A namespace whose pods are processes: what our manifests say is started as it stands there.

Why      Manifests that only agree with one another may still not work. Here their command lines and
         environments are run against real brokers, without Kubernetes.
Promise  A pod's arguments and environment are those of its manifest: variables, labels, ConfigMaps
         and Secrets are filled in as Kubernetes does it, and paths in an emptyDir are those of a
         folder that lives as long as the pod. Every pod has an address of its own
         (127.x.y.z), which it listens on where its arguments say 0.0.0.0; the name of a headless
         Service has the addresses of its pods. A process that ends is started again, a pod that is
         deleted is terminated, killed after its grace period, and listed until it is gone.
         The API server answers what `trimtab run --backend kubernetes` asks. KEDA asks the scaler
         and writes the replica count. Both write it at the resource version that they read.
Differs  No scheduler, no image, no probes, no RBAC; Secrets that are optional are not mounted.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc

from tests.docs.helm_subset import Documents
from tests.unit.apply.consumers.backends.kubernetes_fake import failure, served
from trimtab.apply.consumers.keda import externalscaler_pb2 as messages
from trimtab.apply.consumers.keda.externalscaler_pb2_grpc import ExternalScalerStub
from trimtab.settings import load_settings

_LOOK_S = 0.1
_BACK_OFF_S, _LONG_BACK_OFF_S = 1.0, 300.0  # the longest that Kubernetes has
_POLL_S = 1.0  # KEDA's own default is 30 s, our manifest says 5 s

_NAMES = '''
"""Names of Services, as a cluster's DNS would answer them."""
import json, os, socket
_real = socket.getaddrinfo
def _resolved(host, port, *args, **more):
    with open(os.environ["FAKE_DNS"]) as file:
        known = json.load(file)
    if host not in known:
        return _real(host, port, *args, **more)
    found = [info for address in known[host] for info in _real(address, port, *args, **more)]
    if not found:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return found
socket.getaddrinfo = _resolved
'''


@dataclass(eq=False)
class Pod:
    """One pod, and the process of its only container."""

    name: str
    uid: str
    number: int
    address: str
    workload: Workload
    argv: list[str]
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    again_at: float = 0.0
    doomed_at: float | None = None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def kill(self) -> None:
        """Ends the process as a crash would; its next start is put off, as after many crashes."""
        self.again_at = time.monotonic() + _LONG_BACK_OFF_S
        if self.process is not None:
            self.process.kill()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = dict(self.workload.template["metadata"]["labels"])
        if self.workload.kind == "StatefulSet":
            labels["apps.kubernetes.io/pod-index"] = str(self.number)
        return labels

    def as_json(self) -> dict[str, Any]:
        state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if not self.runs:
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
        status = {"name": self.workload.container["name"], "image": "x", "imageID": "x"}
        status |= {"ready": self.runs, "restartCount": self.restarts, "state": state}
        if self.restarts or not self.runs:
            status["lastState"] = {"terminated": {"exitCode": 137}}
        owner = {"apiVersion": "apps/v1", "kind": self.workload.kind}
        meta: dict[str, Any] = {"name": self.name, "uid": self.uid, "labels": self.labels()}
        meta["ownerReferences"] = [owner | {"name": "x", "uid": self.workload.uid}]
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        return {
            "metadata": meta,
            "spec": {"containers": [{"name": self.workload.container["name"], "image": "x"}]},
            "status": {"phase": "Running", "containerStatuses": [status]},
        }


@dataclass(eq=False)
class Workload:
    """A Deployment or a StatefulSet, and how many pods it should have."""

    document: Mapping[str, Any]
    uid: str
    replicas: int
    version: int = 1
    counts: list[int] = field(default_factory=list)
    """Every replica count that was asked for."""

    @property
    def kind(self) -> str:
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def template(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["spec"]["template"]
        return found

    @property
    def container(self) -> Mapping[str, Any]:
        [only] = self.template["spec"]["containers"]
        found: Mapping[str, Any] = only
        return found

    @property
    def grace_s(self) -> float:
        return float(self.template["spec"].get("terminationGracePeriodSeconds", 30))

    @property
    def selector(self) -> dict[str, str]:
        return dict(self.document["spec"]["selector"]["matchLabels"])

    def scale(self, replicas: int) -> None:
        self.version += 1
        self.replicas = replicas
        self.counts.append(replicas)


class Namespace:
    """Pods, Services and the API of one namespace."""

    def __init__(self, name: str, folder: Path, *, code: Path) -> None:
        self.name, self.folder, self.code = name, folder, code
        self.pods: dict[str, Pod] = {}
        self.workloads: dict[str, Workload] = {}
        self.objects: Documents = {}
        self._net = f"127.{random.randint(16, 250)}.{random.randint(0, 250)}"
        self._numbers = count(2)
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        (folder / "site").mkdir(parents=True)
        (folder / "site" / "sitecustomize.py").write_text(_NAMES)

    # ------------------------------------------------------------ what users do

    def apply(self, objects: Documents) -> None:
        """Makes these objects, as `kubectl apply` does."""
        with self._lock:
            self.objects |= objects
            for (kind, name), document in objects.items():
                if kind in ("Deployment", "StatefulSet") and name not in self.workloads:
                    replicas = int(document["spec"].get("replicas", 1))
                    self.workloads[name] = Workload(document, f"uid-{name}", replicas)
        for (kind, _), document in objects.items():
            if kind == "ScaledObject":
                self._begin(self._keda, document["spec"])

    def of(self, workload: str) -> list[Pod]:
        """The pods of a workload whose processes run."""
        with self._lock:
            return [p for p in self.pods.values() if p.workload.name == workload and p.runs]

    def counts(self, *workloads: str) -> list[int]:
        """How many processes each of these workloads has."""
        return [len(self.of(workload)) for workload in workloads]

    def story(self) -> str:
        """What a failed test has to tell."""
        counts = {n: (w.replicas, w.counts) for n, w in self.workloads.items()}
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(
            [str(counts), *(f"{p.name}: {p.read_text(errors='replace')[-1500:]}" for p in logs)]
        )

    # ------------------------------------------------------------ what Kubernetes does

    @contextmanager
    def running(self) -> Iterator[Namespace]:
        """Works while the block runs; all processes end with it."""
        with served(self) as url:
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "fake", "cluster": {"server": url}}],
                "users": [{"name": "fake", "user": {}}],
                "contexts": [
                    {
                        "name": "fake",
                        "context": {"cluster": "fake", "user": "fake", "namespace": self.name},
                    }
                ],
                "current-context": "fake",
            }
            (self.folder / "kubeconfig").write_text(json.dumps(config))
            self._begin(self._reconcile)
            try:
                yield self
            finally:
                self._over.set()
                for thread in self._threads:
                    thread.join(30)
                for pod in self.pods.values():
                    if pod.process is not None:
                        pod.process.kill()
                        pod.process.wait()

    def _begin(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _reconcile(self) -> None:
        while not self._over.wait(_LOOK_S):
            with self._lock:
                for workload in self.workloads.values():
                    self._fit(workload)
                for pod in list(self.pods.values()):
                    self._tend(pod)
                dns = json.dumps(self._addresses())
                (self.folder / "dns.new").write_text(dns)
                (self.folder / "dns.new").replace(self.folder / "dns")

    def _fit(self, workload: Workload) -> None:
        """Brings a workload to its count: by ordinal, or the newest go first."""
        mine = [p for p in self.pods.values() if p.workload is workload]
        staying = [p for p in mine if p.doomed_at is None]
        if workload.kind == "StatefulSet":
            taken = {p.number for p in mine}
            new = [n for n in range(workload.replicas) if n not in taken]
            surplus = [p for p in staying if p.number >= workload.replicas]
        else:
            new = list(range(workload.replicas - len(staying)))
            surplus = staying[max(workload.replicas, 0) :]
        for number in new:
            pod = self._pod(workload, number)
            self.pods[pod.name] = pod
        for pod in surplus:
            self._doom(pod)

    def _doom(self, pod: Pod, grace_s: float | None = None) -> None:
        if pod.doomed_at is None:
            pod.doomed_at = time.monotonic() + (
                pod.workload.grace_s if grace_s is None else grace_s
            )
            if pod.process is not None and pod.runs:
                pod.process.terminate()

    def _tend(self, pod: Pod) -> None:
        now = time.monotonic()
        if pod.doomed_at is not None:
            if not pod.runs:
                del self.pods[pod.name]
            elif now > pod.doomed_at and pod.process is not None:
                pod.process.kill()
        elif pod.process is None:
            pod.start()
        elif not pod.runs:
            if not pod.again_at:
                pod.again_at = now + _BACK_OFF_S
            elif now > pod.again_at:
                pod.again_at = 0.0
                pod.restarts += 1
                pod.start()

    def _pod(self, workload: Workload, number: int) -> Pod:
        unique = next(self._numbers)
        tail = str(number) if workload.kind == "StatefulSet" else f"7d9f-{unique:05x}"
        pod = Pod(
            name=f"{workload.name}-{tail}",
            uid=f"uid-{unique}",
            number=number,
            address=f"{self._net}.{unique}",
            workload=workload,
            argv=[],
            env={},
            log=self.folder / f"{workload.name}-{tail}-{unique}.log",
        )
        pod.env = self._environment(pod)

        def filled(arg: str) -> str:
            arg = re.sub(r"\$\((\w+)\)", lambda found: pod.env[found[1]], arg)
            return arg.replace("0.0.0.0", pod.address)

        args = [filled(str(arg)) for arg in workload.container["args"]]
        empty = {v["name"] for v in workload.template["spec"].get("volumes", ()) if "emptyDir" in v}
        for mount in workload.container.get("volumeMounts", ()):
            if mount["name"] in empty:
                folder = self.folder / "volumes" / f"{pod.name}-{unique}" / mount["name"]
                folder.mkdir(parents=True)
                args = [arg.replace(mount["mountPath"], str(folder)) for arg in args]
        pod.argv = [sys.executable, "-m", "trimtab.cli.main", *args]
        return pod

    def _environment(self, pod: Pod) -> dict[str, str]:
        """That of the machine, of the image, and of the manifest."""
        home = self.folder / "home" / pod.name
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TRIMTAB_", "KUBE"))}
        env |= {"TRIMTAB_HOME": str(home), "TRIMTAB_CACHE": str(load_settings().cache)}
        env |= {"FAKE_DNS": str(self.folder / "dns")}
        env["PYTHONPATH"] = os.pathsep.join([str(self.folder / "site"), str(self.code)])
        if "serviceAccountName" in pod.workload.template["spec"]:
            env["KUBECONFIG"] = str(self.folder / "kubeconfig")
        container = pod.workload.container
        for source in container.get("envFrom", ()):
            env |= self.objects["ConfigMap", source["configMapRef"]["name"]]["data"]
        for variable in container.get("env", ()):
            env[variable["name"]] = self._variable(variable["valueFrom"], pod)
        return env

    def _variable(self, source: Mapping[str, Any], pod: Pod) -> str:
        match source:
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                return pod.name
            case {"fieldRef": {"fieldPath": path}}:
                [label] = re.fullmatch(r"metadata\.labels\['(.*)'\]", path).groups()  # type: ignore[union-attr]
                return pod.labels()[label]
            case {"secretKeyRef": {"name": name, "key": key}}:
                return base64.b64decode(self.objects["Secret", name]["data"][key]).decode()
            case _:
                raise AssertionError(f"a source that this does not know: {source}")

    def _addresses(self) -> dict[str, list[str]]:
        """The names of headless Services, short and with the namespace."""
        found = {}
        for (kind, name), document in self.objects.items():
            if kind == "Service":
                assert document["spec"]["clusterIP"] == "None"
                chosen = document["spec"]["selector"].items()
                ready = [p.address for p in self.pods.values() if chosen <= p.labels().items()]
                found[name] = found[f"{name}.{self.name}.svc"] = sorted(ready)
        return found

    # ------------------------------------------------------------ the API server

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Returns status and JSON for one request."""
        with self._lock:
            url = urlsplit(path)
            place = url.path.removeprefix("/apis/apps/v1/").removeprefix("/api/v1/").split("/")
            match method, place:
                case _, ["namespaces", self.name, "statefulsets", name, "scale"]:
                    return self._scale(method, self.workloads[name], body)
                case "GET", ["namespaces", self.name, "pods"]:
                    [selector] = parse_qs(url.query)["labelSelector"]
                    wanted = dict(part.split("=") for part in selector.split(",")).items()
                    found = [p for p in self.pods.values() if wanted <= p.labels().items()]
                    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {}}
                    return 200, listed | {"items": [p.as_json() for p in found]}
                case "DELETE", ["namespaces", self.name, "pods", name]:
                    pod = self.pods.get(name)
                    if pod is None:
                        return 404, failure(404, "NotFound")
                    if body["preconditions"]["uid"] != pod.uid:
                        return 409, failure(409, "Conflict")
                    self._doom(pod, body["gracePeriodSeconds"])
                    return 200, pod.as_json()
                case _:
                    return 404, failure(404, "NotFound")

    def _scale(self, method: str, workload: Workload, body: Any) -> tuple[int, Any]:
        if method == "PUT":
            if body["metadata"]["resourceVersion"] != str(workload.version):
                return 409, failure(409, "Conflict")
            workload.scale(body["spec"]["replicas"])
        meta = {"name": workload.name, "uid": workload.uid, "namespace": self.name}
        selector = ",".join(f"{k}={v}" for k, v in workload.selector.items())
        return 200, {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": meta | {"resourceVersion": str(workload.version)},
            "spec": {"replicas": workload.replicas},
            "status": {"replicas": workload.replicas, "selector": selector},
        }

    # ------------------------------------------------------------ KEDA

    def _keda(self, spec: Mapping[str, Any]) -> None:
        """Asks the scaler how many there should be, and writes that; keeps it without an answer."""
        [trigger] = spec["triggers"]
        host, _, port = trigger["metadata"]["scalerAddress"].partition(":")
        ref = messages.ScaledObjectRef(
            name="x", namespace=self.name, scalerMetadata=trigger["metadata"]
        )
        target = spec["scaleTargetRef"]["name"]
        while not self._over.wait(_POLL_S):
            with self._lock:
                workload = self.workloads.get(target)
                addresses = self._addresses().get(host, ())
            wanted = None
            for address in addresses:
                wanted = wanted if wanted is not None else _wanted(f"{address}:{port}", ref)
            if workload is None or wanted is None:
                continue
            replicas = min(max(wanted, spec["minReplicaCount"]), spec["maxReplicaCount"])
            with self._lock:
                if replicas != workload.replicas:
                    workload.scale(replicas)


def _wanted(address: str, ref: messages.ScaledObjectRef) -> int | None:
    with suppress(grpc.RpcError), grpc.insecure_channel(address) as channel:
        scaler = ExternalScalerStub(channel)
        [target] = scaler.GetMetricSpec(ref, timeout=30).metricSpecs
        asked = messages.GetMetricsRequest(scaledObjectRef=ref, metricName=target.metricName)
        [value] = scaler.GetMetrics(asked, timeout=30).metricValues
        wanted: float = value.metricValueFloat / target.targetSizeFloat
        return math.ceil(wanted)
    return None
