"""A real Kafka cluster on this machine: one KRaft controller and N brokers, each a process.

Promise  A second `up` changes nothing. `down` leaves no process. An `up` that fails or is
         interrupted stops what it started and keeps its logs. After a crash or a reboot, `up`
         starts the cluster on its existing data. Processes are identified by pid and start time,
         so no other process is signalled. Only folders created here are removed.
Cost     About 10 s and 0.8 GB of memory for three brokers.

All files are in `<home>/clusters/<name>/` (`cluster_folder`). Nodes listen on 127.0.0.1 only.
"""

from __future__ import annotations

import base64
import contextlib
import re
import signal
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trimtab.errors import ClusterStartFailed, ConfigError
from trimtab.local.broker_properties import (
    SaslUser,
    check_properties,
    fingerprint,
)
from trimtab.local.class_archive import class_archive, class_path
from trimtab.local.cluster_folder import ClusterFolder
from trimtab.local.cluster_state import (
    CONTROLLER,
    BrokerProcessState,
    LocalClusterState,
    LocalNode,
    Shape,
)
from trimtab.local.jars import broker_jars, jars_folder
from trimtab.local.java import find_java
from trimtab.local.node_start import (
    add_user,
    addresses,
    check_ports,
    format_nodes,
    node_command,
    wait_until_joined,
)
from trimtab.local.ports import free_ports
from trimtab.local.processes import ProcessId, ProcessState, end, process_state, send, spawn
from trimtab.observe.clock import TimedOut, wait_until

__all__ = ["BrokerProcessState", "BrokerStatus", "ClusterStatus", "LocalCluster", "SaslUser"]

MOST_BROKERS = 26

_JVM = ("-XX:+UseSerialGC", "-Djava.awt.headless=true")
_FAST_START = "-XX:TieredStopAtLevel=1"  # less compilation, for nodes that run for a minute


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
        self._say = say or (lambda _: None)
        self._files = ClusterFolder(name, home=home, cache=cache, say=self._say)
        self._sasl = sasl
        self._shape = Shape(
            brokers=brokers,
            racks=min(racks, brokers),
            properties=extra,
            sasl=fingerprint(sasl) if sasl else None,
        )
        self._jars = tuple(jars) if jars is not None else None
        self._cache = cache
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
    def folder(self) -> Path:
        """The folder of the cluster."""
        return self._files.path

    @property
    def logs(self) -> Path:
        """Folder of the nodes' logs."""
        return self._files.logs

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
        state = self._files.read()
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
            bootstrap_servers=addresses(node.port for node in state.brokers),
            sasl_bootstrap_servers=addresses(
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
        with self._files.locked():
            state = self._files.read()
            if state is not None:
                self._check_shape(state.shape)
                if not self._files.is_formatted(state.controller, state.cluster_id):
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
        with self._files.locked():
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
        with self._files.locked():
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
        with self._files.locked():
            state = self._files.read()
            if state is None:
                self._files.remove()
                return
            # No clean shutdown is needed if the data is removed. If it is kept, brokers stop first:
            # without a controller they would try to move their leaderships for minutes.
            self._say(f"Stopping {state.shape.brokers} broker(s) and the controller.")
            end(_living(state.brokers), patience_s=20.0 if keep_data else 0.0)
            end(_living((state.controller,)), patience_s=10.0 if keep_data else 0.0)
            if keep_data:
                for node in state.nodes:
                    state = state.with_process(node.id, None)
                self._files.write(state)
            else:
                self._files.remove()

    # ---- starting -------------------------------------------------------------------------------

    def _start_new(self) -> None:
        """Starts a new cluster; on failure only its logs are kept."""
        self._files.remove()
        state = self._new_state()
        try:
            self._start(state, state.nodes)
        except BaseException:
            left = self._files.read()
            if left is not None and not _living(left.nodes):
                self._files.forget_state()
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
            self._wait_until_ready(state, started=())
            return
        java = find_java()
        self._files.check_disk()
        check_ports(nodes)
        jvm = self._jvm(java)
        self._files.write_settings(state, sasl=self._sasl)
        format_nodes(
            state, nodes, jvm, folder=self._files, timeout_s=self._timeout_s, say=self._say
        )
        self._say(f"Starting {', '.join(node.name for node in nodes)}.")
        with contextlib.ExitStack() as undo:
            for node in nodes:
                process = spawn(
                    node_command(node, jvm, self._files),
                    folder=self._files.node(node),
                    log=self._files.log(node),
                )
                undo.callback(end, (process,), patience_s=0)
                state = state.with_process(node.id, process)
                self._files.write(state)
            self._wait_until_ready(state, started=tuple(state.node(n.id) for n in nodes))
            undo.pop_all()

    def _wait_until_ready(
        self, state: LocalClusterState, *, started: Collection[LocalNode]
    ) -> None:
        """Returns when all running brokers see the started ones and know the SASL user."""
        wait_until_joined(state, started=started, logs=self.logs, timeout_s=self._timeout_s)
        if self._sasl is not None:
            add_user(state, self._sasl, logs=self.logs, timeout_s=self._timeout_s)

    def _jvm(self, java: Path) -> tuple[str, ...]:
        """The start of every command: Java, class path, and options for a fast start."""
        jars = self._jars or broker_jars(cache=self._cache)
        archive = class_archive(java, jars, folder=jars_folder(self._cache), say=self._say)
        shared = (f"-XX:SharedArchiveFile={archive}",) if archive else ()
        compiled = () if self._enduring else (_FAST_START,)
        return (str(java), *_JVM, *compiled, *shared, "-cp", class_path(jars))

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

    # ---- checks ---------------------------------------------------------------------------------

    def _find(self, broker: int) -> tuple[LocalClusterState, LocalNode]:
        state = self._files.read()
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
        with self._files.locked():
            node, process = self._running_process(broker)
            send(process, number)
            wanted = (
                BrokerProcessState.PAUSED
                if number == signal.SIGSTOP
                else BrokerProcessState.RUNNING
            )
            with contextlib.suppress(TimedOut):
                wait_until(lambda: node.state is wanted, within_s=5.0, every_s=0.01)

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


def _living(nodes: Iterable[LocalNode]) -> tuple[ProcessId, ...]:
    return tuple(
        node.process
        for node in nodes
        if node.process is not None and process_state(node.process) is not ProcessState.DEAD
    )


def _new_cluster_id() -> str:
    """Returns a random id in Kafka's form: 16 bytes as 22 letters, the first one not a dash."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))[0] == "-":
        pass
    return made
