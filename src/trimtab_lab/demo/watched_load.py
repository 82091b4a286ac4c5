"""The demo's load: a group that reads it, and what was seen while it ran."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import MeasurementError
from trimtab.measure.group_state import GroupSnapshot, group_state
from trimtab.measure.windows import MICROS
from trimtab.model.load import Unit
from trimtab.observe.clock import TimedOut, wait_until, wall_clock_us
from trimtab.report.tables import quantity
from trimtab.services.load import LoadTarget, keyed_load, send_load
from trimtab.workload.key_streams import KeyStream

if TYPE_CHECKING:
    from trimtab.kafka.admin import Admin
    from trimtab.workload.load_summary import LoadSummary
    from trimtab_lab.demo.kafka.slow_group import SlowConsumer

from trimtab_lab.demo.script import (
    BROKERS,
    CLUSTER,
    Audience,
    BarListener,
    DemoEnvironment,
    Script,
)

_STABLE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedLoad:
    """Observations from the time when the load ran."""

    from_ts: int
    to_ts: int
    summary: LoadSummary
    group: GroupSnapshot
    capacity: float

    @property
    def capacity_words(self) -> str:
        """The capacity, as text."""
        return (
            f"{quantity(self.capacity, Unit.RECORDS_S)}, as measured for the slowest consumer "
            "while it was busy"
        )


def make_topics(script: Script, environment: DemoEnvironment, admin: Admin) -> None:
    """Deletes and creates the topic, so that records of an earlier run are gone."""
    from trimtab.kafka.admin import TopicSpec
    from trimtab.kafka.topics import ensure_topics

    ensure_topics(admin, environment.cluster.topics)
    admin.delete_topic(script.topic)
    replicas = min(BROKERS, len(admin.cluster().live))
    admin.create_topic(
        TopicSpec(
            name=script.topic,
            partitions=script.partitions,
            replication=replicas,
            settings={"min.insync.replicas": str(max(1, replicas - 1))},
        )
    )


def load_and_watch(
    script: Script, environment: DemoEnvironment, admin: Admin, audience: Audience
) -> WatchedLoad:
    """Sends the load while the group reads it and the monitor takes samples."""
    from trimtab.measure.kafka.monitor import MonitorScope, in_background
    from trimtab.services.monitor import open_sampling
    from trimtab_lab.demo.kafka.slow_group import DemoGroup, slow_group

    group = DemoGroup(
        name=script.group, topic=script.topic, members=script.consumers, pace_s=script.pace_s
    )
    with slow_group(group, environment.cluster) as members:
        _wait_until_stable(script, admin)
        audience.say(
            f"{script.consumers} consumers, each sized for {script.pace_s:.0f} records/s: the mean "
            f"load plus {script.spare:.0%}."
        )
        audience.step(
            3, f"Skewed load: {script.rate_s:g} records/s for {script.duration_s:g} s, monitored"
        )
        with (
            open_sampling(
                environment.cluster,
                MonitorScope(
                    topics=frozenset({script.topic}),
                    groups=(script.group,),
                    own_prefix=environment.cluster.topics.prefix,
                ),
                period_s=environment.settings.measure.period_s,
            ) as monitor,
            in_background(monitor),
        ):
            from_ts = wall_clock_us() + round(script.warm_up_s * MICROS)
            summary = _send(script, environment, audience)
            to_ts = wall_clock_us()
            # Read while all members are still in the group: the plan is made for them.
            state = group_state(admin, script.group, frozenset({script.topic}))
            capacity = _slowest(members)
    return WatchedLoad(
        from_ts=from_ts,
        to_ts=to_ts,
        summary=summary,
        group=state,
        capacity=capacity,
    )


def _wait_until_stable(script: Script, admin: Admin) -> None:
    """Returns when all members are in the group and every partition has an owner."""
    why = ""

    def is_stable() -> bool:
        nonlocal why
        try:
            found = admin.groups([script.group])
        except MeasurementError as error:  # a new cluster may have no group coordinator yet
            why = f" {error.message}"
            return False
        return any(
            group.state.upper() == "STABLE"
            and len(group.members) == script.consumers
            and sum(len(member.partitions) for member in group.members) == script.partitions
            for group in found
        )

    try:
        wait_until(is_stable, within_s=_STABLE_TIMEOUT_S)
    except TimedOut:
        raise MeasurementError(
            f"Group {script.group} did not become stable within {_STABLE_TIMEOUT_S:g} s.{why}",
            hint=f"Check the brokers: trimtab cluster status --name {CLUSTER}",
        ) from None


def _send(script: Script, environment: DemoEnvironment, audience: Audience) -> LoadSummary:
    stream = KeyStream(rate_s=script.rate_s, seed=script.seed, distribution=script.keys)
    with audience.bar("sending (s)") as move:
        summary = send_load(
            environment.cluster,
            keyed_load(stream, duration_s=script.duration_s, value_bytes=script.value_bytes),
            LoadTarget(topic=script.topic, seed=script.seed),
            stop=threading.Event(),
            listener=BarListener(audience, move),
        )
    audience.say(f"{summary.acknowledged} of {summary.asked} records acknowledged.")
    if summary.shortfall:
        audience.warn(f"the load {summary.shortfall}")
    if summary.failed:
        audience.warn(f"{summary.failed} records were not acknowledged")
    return summary


def _slowest(members: Sequence[SlowConsumer]) -> float:
    """The speed of the slowest member."""
    speeds = [member.speed_s for member in members if member.speed_s is not None]
    if not speeds:
        raise MeasurementError(
            "No consumer of the demo handled a record.",
            hint=f"Check the brokers: trimtab cluster status --name {CLUSTER}",
        )
    return min(speeds)
