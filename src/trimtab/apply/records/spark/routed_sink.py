"""Rows for Spark's Kafka sink, with their `partition` chosen by one of our partitioners.

Promise  Every row is returned once, unchanged, with its partition. A set partition stays; a keyed
         row gets Kafka's murmur2 partition; a keyless row is routed. Each task has its own
         partitioner with its own start (or seed), so that tasks do not use the same broker in step.
         `write_routed` leaves keyed rows to the JVM's producer and its settings, and reads the
         leaders for each batch: an old snapshot only costs balance, but a deleted partition fails
         the task. At least once, as always with this sink: a repeated task writes its rows again.
Cost     Keys are hashed in numpy, or by the JVM; a keyless row costs one call in Python. Executors
         import this module, so it must not import the Kafka clients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import Broadcast, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType

from trimtab.errors import SchemaMismatch
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.murmur2 import homes
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import (
    Partitioner,
    RoutingOptions,
    none_stuck,
    nothing_queued,
)
from trimtab.plan.records.registry import DEFAULTS, partitioner_of
from trimtab.spark.session import spark_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

PARTITION = "partition"
_TEXT: tuple[type[DataType], ...] = (BinaryType, StringType)


def with_partitions(
    rows: DataFrame,
    snapshot: LeaderSnapshot | Broadcast[LeaderSnapshot],
    partitioner: str,
    options: RoutingOptions = DEFAULTS,
    *,
    topic: str | None = None,
    weights: Mapping[int, float] | None = None,
    keys_by_client: bool = False,
) -> DataFrame:
    """The rows with an integer column `partition`; evaluated lazily.

    Args:
        rows: Rows for the sink: `value`, optionally `key`, `topic`, `partition`, `headers`.
        snapshot: The partition leaders; broadcast a large one.
        partitioner: The partitioner's name.
        options: Its options; executors get a copy, and have no queues.
        topic: The topic of all rows; default: the column `topic`.
        weights: The weights of `weighted-node` for these rows, by broker; None uses the current
            `options.weights`.
        keys_by_client: Whether rows with a key get no partition, so that the JVM's producer
            chooses by its own settings.
    """
    schema = _checked(rows.schema, topic)
    weighed = dict(options.weights() if weights is None else weights)
    task_options = replace(options, weights=weighed.copy, queues=nothing_queued, stuck=none_stuck)
    # An unknown name fails here, not in a task.
    partitioner_of(partitioner, task_options)
    if topic is not None:
        _value(snapshot).topic(topic)

    def fill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chooser = partitioner_of(partitioner, of_task(task_options, TaskContext.get()))
        yield from map(
            filling(chooser, _value(snapshot), task_options, topic, keys_by_client=keys_by_client),
            batches,
        )

    return rows.mapInArrow(fill, schema)


def write_routed(
    batch: DataFrame,
    cluster: Cluster | str,
    partitioner: str,
    options: RoutingOptions = DEFAULTS,
    *,
    topic: str | None = None,
    weights: Mapping[int, float] | None = None,
    producer: Mapping[str, str] | None = None,
) -> None:
    """Writes a batch to Kafka, its keyless rows routed by the current leaders; for `foreachBatch`.

    Args:
        batch: Rows for Spark's Kafka sink.
        cluster: The target: a `Cluster`, or the address of one without authentication.
        partitioner: The partitioner's name.
        options: Its options.
        topic: The topic of all rows; default: the column `topic`.
        weights: The weights of `weighted-node` for this batch, by broker; None uses the current
            `options.weights`.
        producer: More settings of the JVM's producer, by Kafka's names.
    """
    to = Cluster.of(cluster)
    settings = {f"kafka.{k}": v for k, v in (producer or {}).items()}
    settings = to.properties.for_spark() | settings | {"kafka.bootstrap.servers": to.servers}
    if topic is not None:
        settings["topic"] = topic
    if _spreads_keys(settings):
        options = replace(options, ignore_keys=True)
    snapshot = leaders_now(to, None if topic is None else [topic])
    shared = batch.sparkSession.sparkContext.broadcast(snapshot)
    try:
        rows = with_partitions(
            batch, shared, partitioner, options, topic=topic, weights=weights, keys_by_client=True
        )
        with spark_errors("writing to Kafka"):
            rows.write.format("kafka").options(**settings).save()
    finally:
        shared.destroy()  # else each batch of a stream leaves a file behind


def _spreads_keys(settings: Mapping[str, str]) -> bool:
    """Whether the JVM's producer, with these settings, ignores the keys of rows."""
    ignored = str(settings.get("kafka.partitioner.ignore.keys", "false")).strip().lower()
    return ignored == "true" and "kafka.partitioner.class" not in settings


def leaders_now(cluster: Cluster, topics: Collection[str] | None) -> LeaderSnapshot:
    """The current leaders of these topics, or of all."""
    with cluster.admin() as admin:
        info, placed = admin.cluster(), admin.topics(topics)
    return LeaderSnapshot.of(
        ClusterSnapshot(ts=0, cluster=info.cluster, brokers=info.brokers, partitions=placed)
    )


def of_task(options: RoutingOptions, task: TaskContext | None) -> RoutingOptions:
    """The options with a seed for this task, if there is a seed."""
    if options.seed is None or task is None:
        return options
    return replace(options, seed=options.seed * 1_000_003 + task.partitionId())


# ---------------------------------------------------------------- in a task


def filling(
    partitioner: Partitioner,
    snapshot: LeaderSnapshot,
    options: RoutingOptions,
    topic: str | None,
    *,
    keys_by_client: bool = False,
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The function that fills in the partitions of each Arrow batch of one task."""
    import pyarrow as pa

    def fill(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
        key = columns.get("key")
        chosen, missing = _given(columns.get(PARTITION), batch.num_rows)
        at_home = missing & _keyed(key, batch.num_rows) & (not options.ignore_keys)
        size = _sizes(columns["value"]) + (0 if key is None else _sizes(key))
        where = columns["topic"] if topic is None else topic
        for name, rows in _by_topic(where, batch.num_rows):
            keyed, free = rows[at_home[rows]], rows[(missing & ~at_home)[rows]]
            everyone = snapshot.topic(name).all
            if len(keyed) and not keys_by_client:
                chosen[keyed] = _homes(key, keyed, everyone)
            chosen[free] = [
                partitioner.partition(name, None, of_row, snapshot)
                for of_row in size[free].tolist()
            ]
            missing[rows] = at_home[rows] if keys_by_client else False
        columns[PARTITION] = pa.array(chosen, pa.int32(), mask=missing)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    return fill


def _given(column: pa.Array | None, rows: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The partitions that are set, and a mask of rows without one."""
    if column is None:
        return np.zeros(rows, np.int32), np.ones(rows, np.bool_)
    return _numpy(column.fill_null(0)).copy(), _numpy(column.is_null()).copy()


def _keyed(key: pa.Array | None, rows: int) -> NDArray[np.bool_]:
    return np.zeros(rows, np.bool_) if key is None else _numpy(key.is_valid())


def _sizes(column: pa.Array) -> NDArray[np.int64]:
    """The size of each row in bytes; text as UTF-8."""
    import pyarrow.compute as pc

    sizes: NDArray[np.int64] = _numpy(pc.binary_length(column).fill_null(0)).astype(np.int64)
    return sizes


def _homes(key: Any, rows: NDArray[np.int64], everyone: tuple[int, ...]) -> NDArray[np.int64]:
    import pyarrow as pa

    keys = key.take(pa.array(rows)).cast(pa.binary()).to_pylist()
    found: NDArray[np.int64] = np.array(everyone)[homes(keys, len(everyone))]
    return found


def _by_topic(where: pa.Array | str, rows: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The rows of each topic; rows without one are left to the sink, which refuses them."""
    import pyarrow.compute as pc

    if isinstance(where, str):
        yield where, np.arange(rows)
        return
    for name in where.drop_null().unique().to_pylist():
        yield name, np.flatnonzero(_numpy(pc.equal(where, name).fill_null(False)))


def _numpy(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _value(snapshot: LeaderSnapshot | Broadcast[LeaderSnapshot]) -> LeaderSnapshot:
    return snapshot.value if isinstance(snapshot, Broadcast) else snapshot


def _checked(found: StructType, topic: str | None) -> StructType:
    """The columns of the result; raises for columns that the sink would refuse."""
    types: dict[str, DataType] = {field.name: field.dataType for field in found.fields}
    if "value" not in types:
        raise SchemaMismatch(f"The rows have no column value, only {', '.join(types)}.")
    if topic is None and not isinstance(types.get("topic"), StringType):
        raise SchemaMismatch(
            "The rows have no text column topic.", hint="Add one, or pass the topic."
        )
    for name in ("key", "value"):
        if not isinstance(types.get(name, BinaryType()), _TEXT):
            raise SchemaMismatch(
                f"The column {name} is {types[name].simpleString()}, not binary or string."
            )
    if PARTITION not in types:
        return StructType([*found.fields, StructField(PARTITION, IntegerType())])
    if not isinstance(types[PARTITION], IntegerType):
        raise SchemaMismatch(f"The column partition is {types[PARTITION].simpleString()}, not int.")
    return found
