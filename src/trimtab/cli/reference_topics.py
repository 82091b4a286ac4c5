"""The page on topics: every topic of Trimtab's own, with an example of its records."""

from __future__ import annotations

from trimtab.kafka.topics import LEAST_RETENTION_MS, MOST_REPLICAS, OwnTopic, OwnTopics
from trimtab.model import codec, control_codec
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import BrokerId, Replicas, TopicPartition
from trimtab.model.control import Action, Decision, GroupState, Receipt, Stopped
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.journal_codec import journal_to
from trimtab.model.load import GroupLimits, KeyLoad, PartitionLoad, Source, Unit
from trimtab.model.plan_codec import plan_to
from trimtab.model.weights import Weights
from trimtab.plan.consumers.plan import plan_consumers

Examples = dict[str, tuple[str, codec.Json]]
"""What a topic is for, and the value of one of its records."""

_START, _END = 1_700_000_000_000_000, 1_700_000_030_000_000
_PAY = (TopicPartition("orders", 1),)
_JOURNAL = JournalEntry(plan="7f3a9c01d2e4", state=PlanState.RUNNING, step=1, of=3, ts=_END)


def table_row(*cells: str) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def topics_page() -> str:
    """The page, as Markdown."""
    own = OwnTopics()
    every = (*own.all, *own.of_group("pay"), *own.of_steering)
    examples = {
        **_telemetry_examples(own),
        **_control_examples(own),
        **_decision_examples(own),
        **_steering_examples(own),
    }
    parts = [
        "# Topics\n",
        "The prefix `trimtab.` is the setting `topic_prefix`. A topic that is missing is made with "
        f"{MOST_REPLICAS} replicas (fewer on a smaller cluster), all but one of which must be in "
        "sync; those with a partition on each broker have one replica. One that exists is never "
        "changed, but that a control topic gets more partitions when there are more consumers, and "
        "one with a partition on each broker when there are more brokers; it is refused when it is "
        "compacted (or not), when it keeps records for less than "
        f"{LEAST_RETENTION_MS // 60_000} minutes, when it asks for more in-sync replicas than it "
        "has, or when it has several partitions where one is needed.\n",
        table_row("topic", "partitions", "kept for"),
        table_row("---", "---", "---"),
    ]
    parts += [_row(topic) for topic in every]
    parts.append("")
    for topic in every:
        said, record = examples[topic.name]
        parts += [f"## {topic.name}\n", f"{said}\n"]
        if record:
            parts.append(f"```json\n{codec.dumps(record)}\n```\n")
    return "\n".join(parts)


def _row(topic: OwnTopic) -> str:
    """The topic in the table: its partitions, and how long it keeps records."""
    days, minutes = topic.retention_ms // 86_400_000, topic.retention_ms // 60_000
    kept = f"{days} day{'s'[: days > 1]}" if days else f"{minutes} minutes"
    only = ", exactly" if topic.only_partition else ""
    partitions = "one on each broker" if topic.per_broker else f"{topic.partitions}{only}"
    held = "the newest of each key" if topic.compacted else kept
    return table_row(f"`{topic.name}`", partitions, held)


def _telemetry_examples(own: OwnTopics) -> Examples:
    """What is measured."""
    partition = Replicas(
        topic="orders",
        partition=0,
        leader=BrokerId(1),
        replicas=(BrokerId(1), BrokerId(2)),
        isr=(BrokerId(1), BrokerId(2)),
        log_bytes=123,
        begin_offset=0,
        end_offset=9000,
    )
    load = PartitionLoad(
        topic="orders",
        partition=0,
        bytes_s=41667.0,
        records_s=410.0,
        source=Source.LOG_DIRS,
        end_offset=9000,
        lag={"pay": 12},
    )
    key = KeyLoad(topic="orders", key=b"a", lower=3990, upper=4000, share=0.04, partition_home=3)
    return {
        own.telemetry: (
            "Key `topic/partition`; one record per sample and partition, all of a sample under one "
            "`sample_id`. `log_bytes` is the size on the leader; what is unknown is `null`.",
            codec.telemetry_to(
                partition, ts=_END, sample_id="5c0d", cluster="Zx", committed={"pay": 8988}
            ),
        ),
        own.rates: (
            "Key `topic`; each record has all partitions of its topic, so the newest one is "
            "complete by itself. `ts` is that of the newest sample used.",
            codec.rates_to("orders", [load], ts=_END, window_start=_START, window_end=_END),
        ),
        own.hotkeys: (
            "Key `topic`; the heavy keys of one window. A key that is not UTF-8 stands as "
            "`key_b64`.",
            codec.hot_keys_to(
                "orders", [key], window_start=_START, window_end=_END, n=100_000, epsilon=0.0001
            ),
        ),
    }


def _control_examples(own: OwnTopics) -> Examples:
    """What a controller and its consumers tell each other."""
    return {
        own.control("pay"): (
            "One for each group, here `pay`. Partition 0 is for the controller: `started`, "
            "`stopped`, `state`, `hello`, `rate`, and `plan`, with which `trimtab apply` asks for "
            "a plan to be carried out. Partition i + 1 is for consumer i: `start`, "
            "`stop`, `state_query`, written in transactions. `incarnation` in a command says "
            "which process it is for; the next one under the same index ignores it.",
            control_codec.control_to(
                Stopped(
                    consumer=0,
                    incarnation="9b",
                    epoch=7,
                    seq=41,
                    partitions=_PAY,
                    committed={_PAY[0]: 8988},
                ),
                ts=_END,
            ),
        ),
        own.group("pay"): (
            "One for each group; key `state`: what its controller leaves to the next. `clean` is "
            "false while a hand-over is under way. Who owns the one partition of this topic, in "
            "the consumer group `trimtab-controller-pay`, leads.",
            control_codec.group_state_to(
                GroupState(epoch=7, clean=True, assignment=Assignment({_PAY[0]: 0})), ts=_END
            ),
        ),
    }


def _decision_examples(own: OwnTopics) -> Examples:
    """What is decided and done."""
    return {
        own.plans: (
            "Key = the plan's id; every plan that a decision follows, in the form of a plan file. "
            "Key = the id and `/state`: the journal of a plan that `trimtab apply --execute` asked "
            f"for, such as `{codec.dumps(journal_to(_JOURNAL))}`. `state` is made, running, done, "
            "failed, cancelled or rolled_back; `found` holds what is to be restored, `why` the "
            "reason of an end that was not wanted.",
            plan_to(
                plan_consumers(
                    {TopicPartition("orders", n): 60.0 for n in range(2)},
                    Assignment({TopicPartition("orders", n): 0 for n in range(2)}),
                    GroupLimits(capacity=100.0, unit=Unit.RECORDS_S),
                    planner="trim",
                    made_ts=_END,
                    group="pay",
                )
            ),
        ),
        own.decisions: (
            "Key = group; every decision, doing nothing and refusing included.",
            control_codec.decision_to(
                Decision(
                    ts=_END,
                    group="pay",
                    action=Action.SCALE_UP,
                    before=1,
                    after=2,
                    plan="7f3a9c01d2e4",
                    reason="consumer 0 carries 120 records/s, above 100",
                    forecast={"consumers": 2, "max_load": 60.0},
                )
            ),
        ),
        own.receipts: (
            "Key = that of the record; one for each processing. `seq` is the record's `tt-seq`, "
            "`event_ts` its `tt-ts`, else the time that Kafka keeps.",
            control_codec.receipt_to(
                Receipt(
                    run="live",
                    group="pay",
                    topic="orders",
                    partition=0,
                    offset=17,
                    key=b"a",
                    seq=5,
                    consumer=0,
                    incarnation="9b",
                    event_ts=_END,
                    started_ts=_END + 2000,
                    finished_ts=_END + 3000,
                )
            ),
        ),
    }


def _steering_examples(own: OwnTopics) -> Examples:
    """What steers producers."""
    return {
        own.weights: (
            "Key `brokers`: how much of the keyless records each broker should get; after "
            "`valid_s` without another record all count the same. Each partition holds every "
            "record and has one replica, so that a broker that hangs holds up nobody: read all, "
            "take the newest `ts`.",
            codec.weights_to(Weights(ts=_END, valid_s=10, weights={1: 1.0, 2: 0.3})),
        ),
        own.probe: (
            "Written by `trimtab steer` to measure each broker by itself, some ten small records "
            "a second; nobody reads it, and its values are no JSON. It gets a partition more when "
            "a broker joins.",
            {},
        ),
    }
