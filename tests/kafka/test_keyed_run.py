"""Keyed consumers under the real controller: scaled, killed and frozen, they count every record."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from tests.kafka.live_group import HIGH, LOW, WITHIN_S, LiveGroup, live_group
from tests.kafka.streams import wait_until
from trimtab.apply.keys.kafka.state_reader import read_state, state_consumer
from trimtab.apply.keys.key_entry import EntryStatus
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.state_layout import entry_of
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.key_chain import chain_after

SPREAD = HIGH, LOW, HIGH, LOW


def counted(group: LiveGroup) -> dict[bytes, tuple[int, str]]:
    """Count and chain of each key, from the changelogs."""
    topic = KeyedTopics(group.topic, group.group).state
    found: dict[bytes, tuple[int, str]] = {}
    with state_consumer(Cluster(group.bootstrap), client_id="judge", group="judge") as consumer:
        for partition in range(group.partitions):
            answer = read_state(consumer, topic, partition, stop=threading.Event(), timeout_s=60)
            assert answer is not None
            for key, text in answer[0].entries.items():
                entry = entry_of(text)
                assert entry.status is EntryStatus.OWN
                assert key not in found, f"{key!r} has two states"
                state = json.loads(entry.value or b"null")
                found[key] = (state["count"], state["chain"])
    return found


def replaced(group: LiveGroup, index: int, number: signal.Signals) -> None:
    """Ends or freezes a consumer, and waits until another process has its place."""
    pid = group.consumers()[index]
    group.signal(index, number)
    wait_until(
        lambda: group.consumers().get(index, pid) != pid, within_s=WITHIN_S, what="another one"
    )


@pytest.mark.parametrize("mode", ["directed", "group"])
def test_every_record_counts_once_through_scaling_kill_and_freeze(
    mode: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    flags = ("--mode", "group") if mode == "group" else ()
    keyed = "--keyed --service-time 1ms --verbose"
    with live_group(cluster, tmp_path, consume=keyed) as group:
        group.run(*flags)
        group.settle(1)
        group.mark()
        with group.under_load():
            group.ask(*SPREAD)
            group.settle(2)
            replaced(group, max(group.consumers()), signal.SIGKILL)
            group.settle(2)
            if mode == "directed":  # a member that is frozen is not replaced, but left out
                replaced(group, min(group.consumers()), signal.SIGSTOP)
                group.settle(2)
            group.ask(LOW)
            group.settle(1)
        group.judge(directed=mode == "directed", no_repeats=True)

        expected = {key: (count, chain_after(count)) for key, count in group.sent.items()}
        assert counted(group) == expected
