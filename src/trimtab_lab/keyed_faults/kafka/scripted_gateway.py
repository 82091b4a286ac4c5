"""A gateway that follows a schedule, with all its shards; see `scripted_shard`."""

from __future__ import annotations

import threading
from collections import Counter

from trimtab.apply.keys.key_route import GatewayMode
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab_lab.keyed_faults.kafka.scripted_shard import ScriptedShard
from trimtab_lab.keyed_faults.schedule import ScheduleRules


def create_topics(cluster: Cluster, topic: str, rules: ScheduleRules) -> None:
    """Creates the data topic and its `.assign`, with as many replicas as fit."""
    with cluster.admin() as admin:
        replication = min(3, len(admin.cluster().brokers))
        safe = {"min.insync.replicas": str(max(1, replication - 1))}
        admin.create_topic(
            TopicSpec(
                name=topic, partitions=rules.partitions, replication=replication, settings=safe
            )
        )
        admin.create_topic(
            TopicSpec(
                name=f"{topic}.assign",
                partitions=rules.shards,
                replication=replication,
                settings={**safe, "cleanup.policy": "compact"},
            )
        )


class ScriptedGateway:
    """All shards of a schedule, each in a thread of its own.

    Example::

        gateway = ScriptedGateway(cluster, "orders", ScheduleRules(seed=7))
        gateway.run_steps(20)
        gateway.finish()
        assert gateway.truth[b"key-0"] > 0
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        rules: ScheduleRules,
        mode: GatewayMode = GatewayMode.EXACTLY_ONCE,
    ) -> None:
        create_topics(cluster, topic, rules)
        self.shards = tuple(
            ScriptedShard(cluster, topic, rules, shard, mode) for shard in range(rules.shards)
        )
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    @property
    def truth(self) -> Counter[bytes]:
        """How many records of each key were acknowledged; all of them after `finish` or `stop`."""
        return sum((shard.truth for shard in self.shards), Counter())

    @property
    def moved(self) -> int:
        """How many migrations were begun."""
        return sum(shard.moved for shard in self.shards)

    @property
    def starts(self) -> int:
        """How often a shard was started."""
        return sum(shard.starts for shard in self.shards)

    def run_steps(self, count: int) -> None:
        """Does the next steps of every shard, at once and one shard after the other."""
        for shard in self.shards:
            shard.run_steps(count)

    def finish(self) -> None:
        """Makes sure that everything is stored."""
        for shard in self.shards:
            shard.finish()

    def start(self) -> None:
        """Begins to follow the schedule at its pace."""
        for shard in self.shards:
            thread = threading.Thread(target=self._run, args=(shard,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, shard: ScriptedShard) -> None:
        try:
            shard.run(self._stop)
        except BaseException as error:
            self._failures.append(error)

    def stop(self, within_s: float = 300.0) -> None:
        """Ends the schedule; returns when everything is stored."""
        self._stop.set()
        for thread in self._threads:
            thread.join(within_s)
        if self._failures:
            raise self._failures[0]
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError("The scripted gateway did not finish.")
