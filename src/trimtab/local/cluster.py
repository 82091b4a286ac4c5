"""A real Kafka cluster on this machine: one KRaft controller and N brokers, each a process.

Promise  A second `up` changes nothing. `down` leaves no process. An `up` that fails or is
         interrupted stops what it started and keeps its logs. After a crash or a reboot, `up`
         starts the cluster on its existing data. Processes are identified by pid and start time,
         so no other process is signalled. Only folders created here are removed.
Cost     About 10 s and 0.8 GB of memory for three brokers.

All files are in `<home>/clusters/<name>/`: `cluster.json` (the state), `logs/`, and per node its
`server.properties` and `data/`. Nodes listen on 127.0.0.1 only.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trimtab.errors import BadFile, ClusterStartFailed, ConfigError
from trimtab.local.broker_properties import (
    LOG4J_PROPERTIES,
    SaslUser,
    check_properties,
    fingerprint,
    node_properties,
)
from trimtab.local.class_archive import class_archive, class_path
from trimtab.local.cluster_state import (
    CONTROLLER,
    BrokerProcessState,
    LocalClusterState,
    LocalNode,
    Shape,
    state_from_json,
    state_to_json,
)
from trimtab.local.jars import broker_jars, jars_folder
from trimtab.local.java import find_java
from trimtab.local.ports import HOST, free_ports, is_free
from trimtab.local.processes import ProcessId, ProcessState, end, process_state, send, spawn
from trimtab.model.files import write_atomically

__all__ = ["BrokerProcessState", "BrokerStatus", "ClusterStatus", "LocalCluster", "SaslUser"]

MOST_BROKERS = 26
LEAST_FREE_BYTES = 500_000_000
_MARKER = ".trimtab-cluster"  # a file in every folder created here

_JVM = ("-XX:+UseSerialGC", "-Djava.awt.headless=true")
_FAST_START = "-XX:TieredStopAtLevel=1"  # less compilation, for nodes that run for a minute
_CONTROLLER_HEAP = ("-Xms64m", "-Xmx128m")
_BROKER_HEAP = ("-Xms128m", "-Xmx320m")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """The current state of a broker; `port` is that of the plaintext listener."""

    id: int
    rack: str
    port: int
    pid: int | None
    state: BrokerProcessState


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The current state of a cluster; if it does not exist, it has no cluster id and no brokers."""

    name: str
    cluster_id: str | None
    bootstrap_servers: str
    sasl_bootstrap_servers: str | None
    controller: BrokerProcessState
    brokers: tuple[BrokerStatus, ...]


class LocalCluster:
    """A named cluster of real brokers; as a context manager, up inside and removed afterwards."""

    def __init__(  # noqa: PLR0913 - independent options
        self,
        name: str = "default",
        *,
        home: Path,
        brokers: int = 3,
        racks: int = 3,
        properties: Mapping[str, str] | None = None,
        sasl: SaslUser | None = None,
        jars: Sequence[Path] | None = None,
        cache: Path | None = None,
        say: Callable[[str], None] | None = None,
        timeout_s: float = 90.0,
        enduring: bool = False,
    ) -> None:
        """Does not start anything yet.

        Args:
            name: Name of the cluster, unique in `home`.
            home: The folder that contains `clusters/`.
            brokers: How many brokers, with ids from 1.
            racks: Number of racks; brokers are assigned to them in turn: a, b, c, a, …
            properties: Additional Kafka properties of every node; they override ours.
            sasl: Adds a SASL_PLAINTEXT listener for this user to every broker.
            jars: The brokers' class path; downloaded into `cache` if not given.
            cache: Folder of the jars; the user's cache folder if not given.
            say: Called with progress messages.
            timeout_s: How long to wait until nodes answer.
            enduring: Full JIT compilation: more CPU at first, less in the long run.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
            raise ConfigError(
                f'Invalid cluster name "{name}".',
                hint="Use letters, digits, dots, dashes and underscores.",
            )
        if not 1 <= brokers <= MOST_BROKERS:
            raise ConfigError(f"The number of brokers must be 1 to {MOST_BROKERS}, not {brokers}.")
        if racks < 1:
            raise ConfigError(f"The number of racks must be at least 1, not {racks}.")
        extra = tuple(sorted((properties or {}).items()))
        check_properties(extra)
        self.name = name
        self._home = home.expanduser().resolve()
        self.folder = self._home / "clusters" / name
        self._sasl = sasl
        self._shape = Shape(
            brokers=brokers,
            racks=min(racks, brokers),
            properties=extra,
            sasl=fingerprint(sasl) if sasl else None,
        )
        self._jars = tuple(jars) if jars is not None else None
        self._cache = cache
        self._say = say or (lambda _: None)
        self._timeout_s = timeout_s
        self._enduring = enduring

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @property
    def logs(self) -> Path:
        """Folder of the nodes' logs."""
        return self.folder / "logs"

    @property
    def bootstrap_servers(self) -> str:
        """The plaintext listeners, as bootstrap servers for clients."""
        return self.status().bootstrap_servers

    @property
    def sasl_bootstrap_servers(self) -> str | None:
        """The SASL listeners, if any."""
        return self.status().sasl_bootstrap_servers

    def status(self) -> ClusterStatus:
        """The current state, taken from the running processes."""
        state = self._read()
        if state is None:
            return ClusterStatus(
                name=self.name,
                cluster_id=None,
                bootstrap_servers="",
                sasl_bootstrap_servers=None,
                controller=BrokerProcessState.ABSENT,
                brokers=(),
            )
        return ClusterStatus(
            name=self.name,
            cluster_id=state.cluster_id,
            bootstrap_servers=_addresses(node.port for node in state.brokers),
            sasl_bootstrap_servers=_addresses(
                node.sasl_port for node in state.brokers if node.sasl_port is not None
            )
            or None,
            controller=state.controller.state,
            brokers=tuple(
                BrokerStatus(
                    id=node.id,
                    rack=node.rack or "",
                    port=node.port,
                    pid=node.process.pid if node.process and node.is_alive else None,
                    state=node.state,
                )
                for node in state.brokers
            ),
        )

    def process(self, broker: int) -> ProcessId:
        """The process of a broker; raises ConfigError if it is not running."""
        return self._running_process(broker)[1]

    def up(self) -> ClusterStatus:
        """Starts the cluster, or its missing nodes; returns when every broker answers."""
        with self._locked():
            state = self._read()
            if state is not None:
                self._check_shape(state.shape)
                if not _is_formatted(self._data(state.controller), state.cluster_id):
                    self._say("The controller's data is incomplete: creating the cluster again.")
                    end(_living(state.nodes), patience_s=0)
                    state = None
            if state is None:
                self._start_new()
            else:
                self._start_missing(state)
        return self.status()

    def start(self, broker: int) -> None:
        """Starts a dead broker on its data; returns when it has joined the cluster again."""
        with self._locked():
            state, node = self._find(broker)
            if node.state is BrokerProcessState.PAUSED:
                raise ConfigError(
                    f"Broker {broker} is paused, not dead.",
                    hint="Resume it instead of starting it.",
                )
            if state.controller.state is not BrokerProcessState.RUNNING:
                raise ClusterStartFailed(
                    f"Broker {broker} cannot join: the controller is {state.controller.state}.",
                    hint='"trimtab cluster up" starts all nodes that are not running.',
                )
            if node.state is not BrokerProcessState.RUNNING:
                self._start(state, (node,))

    def kill(self, broker: int) -> None:
        """Kills a broker as `kill -9` does; returns when its process has ended."""
        with self._locked():
            _, node = self._find(broker)
            end(_living((node,)), patience_s=0)

    def pause(self, broker: int) -> None:
        """Pauses a broker (SIGSTOP): it keeps its connections but does not answer."""
        self._signal_running(broker, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """Resumes a paused broker."""
        self._signal_running(broker, signal.SIGCONT)

    def down(self, *, keep_data: bool = False) -> None:
        """Stops all processes, then removes the folder, or keeps it for the next `up`."""
        with self._locked():
            state = self._read()
            if state is None:
                self._remove()
                return
            # No clean shutdown is needed if the data is removed. If it is kept, brokers stop first:
            # without a controller they would try to move their leaderships for minutes.
            self._say(f"Stopping {state.shape.brokers} broker(s) and the controller.")
            end(_living(state.brokers), patience_s=20.0 if keep_data else 0.0)
            end(_living((state.controller,)), patience_s=10.0 if keep_data else 0.0)
            if keep_data:
                for node in state.nodes:
                    state = state.with_process(node.id, None)
                self._write(state)
            else:
                self._remove()

    # ---- starting -------------------------------------------------------------------------------

    def _start_new(self) -> None:
        """Starts a new cluster; on failure only its logs are kept."""
        self._remove()
        state = self._new_state()
        try:
            self._start(state, state.nodes)
        except BaseException:
            left = self._read()
            if left is not None and not _living(left.nodes):
                (self.folder / "cluster.json").unlink()
            raise

    def _start_missing(self, state: LocalClusterState) -> None:
        """Starts the nodes of an existing cluster that are not running."""
        for node in state.nodes:
            if node.state is BrokerProcessState.DEAD:
                self._say(f"{node.name} is dead: starting it again.")
            if node.state is BrokerProcessState.PAUSED:
                self._say(f"{node.name} is paused and is not resumed.")
        self._start(state, tuple(node for node in state.nodes if not node.is_alive))

    def _start(self, state: LocalClusterState, nodes: tuple[LocalNode, ...]) -> None:
        """Starts nodes and waits until all running brokers see them."""
        if not nodes:
            self._wait_until_joined(state, started=())
            self._add_user(state)
            return
        java = find_java()
        self._check_disk()
        self._check_ports(nodes)
        jvm = self._jvm(java)
        self._write_settings(state)
        self._format(state, nodes, jvm)
        self._say(f"Starting {', '.join(node.name for node in nodes)}.")
        with contextlib.ExitStack() as undo:
            for node in nodes:
                process = spawn(
                    self._command(node, jvm),
                    folder=self.folder / node.name,
                    log=self._log(node),
                )
                undo.callback(end, (process,), patience_s=0)
                state = state.with_process(node.id, process)
                self._write(state)
            self._wait_until_joined(state, started=tuple(state.node(n.id) for n in nodes))
            self._add_user(state)
            undo.pop_all()

    def _format(
        self, state: LocalClusterState, nodes: Iterable[LocalNode], jvm: Sequence[str]
    ) -> None:
        """Formats the data folders that need it, in parallel."""
        running: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for node in nodes:
                if _is_formatted(self._data(node), state.cluster_id):
                    continue
                if self._data(node).exists():
                    self._say(f"The data of {node.name} is incomplete: formatting it again.")
                    shutil.rmtree(self._data(node))
                command = [
                    *(*jvm, "-Xmx128m", "kafka.tools.StorageTool"),
                    *("format", "-t", state.cluster_id),
                    *("-c", str(self._settings(node))),
                    "--standalone" if node.id == CONTROLLER else "--no-initial-controllers",
                ]
                with self._log(node).open("ab") as log:
                    running[node.name] = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
            for name, process in running.items():
                if process.wait(timeout=self._timeout_s) != 0:
                    raise _start_failed(name, "its data folder could not be formatted", self.logs)
        except subprocess.TimeoutExpired as error:
            raise _start_failed("a node", "formatting took too long", self.logs) from error
        finally:
            for process in running.values():
                process.kill()
                process.wait()

    def _wait_until_joined(
        self, state: LocalClusterState, *, started: Collection[LocalNode]
    ) -> None:
        """Returns when each running broker sees itself and all started brokers as alive."""
        expected = {node.id for node in started if node.id != CONTROLLER}
        waiting = [node for node in state.brokers if node.state is BrokerProcessState.RUNNING]
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            for node in started:
                if not node.is_alive:
                    raise _start_failed(node.name, "its process ended during start-up", self.logs)
            waiting = [node for node in waiting if not expected | {node.id} <= _seen_by(node)]
            if waiting and time.monotonic() > deadline:
                what = f"no answer after {self._timeout_s:.0f} s"
                raise _start_failed(waiting[0].name, what, self.logs)

    def _add_user(self, state: LocalClusterState) -> None:
        """Creates the SCRAM user by an admin request, since a command would show the password."""
        if self._sasl is None:
            return
        if any(node.state is not BrokerProcessState.RUNNING for node in state.brokers):
            return  # paused after an earlier `up`, which created the user
        from trimtab.kafka.probe import accepts_user, add_scram_user

        name, password = self._sasl.username, self._sasl.password
        plain = _addresses(node.port for node in state.brokers)
        add_scram_user(plain, name, password, timeout_s=self._timeout_s)
        deadline = time.monotonic() + self._timeout_s
        for node in state.brokers:
            while not accepts_user(f"{HOST}:{node.sasl_port}", name, password, timeout_s=1.0):
                if time.monotonic() > deadline:
                    raise _start_failed(node.name, "it does not accept the SASL user", self.logs)

    def _jvm(self, java: Path) -> tuple[str, ...]:
        """The start of every command: Java, class path, and options for a fast start."""
        jars = self._jars or broker_jars(cache=self._cache)
        archive = class_archive(java, jars, folder=jars_folder(self._cache), say=self._say)
        shared = (f"-XX:SharedArchiveFile={archive}",) if archive else ()
        compiled = () if self._enduring else (_FAST_START,)
        return (str(java), *_JVM, *compiled, *shared, "-cp", class_path(jars))

    def _command(self, node: LocalNode, jvm: Sequence[str]) -> list[str]:
        return [
            *jvm,
            *(_CONTROLLER_HEAP if node.id == CONTROLLER else _BROKER_HEAP),
            f"-Dlog4j2.configurationFile=file:{self.folder / 'log4j2.properties'}",
            *("kafka.Kafka", str(self._settings(node))),
        ]

    # ---- files ----------------------------------------------------------------------------------

    def _data(self, node: LocalNode) -> Path:
        return self.folder / node.name / "data"

    def _settings(self, node: LocalNode) -> Path:
        return self.folder / node.name / "server.properties"

    def _log(self, node: LocalNode) -> Path:
        return self.logs / f"{node.name}.log"

    def _write_settings(self, state: LocalClusterState) -> None:
        """Writes the nodes' settings once; they do not change during the cluster's life."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # it may contain a SASL password
        (self.folder / _MARKER).touch()
        self.logs.mkdir(exist_ok=True)
        self._write(state)
        (self.folder / "log4j2.properties").write_text(LOG4J_PROPERTIES)
        for node in state.nodes:
            if not self._settings(node).exists():
                (self.folder / node.name).mkdir(exist_ok=True)
                settings = node_properties(node, state, data=self._data(node), sasl=self._sasl)
                write_atomically(
                    self._settings(node), "".join(f"{k}={v}\n" for k, v in settings.items())
                )

    def _new_state(self) -> LocalClusterState:
        shape = self._shape
        ports = iter(free_ports(1 + shape.brokers * (2 if self._sasl else 1)))
        controller = LocalNode(id=CONTROLLER, rack=None, port=next(ports), sasl_port=None)
        brokers = (
            LocalNode(
                id=number,
                rack=chr(ord("a") + (number - 1) % shape.racks),
                port=next(ports),
                sasl_port=next(ports) if self._sasl else None,
            )
            for number in range(1, shape.brokers + 1)
        )
        return LocalClusterState(
            cluster_id=_new_cluster_id(), shape=shape, nodes=(controller, *brokers)
        )

    def _remove(self) -> None:
        """Removes the folder, if it was created by Trimtab."""
        ours = any((self.folder / name).exists() for name in (_MARKER, "cluster.json"))
        if ours:
            shutil.rmtree(self.folder)
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise ConfigError(
                f"{self.folder} was not created by Trimtab, so it is not removed.",
                hint="Check TRIMTAB_HOME, or use another --name.",
            )

    def _read(self) -> LocalClusterState | None:
        path = self.folder / "cluster.json"
        with self._usable_folders():
            try:
                text = path.read_text()
            except FileNotFoundError:
                return None
        try:
            return state_from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(
                f"{path} is not a valid cluster state file: {error}",
                hint=f'Look for its processes with "ps -ef | grep {self.folder}", end them, and '
                f"remove {self.folder}.",
            ) from error

    def _write(self, state: LocalClusterState) -> None:
        write_atomically(self.folder / "cluster.json", json.dumps(state_to_json(state), indent=1))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the cluster, so that only one process or thread changes it at a time."""
        with self._usable_folders():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with (self.folder.parent / f".{self.name}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._say(f'Waiting: another process is changing the cluster "{self.name}".')
                    fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    @contextlib.contextmanager
    def _usable_folders(self) -> Iterator[None]:
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

    # ---- checks ---------------------------------------------------------------------------------

    def _find(self, broker: int) -> tuple[LocalClusterState, LocalNode]:
        state = self._read()
        if state is None:
            raise ConfigError(
                f'There is no local cluster "{self.name}".', hint='Run "trimtab cluster up" first.'
            )
        for node in state.brokers:
            if node.id == broker:
                return state, node
        raise ConfigError(
            f'The cluster "{self.name}" has no broker {broker}, only 1 to {len(state.brokers)}.'
        )

    def _running_process(self, broker: int) -> tuple[LocalNode, ProcessId]:
        _, node = self._find(broker)
        if node.process is None or not node.is_alive:
            raise ConfigError(
                f"Broker {broker} is not running: it is {node.state}.",
                hint=f'Start it with "trimtab cluster start {broker}".',
            )
        return node, node.process

    def _signal_running(self, broker: int, number: signal.Signals) -> None:
        with self._locked():
            node, process = self._running_process(broker)
            send(process, number)
            wanted = (
                BrokerProcessState.PAUSED
                if number == signal.SIGSTOP
                else BrokerProcessState.RUNNING
            )
            deadline = time.monotonic() + 5.0
            while node.state is not wanted and time.monotonic() < deadline:
                time.sleep(0.01)

    def _check_shape(self, present: Shape) -> None:
        if present == self._shape:
            return
        differing = [
            f"{name} {getattr(present, name)!r}, not {getattr(self._shape, name)!r}"
            for name in ("brokers", "racks")
            if getattr(present, name) != getattr(self._shape, name)
        ]
        if present.properties != self._shape.properties:
            differing.append("other broker properties")
        if present.sasl != self._shape.sasl:
            differing.append("another SASL user")
        raise ClusterStartFailed(
            f'The cluster "{self.name}" exists already and has {"; ".join(differing)}.',
            hint='Remove it first ("trimtab cluster down"), or give the new one another --name.',
        )

    def _check_disk(self) -> None:
        free = shutil.disk_usage(self.folder.parent).free
        if free < LEAST_FREE_BYTES:
            raise ClusterStartFailed(
                f"Only {free // 1_000_000} MB are free for {self.folder}; "
                f"a cluster needs {LEAST_FREE_BYTES // 1_000_000} MB.",
                hint="Free some space, or set TRIMTAB_HOME to a folder on another disk.",
            )

    def _check_ports(self, nodes: Iterable[LocalNode]) -> None:
        for node in nodes:
            for port in (node.port, node.sasl_port):
                if port is not None and not is_free(port):
                    raise ClusterStartFailed(
                        f"Port {port} of {node.name} is in use by another process.",
                        hint=f"End that process (lsof -i :{port} shows it), or discard the data "
                        'for new ports: "trimtab cluster down", then "up".',
                    )


# ---- pure functions, and checks of this machine -------------------------------------------------


def last_error(log: str) -> str:
    """Returns the last error in a node's log, or the causes of that error."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [
        at for at, line in enumerate(lines) if re.search(r"\b(ERROR|FATAL) |^Exception in", line)
    ]
    block = lines[errors[-1] :] if errors else lines[-1:]
    causes = [line.removeprefix("Caused by: ") for line in block if line.startswith("Caused by: ")]
    if causes:
        return ", caused by ".join(causes[-2:])
    # log4j puts the exception on the line below the message
    return " ".join(line for line in block[:2] if not line.startswith("at ")) or "none"


def _start_failed(name: str, what: str, logs: Path) -> ClusterStartFailed:
    log = logs / f"{name}.log"
    try:
        reason = last_error(log.read_text(errors="replace"))
    except OSError:
        reason = "no log was written"
    return ClusterStartFailed(
        f"{name} did not start: {what}. Last error: {reason}", hint=f"See its log {log}."
    )


def _is_formatted(data: Path, cluster_id: str) -> bool:
    """Whether this folder was completely formatted for this cluster (this file is last)."""
    try:
        lines = (data / "meta.properties").read_text().splitlines()
    except OSError:
        return False
    return f"cluster.id={cluster_id}" in lines and any(
        line.startswith("directory.id=") for line in lines
    )


def _living(nodes: Iterable[LocalNode]) -> tuple[ProcessId, ...]:
    return tuple(
        node.process
        for node in nodes
        if node.process is not None and process_state(node.process) is not ProcessState.DEAD
    )


def _seen_by(broker: LocalNode) -> frozenset[int]:
    if is_free(broker.port):
        time.sleep(0.1)
        return frozenset()
    from trimtab.kafka.probe import brokers_seen

    return brokers_seen(f"{HOST}:{broker.port}", timeout_s=1.0)


def _is_related(path: object, folder: Path) -> bool:
    """Whether a path is a parent of the folder, or is inside it."""
    if not isinstance(path, str):
        return False
    return Path(path).is_relative_to(folder) or folder.is_relative_to(path)


def _addresses(ports: Iterable[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


def _new_cluster_id() -> str:
    """Returns a random id in Kafka's form: 16 bytes as 22 letters, the first one not a dash."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))[0] == "-":
        pass
    return made
