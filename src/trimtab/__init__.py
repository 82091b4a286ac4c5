"""Trimtab keeps partitioned event streams level: measure → plan → apply → evaluate.

This is the public API: values, errors, planners, partitioners, producers and consumers. Importing
it loads neither Spark nor a Kafka client; names that need one are loaded at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab.errors import (
    ApplyError,
    BadFile,
    BrokerUnavailable,
    ClusterStartFailed,
    ConfigError,
    Fenced,
    Findings,
    MeasurementError,
    NoFeasiblePlan,
    PlanDamaged,
    PlanningError,
    PlanOutdated,
    PortTaken,
    ProtocolViolation,
    SchemaMismatch,
    StateTooLarge,
    ThinData,
    TokenRefused,
    TrimtabError,
    UnknownPlanner,
    UnknownTopic,
    UnsupportedStore,
)
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import (
    Broker,
    BrokerId,
    ClusterSnapshot,
    Group,
    Member,
    Replicas,
    TopicPartition,
)
from trimtab.model.codec import read_counts, read_loads, read_snapshot
from trimtab.model.control import Action
from trimtab.model.json_files import write_counts, write_loads, write_plan, write_snapshot
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.load import (
    GroupLimits,
    KeyLoad,
    Loads,
    LoadStep,
    Measurement,
    PartitionLoad,
    Source,
    Unit,
)
from trimtab.model.plan import (
    ConsumerMove,
    ConsumerPlan,
    ConsumerState,
    Cost,
    InverseMove,
    KeyCost,
    KeyInverse,
    KeyMove,
    KeyPlan,
    KeyReason,
    KeyState,
    Layer,
    MemberName,
    Plan,
    Reason,
    Scope,
    Unplaced,
)
from trimtab.model.plan_codec import plan_id, read_plan
from trimtab.model.timeouts import Timeouts
from trimtab.model.weights import Weights
from trimtab.plan.consumers.any_fit import FirstBin, SortOrder
from trimtab.plan.consumers.baselines import KeptPartitions
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.planner import (
    Autoscaler,
    MoveBudget,
    PackingContext,
    PackingPlanner,
    PackingRule,
    PlannerKind,
    PlannerOptions,
    ScalingDecision,
    ScalingRequest,
)
from trimtab.plan.keys.plan import plan_keys
from trimtab.plan.keys.planner import (
    BalancedLoad,
    CoolBelow,
    InitialPlace,
    KeyContext,
    KeyDecision,
    KeyOptions,
    KeyPlanner,
    KeyRule,
    WorthTest,
)
from trimtab.plan.records.leaders import LeaderSnapshot, TopicLeaders
from trimtab.plan.records.live_weights import LiveWeights
from trimtab.plan.records.partitioner import CountUnit, Granularity, Partitioner, RoutingOptions
from trimtab.plan.records.ratios import Ratios, ratios
from trimtab.plan.records.registry import PARTITIONERS, partitioner_of
from trimtab.plan.registry import PLANNERS, planner_of

if TYPE_CHECKING:
    from trimtab.apply.capacity import Capacity
    from trimtab.apply.consumers.interfaces import AttachedWorker, RecordWorker, Sink, WorkerFactory
    from trimtab.apply.consumers.kafka.consumer import (
        ConsumerConfig,
        DirectedConsumer,
        GroupConsumer,
    )
    from trimtab.apply.consumers.kafka.directed_reader import OffsetReset
    from trimtab.apply.consumers.kafka.parquet_sink import Lake
    from trimtab.apply.consumers.work import Limits
    from trimtab.apply.handling import Handler
    from trimtab.apply.keys.kafka.keyed_work import KeyedWork
    from trimtab.apply.keys.key_entry import DropReason
    from trimtab.apply.keys.keyed_handler import (
        BytesCodec,
        JsonCodec,
        KeyedHandler,
        MsgpackCodec,
        Output,
        StateCodec,
        StateFormat,
    )
    from trimtab.apply.keys.task import ParkingLimits
    from trimtab.apply.keys.task_round import Adoption, AppliedReceipt, TaskCounts, TaskLimits
    from trimtab.apply.records.kafka.leader_watch import LeaderSource, LeaderWatch
    from trimtab.apply.records.kafka.partitioner import (
        RoutedPartitioner,
        WaitingBatches,
        for_kafka_python,
    )
    from trimtab.apply.records.kafka.routed_producer import RoutedProducer
    from trimtab.apply.records.kafka.weights_reader import WeightsReader
    from trimtab.apply.records.outstanding import OutstandingBytes
    from trimtab.apply.records.spark.routed_sink import leaders_now, with_partitions, write_routed
    from trimtab.apply.totals import Totals
    from trimtab.kafka.retry import Retry
    from trimtab.kafka.topics import OwnTopics
    from trimtab.model.record import Record
    from trimtab.services.keyed_consumer import KeyedConsumer

__version__ = "0.1.0"

_LAZY = {
    "Adoption": "trimtab.apply.keys.task_round",
    "AppliedReceipt": "trimtab.apply.keys.task_round",
    "AttachedWorker": "trimtab.apply.consumers.interfaces",
    "BytesCodec": "trimtab.apply.keys.keyed_handler",
    "Capacity": "trimtab.apply.capacity",
    "ConsumerConfig": "trimtab.apply.consumers.kafka.consumer",
    "DirectedConsumer": "trimtab.apply.consumers.kafka.consumer",
    "DropReason": "trimtab.apply.keys.key_entry",
    "GroupConsumer": "trimtab.apply.consumers.kafka.consumer",
    "Handler": "trimtab.apply.handling",
    "JsonCodec": "trimtab.apply.keys.keyed_handler",
    "KeyedConsumer": "trimtab.services.keyed_consumer",
    "KeyedHandler": "trimtab.apply.keys.keyed_handler",
    "KeyedWork": "trimtab.apply.keys.kafka.keyed_work",
    "Lake": "trimtab.apply.consumers.kafka.parquet_sink",
    "LeaderSource": "trimtab.apply.records.kafka.leader_watch",
    "LeaderWatch": "trimtab.apply.records.kafka.leader_watch",
    "Limits": "trimtab.apply.consumers.work",
    "MsgpackCodec": "trimtab.apply.keys.keyed_handler",
    "OffsetReset": "trimtab.apply.consumers.kafka.directed_reader",
    "Output": "trimtab.apply.keys.keyed_handler",
    "OutstandingBytes": "trimtab.apply.records.outstanding",
    "OwnTopics": "trimtab.kafka.topics",
    "ParkingLimits": "trimtab.apply.keys.task",
    "Record": "trimtab.model.record",
    "RecordWorker": "trimtab.apply.consumers.interfaces",
    "Retry": "trimtab.kafka.retry",
    "RoutedPartitioner": "trimtab.apply.records.kafka.partitioner",
    "RoutedProducer": "trimtab.apply.records.kafka.routed_producer",
    "Sink": "trimtab.apply.consumers.interfaces",
    "StateCodec": "trimtab.apply.keys.keyed_handler",
    "StateFormat": "trimtab.apply.keys.keyed_handler",
    "TaskCounts": "trimtab.apply.keys.task_round",
    "TaskLimits": "trimtab.apply.keys.task_round",
    "Totals": "trimtab.apply.totals",
    "WaitingBatches": "trimtab.apply.records.kafka.partitioner",
    "WeightsReader": "trimtab.apply.records.kafka.weights_reader",
    "WorkerFactory": "trimtab.apply.consumers.interfaces",
    "for_kafka_python": "trimtab.apply.records.kafka.partitioner",
    "leaders_now": "trimtab.apply.records.spark.routed_sink",
    "with_partitions": "trimtab.apply.records.spark.routed_sink",
    "write_routed": "trimtab.apply.records.spark.routed_sink",
}
"""Modules of names that need a Kafka client, Spark or pyarrow; imported at their first use."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "PARTITIONERS",
    "PLANNERS",
    "Action",
    "Adoption",
    "AppliedReceipt",
    "ApplyError",
    "Assignment",
    "AttachedWorker",
    "Autoscaler",
    "BadFile",
    "BalancedLoad",
    "Broker",
    "BrokerId",
    "BrokerUnavailable",
    "BytesCodec",
    "Capacity",
    "ClientProperties",
    "Cluster",
    "ClusterSnapshot",
    "ClusterStartFailed",
    "ConfigError",
    "ConsumerConfig",
    "ConsumerMove",
    "ConsumerPlan",
    "ConsumerState",
    "CoolBelow",
    "Cost",
    "CountUnit",
    "DirectedConsumer",
    "DropReason",
    "Fenced",
    "Findings",
    "FirstBin",
    "Granularity",
    "Group",
    "GroupConsumer",
    "GroupLimits",
    "Handler",
    "InitialPlace",
    "InverseMove",
    "JsonCodec",
    "KeptPartitions",
    "KeyContext",
    "KeyCost",
    "KeyCount",
    "KeyCounts",
    "KeyDecision",
    "KeyInverse",
    "KeyLoad",
    "KeyMove",
    "KeyOptions",
    "KeyPlan",
    "KeyPlanner",
    "KeyReason",
    "KeyRule",
    "KeyState",
    "KeyedConsumer",
    "KeyedHandler",
    "KeyedWork",
    "Lake",
    "Layer",
    "LeaderSnapshot",
    "LeaderSource",
    "LeaderWatch",
    "Limits",
    "LiveWeights",
    "LoadStep",
    "Loads",
    "Measurement",
    "MeasurementError",
    "Member",
    "MemberName",
    "MoveBudget",
    "MsgpackCodec",
    "NoFeasiblePlan",
    "OffsetReset",
    "Output",
    "OutstandingBytes",
    "OwnTopics",
    "PackingContext",
    "PackingPlanner",
    "PackingRule",
    "ParkingLimits",
    "PartitionLoad",
    "Partitioner",
    "Plan",
    "PlanDamaged",
    "PlanOutdated",
    "PlannerKind",
    "PlannerOptions",
    "PlanningError",
    "PortTaken",
    "ProtocolViolation",
    "Ratios",
    "Reason",
    "Record",
    "RecordWorker",
    "Replicas",
    "Retry",
    "RoutedPartitioner",
    "RoutedProducer",
    "RoutingOptions",
    "ScalingDecision",
    "ScalingRequest",
    "SchemaMismatch",
    "Scope",
    "Sink",
    "SortOrder",
    "Source",
    "StateCodec",
    "StateFormat",
    "StateTooLarge",
    "TaskCounts",
    "TaskLimits",
    "ThinData",
    "Timeouts",
    "TokenRefused",
    "TopicLeaders",
    "TopicPartition",
    "Totals",
    "TrimtabError",
    "Unit",
    "UnknownPlanner",
    "UnknownTopic",
    "Unplaced",
    "UnsupportedStore",
    "WaitingBatches",
    "Weights",
    "WeightsReader",
    "WorkerFactory",
    "WorthTest",
    "__version__",
    "for_kafka_python",
    "leaders_now",
    "moved",
    "partitioner_of",
    "plan_consumers",
    "plan_id",
    "plan_keys",
    "planner_of",
    "ratios",
    "read_counts",
    "read_loads",
    "read_plan",
    "read_snapshot",
    "with_partitions",
    "write_counts",
    "write_loads",
    "write_plan",
    "write_routed",
    "write_snapshot",
]
