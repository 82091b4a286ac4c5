"""Trimtab keeps partitioned event streams level: measure → plan → apply → evaluate.

This is the public face: values, errors and planners. Importing it loads neither Spark nor a Kafka
client; those live behind doors (`trimtab.measure.kafka`, `trimtab.measure.spark`, …).
"""

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
    ProtocolViolation,
    SchemaMismatch,
    ThinData,
    TrimtabError,
    UnknownPlanner,
    UnknownTopic,
    UnsupportedStore,
)
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
from trimtab.model.codec import plan_id, read_loads, read_plan, read_snapshot
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
    ConsumerState,
    Cost,
    InverseMove,
    Layer,
    Plan,
    Reason,
    Scope,
    Unplaced,
)
from trimtab.plan.consumers import plan_consumers
from trimtab.plan.registry import PLANNERS
from trimtab.plan.routing.leaders import LeaderSnapshot
from trimtab.plan.routing.partitioner import Counted, Granularity, Partitioner, RoutingOptions
from trimtab.plan.routing.registry import PARTITIONERS, partitioner_of

__version__ = "0.1.0"

__all__ = [
    "PARTITIONERS",
    "PLANNERS",
    "ApplyError",
    "Assignment",
    "BadFile",
    "Broker",
    "BrokerId",
    "BrokerUnavailable",
    "ClusterSnapshot",
    "ClusterStartFailed",
    "ConfigError",
    "ConsumerMove",
    "ConsumerState",
    "Cost",
    "Counted",
    "Fenced",
    "Findings",
    "Granularity",
    "Group",
    "GroupLimits",
    "InverseMove",
    "KeyLoad",
    "Layer",
    "LeaderSnapshot",
    "LoadStep",
    "Loads",
    "Measurement",
    "MeasurementError",
    "Member",
    "NoFeasiblePlan",
    "PartitionLoad",
    "Partitioner",
    "Plan",
    "PlanDamaged",
    "PlanOutdated",
    "PlanningError",
    "ProtocolViolation",
    "Reason",
    "Replicas",
    "RoutingOptions",
    "SchemaMismatch",
    "Scope",
    "Source",
    "ThinData",
    "TopicPartition",
    "TrimtabError",
    "Unit",
    "UnknownPlanner",
    "UnknownTopic",
    "Unplaced",
    "UnsupportedStore",
    "__version__",
    "moved",
    "partitioner_of",
    "plan_consumers",
    "plan_id",
    "read_loads",
    "read_plan",
    "read_snapshot",
]
