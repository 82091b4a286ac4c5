"""Sends a load to a topic on an open-loop schedule."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.model.codec import read_loads
from trimtab.model.load import Measurement
from trimtab.services.progress import NO_LISTENER, ProgressListener
from trimtab.workload import due
from trimtab.workload.due import Acks, DueRecords
from trimtab.workload.rate_streams import RateSchedule

if TYPE_CHECKING:
    import threading

    from trimtab.kafka.cluster import Cluster
    from trimtab.workload.key_streams import KeyStream
    from trimtab.workload.load_summary import LoadProgress, LoadSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send, for how long, and how many partitions it needs."""

    blocks: Iterable[DueRecords]
    duration_s: float
    partitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The topic and the producer options; `create` is the partition count of a missing topic."""

    topic: str
    create: int | None = None
    replication_factor: int | None = None
    seed: int = 0
    acks: Acks = Acks.ALL
    linger_s: float = 0.005
    delivery_timeout_s: float = 120.0
    late_after_s: float = 0.1
    record: Path | None = None


def keyed_load(stream: KeyStream, *, duration_s: float, value_bytes: int) -> Load:
    """Records with keys, drawn from a stream."""
    blocks = due.keyed(stream, duration_s=duration_s, value_bytes=value_bytes)
    return Load(blocks=blocks, duration_s=duration_s)


def scheduled_load(
    schedule: RateSchedule,
    *,
    seed: int,
    value_bytes: int,
    poisson: bool = False,
    at_most_s: float | None = None,
) -> Load:
    """Records without keys, at a changing rate for each partition."""
    blocks = due.partitioned(schedule, seed=seed, value_bytes=value_bytes, poisson=poisson)
    length_s = min(schedule.duration_s, at_most_s or schedule.duration_s)
    return Load(
        blocks=due.until(blocks, length_s),
        duration_s=length_s,
        partitions=len(schedule.partitions),
    )


def keyless_load(*, rate_s: float, duration_s: float, seed: int, value_bytes: int) -> Load:
    """Records without keys at one rate; the client chooses their partitions."""
    steady = RateSchedule.constant([rate_s], duration_s=duration_s)
    blocks = due.keyless(steady, seed=seed, value_bytes=value_bytes)
    return Load(blocks=blocks, duration_s=duration_s)


def recorded_load(
    file: Path,
    *,
    value_bytes: int,
    speed: float = 1.0,
    by_key: bool = False,
    at_most_s: float | None = None,
) -> Load:
    """The records of a trace; with `by_key` the client chooses their partitions."""
    from trimtab.workload.traces import read_trace

    found = read_trace(file)
    blocks = found.blocks(value_bytes=value_bytes, speed=speed, by_key=by_key)
    whole_s = found.duration_s / speed
    return Load(
        blocks=blocks if at_most_s is None else due.until(blocks, at_most_s),
        duration_s=whole_s if at_most_s is None else min(at_most_s, whole_s),
        partitions=1 if by_key else max(1, found.partitions),
    )


def schedule_of_file(
    path: Path,
    *,
    topic: str,
    step_s: float,
    value_bytes: int,
    listener: ProgressListener = NO_LISTENER,
) -> RateSchedule:
    """The rates of a loads file, step by step, in records/s."""
    found, warnings = read_loads(path)
    for line in warnings:
        listener.warning(line)
    if isinstance(found, Measurement):
        raise ConfigError(
            f"{path} is a measurement, which has no steps.",
            hint="--schedule takes ezzeddine-1, landau, or a loads file.",
        )
    return due.schedule_of(
        found, origin=str(path), topic=topic, step_s=step_s, value_bytes=value_bytes
    )


def send_load(
    cluster: Cluster,
    load: Load,
    target: LoadTarget,
    *,
    stop: threading.Event,
    listener: ProgressListener = NO_LISTENER,
) -> LoadSummary:
    """Sends the load on schedule until it ends or `stop` is set; returns a summary."""
    from trimtab.workload.kafka.load import Delivery, ensure_topic, send
    from trimtab.workload.traces import recording

    partitions = ensure_topic(
        target.topic,
        cluster=cluster,
        create=target.create,
        replication_factor=target.replication_factor,
        least_partitions=load.partitions,
    )
    listener.started(
        f"Sending to {target.topic} ({partitions} partitions) for {load.duration_s:g} s"
    )
    total = max(1, round(load.duration_s))
    listener.progress("sending", 0, total)
    with ExitStack() as opened:
        recorder = opened.enter_context(recording(target.record)) if target.record else None
        return send(
            load.blocks,
            topic=target.topic,
            cluster=cluster,
            delivery=Delivery(
                acks=target.acks,
                linger_ms=target.linger_s * 1000,
                timeout_s=target.delivery_timeout_s,
            ),
            seed=target.seed,
            late_after_s=target.late_after_s,
            duration_s=load.duration_s,
            record=None if recorder is None else recorder.write,
            stop=stop,
            on_progress=lambda now: listener.progress(
                _progress_text(now, target.late_after_s), min(int(now.time_s), total), total
            ),
        )


def _progress_text(now: LoadProgress, late_after_s: float) -> str:
    """The progress so far, as text."""
    failed = f", {now.failed} failed" if now.failed else ""
    behind = f", {now.behind_s:.1f} s behind" if now.behind_s > late_after_s else ""
    return f"{now.sent} sent, {now.acknowledged} acknowledged{failed}{behind}"
