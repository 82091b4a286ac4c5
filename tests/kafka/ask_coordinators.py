"""A process of its own that asks about groups until it is told to stop: a crash is an exit code.

Usage: python -m tests.kafka.ask_coordinators BOOTSTRAP_SERVER TOPIC

Reads one line per order from stdin and writes one line per answer to stdout. Every line is a
JSON object with the number of calls so far.
"""

from __future__ import annotations

import json
import sys
import threading

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.errors import BrokerUnavailable
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import Group, TopicPartition
from trimtab.observe import logging

GROUPS = [*(f"group-{n}" for n in range(6)), "classic", "consumer"]
"""Enough for both brokers to coordinate some."""


def main() -> None:
    """Asks at once, then makes groups, then asks in a loop while brokers come and go."""
    servers, topic = sys.argv[1:]
    logging.configure()  # to stderr: stdout is for the test
    with Cluster(servers).admin() as patient:
        fresh = {"groups": len(patient.groups(GROUPS)), "committed": patient.committed(GROUPS)}
        tell(fresh=fresh)
        patient.create_topic(TopicSpec(name=topic, partitions=2, replication=2))
        for name in GROUPS:
            commit(servers, topic, name)
    members = [a_member(servers, topic, "classic"), a_member(servers, topic, "consumer")]
    with Cluster(servers).admin(patience_s=1.0) as admin:
        ask_until_told(admin, members)


def commit(servers: str, topic: str, group: str) -> None:
    """An offset of a group, which then exists."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TheirPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


def a_member(servers: str, topic: str, protocol: str) -> Consumer:
    """The one member of a group that is named for its protocol."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": protocol,
            "group.protocol": protocol,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    return consumer


def ask_until_told(admin: KafkaAdmin, members: list[Consumer]) -> None:
    """Describes groups and reads offsets; an order is answered with what was counted."""
    ordered = threading.Event()
    stopped = threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            ordered.set()
        stopped.set()

    threading.Thread(target=listen, daemon=True).start()
    calls = unavailable = 0
    while not stopped.is_set():
        for member in members:
            member.poll(0)
        described: tuple[Group, ...] = ()
        committed: dict[str, dict[TopicPartition, int]] = {}
        try:
            calls += 2
            committed = admin.committed(GROUPS)
            described = admin.groups(GROUPS)
        except BrokerUnavailable:
            unavailable += 1
        if ordered.is_set():
            ordered.clear()
            tell(
                calls=calls,
                unavailable=unavailable,
                described=len(described),
                committed=sum(map(bool, committed.values())),
                stable=sum(g.state == "STABLE" and len(g.members) == 1 for g in described),
            )


def tell(**values: object) -> None:
    """One line for the test."""
    print(json.dumps(values), flush=True)  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
