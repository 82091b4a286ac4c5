"""The folder of a local cluster: its state, the nodes' settings, data and logs, and its lock.

`cluster.json` is the state; `logs/` has a log per node; each node has a folder with its
`server.properties` and `data/`. Only folders created here are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from trimtab.errors import BadFile, ClusterStartFailed, ConfigError
from trimtab.local.broker_properties import LOG4J_PROPERTIES, SaslUser, node_properties
from trimtab.local.cluster_state import (
    LocalClusterState,
    LocalNode,
    state_from_json,
    state_to_json,
)
from trimtab.local.jars import jars_folder
from trimtab.model.files import write_atomically

LEAST_FREE_BYTES = 500_000_000
_MARKER = ".trimtab-cluster"  # a file in every folder created here


class ClusterFolder:
    """Where everything of one cluster is kept."""

    def __init__(
        self, name: str, *, home: Path, cache: Path | None, say: Callable[[str], None]
    ) -> None:
        self.name = name
        self._home = home.expanduser().resolve()
        self.path = self._home / "clusters" / name
        self._cache = cache
        self._say = say

    @property
    def logs(self) -> Path:
        """Folder of the nodes' logs."""
        return self.path / "logs"

    @property
    def log4j(self) -> Path:
        """The nodes' log settings."""
        return self.path / "log4j2.properties"

    def node(self, node: LocalNode) -> Path:
        """The folder of a node."""
        return self.path / node.name

    def data(self, node: LocalNode) -> Path:
        """The data folder of a node."""
        return self.node(node) / "data"

    def settings(self, node: LocalNode) -> Path:
        """The properties of a node."""
        return self.node(node) / "server.properties"

    def log(self, node: LocalNode) -> Path:
        """The log of a node."""
        return self.logs / f"{node.name}.log"

    def is_formatted(self, node: LocalNode, cluster_id: str) -> bool:
        """Whether a data folder was completely formatted for this cluster (this file is last)."""
        try:
            lines = (self.data(node) / "meta.properties").read_text().splitlines()
        except OSError:
            return False
        return f"cluster.id={cluster_id}" in lines and any(
            line.startswith("directory.id=") for line in lines
        )

    def write_settings(self, state: LocalClusterState, *, sasl: SaslUser | None) -> None:
        """Writes the nodes' settings once; they do not change during the cluster's life."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)  # it may contain a SASL password
        (self.path / _MARKER).touch()
        self.logs.mkdir(exist_ok=True)
        self.write(state)
        self.log4j.write_text(LOG4J_PROPERTIES)
        for node in state.nodes:
            if not self.settings(node).exists():
                self.node(node).mkdir(exist_ok=True)
                settings = node_properties(node, state, data=self.data(node), sasl=sasl)
                write_atomically(
                    self.settings(node), "".join(f"{k}={v}\n" for k, v in settings.items())
                )

    def remove(self) -> None:
        """Removes the folder, if it was created by Trimtab."""
        ours = any((self.path / name).exists() for name in (_MARKER, "cluster.json"))
        if ours:
            shutil.rmtree(self.path)
        elif self.path.exists() and any(self.path.iterdir()):
            raise ConfigError(
                f"{self.path} was not created by Trimtab, so it is not removed.",
                hint="Check TRIMTAB_HOME, or use another --name.",
            )

    def read(self) -> LocalClusterState | None:
        """The state; None if there is no such cluster."""
        path = self.path / "cluster.json"
        with self._usable():
            try:
                text = path.read_text()
            except FileNotFoundError:
                return None
        try:
            return state_from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(
                f"{path} is not a valid cluster state file: {error}",
                hint=f'Look for its processes with "ps -ef | grep {self.path}", end them, and '
                f"remove {self.path}.",
            ) from error

    def write(self, state: LocalClusterState) -> None:
        """Replaces the state."""
        write_atomically(self.path / "cluster.json", json.dumps(state_to_json(state), indent=1))

    def forget_state(self) -> None:
        """Removes the state and keeps the rest."""
        (self.path / "cluster.json").unlink()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the cluster, so that only one process or thread changes it at a time."""
        with self._usable():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with (self.path.parent / f".{self.name}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._say(f'Waiting: another process is changing the cluster "{self.name}".')
                    fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def check_disk(self) -> None:
        """Refuses to start on a disk that is nearly full."""
        free = shutil.disk_usage(self.path.parent).free
        if free < LEAST_FREE_BYTES:
            raise ClusterStartFailed(
                f"Only {free // 1_000_000} MB are free for {self.path}; "
                f"a cluster needs {LEAST_FREE_BYTES // 1_000_000} MB.",
                hint="Free some space, or set TRIMTAB_HOME to a folder on another disk.",
            )

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Raises an error that names the setting if a folder cannot be used."""
        try:
            yield
        except OSError as error:
            ours = {"TRIMTAB_HOME": self._home, "TRIMTAB_CACHE": jars_folder(self._cache)}
            for variable, folder in ours.items():
                if _is_related(error.filename, folder):
                    raise ConfigError(
                        f"{error.filename} cannot be used: {error.strerror}.",
                        hint=f"Set {variable} to a folder that you may write to.",
                    ) from error
            raise


def _is_related(path: object, folder: Path) -> bool:
    """Whether a path is a parent of the folder, or is inside it."""
    if not isinstance(path, str):
        return False
    return Path(path).is_relative_to(folder) or folder.is_relative_to(path)
