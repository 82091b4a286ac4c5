"""What starts and stops the consumers of a group: processes here, Kubernetes, or KEDA."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.control import Decision
from trimtab.services.consume import ConsumeMode

if TYPE_CHECKING:
    from trimtab.apply.consumers.backends.backend import Backend


class BackendName(StrEnum):
    """What starts and stops consumers."""

    PROCESSES = "processes"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerScaling:
    """How consumers take part in their group, and what starts and stops them.

    Attributes:
        mode: How partitions are assigned.
        backend: What starts and stops consumers, unless KEDA does.
        workload: With Kubernetes: `statefulset/NAME` or `deployment/NAME`.
        consume: With processes: the options of each `trimtab consume`, in one text.
        keda: In group mode: KEDA scales, and its external scaler asks at this address.
        listen: In group mode: where the group's leader asks for the plan.
        token: In group mode: what the group's leader must present there.
    """

    mode: ConsumeMode = ConsumeMode.DIRECTED
    backend: BackendName = BackendName.PROCESSES
    workload: str | None = None
    consume: str | None = None
    keda: str | None = None
    listen: str = "127.0.0.1:8765"
    token: str | None = None

    @property
    def by_processes(self) -> bool:
        """Whether consumers are processes that are started here."""
        return self.backend is BackendName.PROCESSES and self.keda is None

    @property
    def by_kubernetes(self) -> bool:
        """Whether a Kubernetes workload is scaled from here."""
        return self.backend is BackendName.KUBERNETES and self.keda is None

    def check(self, *, execute: bool) -> None:
        """Refuses options that are missing or contradict each other."""
        if self.keda is not None and self.mode is not ConsumeMode.GROUP:
            raise ConfigError(
                "--keda needs --mode group: KEDA may stop any consumer, also a directed one that "
                "is busy.",
                hint="Add --mode group, or leave --keda out.",
            )
        if self.consume and not self.by_processes:
            raise ConfigError(
                "--consume has no effect: this command does not start the consumers.",
                hint="Give the options to `trimtab consume` in the pods' manifest.",
            )
        self._check_workload(execute=execute)
        if execute and self.by_processes and not self.consume:
            raise ConfigError(
                "--consume is required with --execute and --backend processes.",
                hint='Give the options of the consumers, such as --consume "--handler shop:book".',
            )

    def _check_workload(self, *, execute: bool) -> None:
        if self.workload is None and self.by_kubernetes and execute:
            raise ConfigError(
                "--workload is required with --execute and --backend kubernetes.",
                hint="Give --workload statefulset/NAME (directed) or deployment/NAME (group).",
            )
        if self.workload is None:
            return
        if not self.by_kubernetes:
            raise ConfigError(
                "--workload has no effect without --backend kubernetes, or with --keda.",
                hint="Add --backend kubernetes, or leave --workload out.",
            )
        from trimtab.apply.consumers.backends.kubernetes import KubernetesWorkload, WorkloadKind

        kind = KubernetesWorkload.named(self.workload).kind
        if kind is WorkloadKind.DEPLOYMENT and self.mode is ConsumeMode.DIRECTED:
            raise ConfigError(
                "Directed consumers need a stable index, which pods of a Deployment do not have.",
                hint="Give --workload statefulset/NAME, or use --mode group.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledGroup:
    """The group whose consumers are started and stopped.

    `folder` keeps the logs and state of processes; `command_config` is passed on to them.
    """

    cluster: Cluster
    group: str
    topics: tuple[str, ...]
    folder: Path
    command_config: Path | None = None
    warm_spares: int = 0

    @property
    def topic_options(self) -> list[str]:
        """`--topic` for each topic."""
        return [word for topic in self.topics for word in ("--topic", topic)]

    def command(self, *words: str) -> list[str]:
        """A `trimtab` command for the same cluster."""
        to = ["--bootstrap-server", self.cluster.servers]
        if self.command_config is not None:
            to += ["--command-config", str(self.command_config.absolute())]
        return [sys.executable, "-m", "trimtab.cli.main", *words, *to]


@dataclass(frozen=True, slots=True)
class OpenBackend:
    """A backend, what decisions are passed to, and what is open while this controller leads."""

    backend: Backend
    on_decision: Callable[[Decision], None]
    while_leading: Callable[[], AbstractContextManager[object]] = nullcontext


@contextmanager
def open_backend(
    group: ScaledGroup,
    scaling: ConsumerScaling,
    *,
    on_decision: Callable[[Decision], None],
    fresh_s: float,
) -> Iterator[OpenBackend]:
    """The backend, open while the block runs; KEDA is not told decisions older than `fresh_s`."""
    if scaling.keda is not None:
        with _keda(group, scaling.keda, on_decision, fresh_s) as opened:
            yield opened
        return
    backend = _kubernetes(scaling) if scaling.by_kubernetes else _processes(group, scaling)
    try:
        yield OpenBackend(backend, on_decision)
    finally:
        backend.close()


def _processes(group: ScaledGroup, scaling: ConsumerScaling) -> Backend:
    from trimtab.apply.consumers.backends.processes import ProcessBackend, record_file

    words = shlex.split(scaling.consume or "")
    subscribed = scaling.mode is ConsumeMode.GROUP
    url = ["--controller-url", f"http://{scaling.listen}"] if subscribed else []

    def command(index: int) -> Sequence[str]:
        return group.command(
            *("consume", "--group", group.group, *group.topic_options, "--index", str(index)),
            *("--mode", str(scaling.mode), *url, *words),
            *("--in-hand", str(record_file(group.folder.absolute(), index))),
        )

    return ProcessBackend(command, group.folder, workdir=Path.cwd())


def _kubernetes(scaling: ConsumerScaling) -> Backend:
    from trimtab.apply.consumers.backends.kubernetes import KubernetesBackend, KubernetesWorkload

    return KubernetesBackend(KubernetesWorkload.named(scaling.workload or ""))


@contextmanager
def _keda(
    group: ScaledGroup,
    address: str,
    on_decision: Callable[[Decision], None],
    fresh_s: float,
) -> Iterator[OpenBackend]:
    """The members that KEDA has started, and decisions that reach it.

    Only the controller that leads listens, because KEDA keeps its connection to the controller
    that accepted it.
    """
    from trimtab.apply.consumers.keda.newest_decision import Members, NewestDecision
    from trimtab.apply.consumers.keda.scaler import Scaler

    wish = NewestDecision(group.group, fresh_s=fresh_s, spares=group.warm_spares)

    def tell_both(decision: Decision) -> None:
        wish.decided(decision)
        on_decision(decision)

    with group.cluster.admin() as admin:

        def members() -> list[str]:
            found = [m for g in admin.groups([group.group]) for m in g.members]
            return [m.instance or m.member_id for m in found]

        there = Members(members, on_look=wish.look)
        yield OpenBackend(there, tell_both, partial(Scaler, wish.wanted, address))
