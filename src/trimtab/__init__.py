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

__version__ = "0.1.0"

__all__ = [
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
    "Fenced",
    "Findings",
    "Group",
    "GroupLimits",
    "InverseMove",
    "KeyLoad",
    "Layer",
    "LoadStep",
    "Loads",
    "Measurement",
    "MeasurementError",
    "Member",
    "NoFeasiblePlan",
    "PartitionLoad",
    "Plan",
    "PlanDamaged",
    "PlanOutdated",
    "PlanningError",
    "ProtocolViolation",
    "Reason",
    "Replicas",
    "SchemaMismatch",
    "Scope",
    "Source",
    "ThinData",
    "TopicPartition",
    "TrimtabError",
    "Unit",
    "UnknownPlanner",
    "Unplaced",
    "UnsupportedStore",
    "__version__",
    "moved",
    "plan_consumers",
    "plan_id",
    "read_loads",
    "read_plan",
    "read_snapshot",
]
