"""Starting the nodes of a local cluster: formatting, waiting, and why a node did not start."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from trimtab.errors import ClusterStartFailed
from trimtab.local.broker_properties import SaslUser
from trimtab.local.cluster_folder import ClusterFolder
from trimtab.local.cluster_state import (
    CONTROLLER,
    BrokerProcessState,
    LocalClusterState,
    LocalNode,
)
from trimtab.local.ports import HOST, is_free
from trimtab.observe.clock import TimedOut, wait_until

_CONTROLLER_HEAP = ("-Xms64m", "-Xmx128m")
_BROKER_HEAP = ("-Xms128m", "-Xmx320m")


def node_command(node: LocalNode, jvm: Sequence[str], folder: ClusterFolder) -> list[str]:
    """The command that runs a node."""
    return [
        *jvm,
        *(_CONTROLLER_HEAP if node.id == CONTROLLER else _BROKER_HEAP),
        f"-Dlog4j2.configurationFile=file:{folder.log4j}",
        *("kafka.Kafka", str(folder.settings(node))),
    ]


def check_ports(nodes: Iterable[LocalNode]) -> None:
    """Refuses to start nodes whose ports are taken."""
    for node in nodes:
        for port in (node.port, node.sasl_port):
            if port is not None and not is_free(port):
                raise ClusterStartFailed(
                    f"Port {port} of {node.name} is in use by another process.",
                    hint=f"End that process (lsof -i :{port} shows it), or discard the data "
                    'for new ports: "trimtab cluster down", then "up".',
                )


def format_nodes(
    state: LocalClusterState,
    nodes: Iterable[LocalNode],
    jvm: Sequence[str],
    *,
    folder: ClusterFolder,
    timeout_s: float,
    say: Callable[[str], None],
) -> None:
    """Formats the data folders that need it, in parallel."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for node in nodes:
            if folder.is_formatted(node, state.cluster_id):
                continue
            if folder.data(node).exists():
                say(f"The data of {node.name} is incomplete: formatting it again.")
                shutil.rmtree(folder.data(node))
            command = [
                *(*jvm, "-Xmx128m", "kafka.tools.StorageTool"),
                *("format", "-t", state.cluster_id),
                *("-c", str(folder.settings(node))),
                "--standalone" if node.id == CONTROLLER else "--no-initial-controllers",
            ]
            with folder.log(node).open("ab") as log:
                running[node.name] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        for name, process in running.items():
            if process.wait(timeout=timeout_s) != 0:
                raise _start_failed(name, "its data folder could not be formatted", folder.logs)
    except subprocess.TimeoutExpired as error:
        raise _start_failed("a node", "formatting took too long", folder.logs) from error
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def wait_until_joined(
    state: LocalClusterState, *, started: Collection[LocalNode], logs: Path, timeout_s: float
) -> None:
    """Returns when each running broker sees itself and all started brokers as alive."""
    expected = {node.id for node in started if node.id != CONTROLLER}
    waiting = [node for node in state.brokers if node.state is BrokerProcessState.RUNNING]

    def all_joined() -> bool:
        for node in started if waiting else ():
            if not node.is_alive:
                raise _start_failed(node.name, "its process ended during start-up", logs)
        waiting[:] = [node for node in waiting if not expected | {node.id} <= _seen_by(node)]
        return not waiting

    try:
        wait_until(all_joined, within_s=timeout_s, every_s=0.0)  # asking a broker takes its time
    except TimedOut:
        what = f"no answer after {timeout_s:.0f} s"
        raise _start_failed(waiting[0].name, what, logs) from None


def add_user(state: LocalClusterState, sasl: SaslUser, *, logs: Path, timeout_s: float) -> None:
    """Creates the SCRAM user by an admin request, since a command would show the password."""
    if any(node.state is not BrokerProcessState.RUNNING for node in state.brokers):
        return  # paused after an earlier `up`, which created the user
    from trimtab.kafka.probe import accepts_user, add_scram_user

    name, password = sasl.username, sasl.password
    add_scram_user(
        addresses(node.port for node in state.brokers), name, password, timeout_s=timeout_s
    )
    waiting = list(state.brokers)

    def accepted() -> bool:
        while waiting:
            address = f"{HOST}:{waiting[0].sasl_port}"
            if not accepts_user(address, name, password, timeout_s=1.0):
                return False
            waiting.pop(0)
        return True

    try:
        wait_until(accepted, within_s=timeout_s, every_s=0.0)  # a refusal takes its time
    except TimedOut:
        what = "it does not accept the SASL user"
        raise _start_failed(waiting[0].name, what, logs) from None


def addresses(ports: Iterable[int]) -> str:
    """Listeners as bootstrap servers."""
    return ",".join(f"{HOST}:{port}" for port in ports)


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


def _seen_by(broker: LocalNode) -> frozenset[int]:
    if is_free(broker.port):
        time.sleep(0.1)
        return frozenset()
    from trimtab.kafka.probe import brokers_seen

    return brokers_seen(f"{HOST}:{broker.port}", timeout_s=1.0)
