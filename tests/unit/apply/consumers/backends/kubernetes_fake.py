"""A fake of the Kubernetes API: HTTP and JSON of the calls that the backend makes, nothing more.

It is no Kubernetes. It keeps the rules that the backend relies on: a scale may be written only at
the resourceVersion that was read (409), a delete may name a uid (409), a pod that is leaving stays
listed until its process has ended, and a StatefulSet is cut from the top and refilled by name.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

NAMESPACE = "shop"
_RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


@dataclass
class FakeKubernetes:
    """One workload `orders` and its pods."""

    kind: str = "StatefulSet"
    replicas: int = 0
    version: int = 1
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    """Pods whose node does not answer: they are told to go and stay listed."""
    rivals: int = 0
    """So many times somebody else changes the workload right before our write."""
    refuse: int | None = None
    """Answer everything with this status."""
    deleted: list[dict[str, Any]] = field(default_factory=list)
    _uids: Iterator[int] = field(default_factory=lambda: count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def scaled(self, replicas: int) -> None:
        """Does what the workload's own controller does, at once."""
        with self._lock:
            self.version += 1
            self.replicas = replicas
            self.reconcile()

    def reconcile(self) -> None:
        if self.kind == "StatefulSet":
            for index in range(self.replicas):
                self.pods.setdefault(f"orders-{index}", self._new(f"orders-{index}"))
            surplus = [n for n in self.pods if int(n.rpartition("-")[2]) >= self.replicas]
        else:
            while len(self.pods) < self.replicas:
                name = f"orders-7d9f-{next(self._uids):05x}"
                self.pods[name] = self._new(name)
            surplus = sorted(self.pods)[self.replicas :]
        for name in surplus:
            self._leave(name)

    def _leave(self, name: str) -> None:
        if name in self.stuck:
            self.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            del self.pods[name]

    def _new(self, name: str) -> dict[str, Any]:
        number = next(self._uids)
        return {
            "metadata": {
                "name": name,
                "uid": f"uid-{number}",
                "labels": {"app": "orders"},
                "creationTimestamp": f"2026-01-01T00:00:{number % 60:02d}Z",
                "ownerReferences": [_owner(self.kind, "workload-uid")],
            },
            "spec": {"containers": [{"name": "consumer", "image": "trimtab"}]},
            "status": {"phase": "Running", "containerStatuses": [status_of(_RUNNING)]},
        }

    def restarted(self, name: str, *, backs_off: bool = False) -> None:
        """The container ended; Kubernetes started another one, or waits before it does."""
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        status = status_of(waiting if backs_off else _RUNNING)
        status |= {"restartCount": 1, "lastState": {"terminated": {"exitCode": 137}}}
        self.pods[name]["status"]["containerStatuses"] = [status]

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Returns status and JSON for one request."""
        with self._lock:
            if self.refuse is not None:
                return self.refuse, failure(self.refuse, "refused")
            url = urlsplit(path)
            place = url.path.removeprefix("/apis/apps/v1/").removeprefix("/api/v1/")
            scale = f"namespaces/{NAMESPACE}/{self.kind.lower()}s/orders/scale"
            match method, place.split("/"):
                case "GET", _ if place == scale:
                    return 200, self._scale()
                case "PUT", _ if place == scale:
                    return self._write(body)
                case "GET", ["namespaces", namespace, "pods"] if namespace == NAMESPACE:
                    assert parse_qs(url.query)["labelSelector"] == ["app=orders"]
                    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {}}
                    return 200, listed | {"items": list(self.pods.values())}
                case "DELETE", ["namespaces", namespace, "pods", name] if namespace == NAMESPACE:
                    return self._delete(name, body)
            return 404, failure(404, "NotFound")

    def _scale(self) -> dict[str, Any]:
        meta = {"name": "orders", "uid": "workload-uid", "resourceVersion": str(self.version)}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": meta | {"namespace": NAMESPACE},
            "spec": {"replicas": self.replicas},
            "status": {"replicas": len(self.pods), "selector": "app=orders"},
        }

    def _write(self, body: Any) -> tuple[int, Any]:
        if self.rivals:
            self.rivals -= 1
            self.version += 1
        if body["metadata"]["resourceVersion"] != str(self.version):
            return 409, failure(409, "Conflict")
        self.scaled(body["spec"]["replicas"])
        return 200, self._scale()

    def _delete(self, name: str, body: Any) -> tuple[int, Any]:
        if name not in self.pods:
            return 404, failure(404, "NotFound")
        pod = self.pods[name]
        if body["preconditions"]["uid"] != pod["metadata"]["uid"]:
            return 409, failure(409, "Conflict")
        self.deleted.append(body)
        self._leave(name)
        self.reconcile()
        return 200, pod


class Answering(Protocol):
    """What answers requests to the API."""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Returns status and JSON for one request."""
        ...


@contextmanager
def served(fake: Answering) -> Iterator[str]:
    """Gives the URL of the fake while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = fake.answer(self.command, self.path, json.loads(sent or b"null"))
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_DELETE = _handle  # noqa: N815 (names of the standard library)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _owner(kind: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "orders", "uid": uid}


def status_of(state: dict[str, Any]) -> dict[str, Any]:
    named = {"name": "consumer", "image": "trimtab", "imageID": "trimtab", "ready": True}
    return named | {"restartCount": 0, "state": state}


def failure(status: int, reason: str) -> dict[str, Any]:
    """What the API answers with a status that is no success."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status} | {
        "reason": reason
    }
