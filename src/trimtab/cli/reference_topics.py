"""The reference page of Trimtab's own topics, with example records."""

from __future__ import annotations

from trimtab.apply.keys.handover_layout import handover_writes
from trimtab.apply.keys.key_entry import AwaitedEnd, EntryStatus, KeyEntry, KeyHandover
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.state_layout import entry_text
from trimtab.kafka.topics import LEAST_RETENTION_MS, MOST_REPLICAS, OwnTopic, OwnTopics
from trimtab.model import codec, control_codec
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import BrokerId, Replicas, TopicPartition
from trimtab.model.control import Action, Decision, GroupState, ReadingStopped, Receipt
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.journal_codec import journal_to
from trimtab.model.load import GroupLimits, KeyLoad, PartitionLoad, Source, Unit
from trimtab.model.plan_codec import plan_to
from trimtab.model.telemetry import MOST_PARTITIONS, TelemetrySample, telemetry_to
from trimtab.model.weights import Weights
from trimtab.plan.consumers.plan import plan_consumers

Examples = dict[str, tuple[str, codec.Json]]
"""The purpose of a topic, and the value of an example record."""

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
        "The prefix `trimtab.` is the setting `topic_prefix`. A missing topic is created with "
        f"{MOST_REPLICAS} replicas (fewer on a smaller cluster) and a `min.insync.replicas` of one "
        "less; topics with a partition on each broker have one replica. An existing topic is not "
        "changed, with two exceptions: a control topic gets more partitions when there are more "
        "consumers, and a topic with a partition on each broker when there are more brokers. An "
        "existing topic is rejected if its cleanup policy is wrong, if it keeps records for less "
        f"than {LEAST_RETENTION_MS // 60_000} minutes, if its `min.insync.replicas` is above its "
        "number of replicas, or if it has several partitions where one is required.\n",
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
    return "\n".join([*parts, *_keyed_topics()])


def _keyed_topics() -> list[str]:
    """The topics beside a data topic that a group consumes by key."""
    topics = KeyedTopics("orders", "pay")
    own: KeyEntry[bytes] = KeyEntry(set_id=17, value=b'{"cents":12}', last_src=((0, 812),))
    waiting: KeyEntry[bytes] = KeyEntry(
        status=EntryStatus.WAIT, set_id=17, awaited=AwaitedEnd(3, 5120)
    )
    handover = KeyHandover(set_id=17, source=3, value=own.value, last_src=own.last_src)
    (_, sent), *_ = handover_writes(b"a", handover, 1000)
    return [
        "## Topics of keyed consumers\n",
        "`trimtab consume --keyed` creates these beside a data topic, here `orders` with the group "
        "`pay`, with as many partitions; they are compacted. Numbers in record keys are "
        "big-endian. What belongs together is written in one transaction: read them with "
        "`isolation.level=read_committed`. [How they are used](../how-to/keyed-consumer.md)\n",
        f"### {topics.state}\n",
        "The changelog of each partition. Record key `k`, the key, and the chunk as 4 bytes: the "
        "entry of a key, which is `own`, `wait` (with the partition and the offset of the END that "
        "it waits for) or `left`. `last_src` has the newest applied offset of the input by gateway "
        "shard. Record key `p`, the key, and a number as 8 bytes: a parked record. `h`, the key, "
        "and the set as 8 bytes: a hand-over that came before its START. Reserved keys: "
        "`\\x00fence` for the generations of gateway shards, `\\x00topic` for the id of the data "
        "topic.\n",
        f"```json\n{entry_text(own).decode()}\n```\n",
        f"```json\n{entry_text(waiting).decode()}\n```\n",
        f"### {topics.handover}\n",
        "States on their way to a partition. Record key: the key, the set as 8 bytes, the chunk as "
        "4 bytes. A tombstone says that the state was adopted.\n",
        f"```json\n{(sent or b'').decode()}\n```\n",
    ]


def _row(topic: OwnTopic) -> str:
    """The row of a topic: its partitions and its retention."""
    days, minutes = topic.retention_ms // 86_400_000, topic.retention_ms // 60_000
    kept = f"{days} day{'s'[: days > 1]}" if days else f"{minutes} minutes"
    only = ", exactly" if topic.only_partition else ""
    partitions = "one on each broker" if topic.per_broker else f"{topic.partitions}{only}"
    held = "compacted" if topic.compacted else kept
    return table_row(f"`{topic.name}`", partitions, held)


def _sample() -> TelemetrySample:
    """A sample of a topic with one partition whose log is known, and one unknown."""
    brokers = (BrokerId(1), BrokerId(2))
    partition = Replicas(
        topic="orders",
        partition=0,
        leader=brokers[0],
        replicas=brokers,
        isr=brokers,
        log_bytes=123,
        begin_offset=0,
        end_offset=9000,
    )
    silent = Replicas(
        topic="orders", partition=1, leader=brokers[1], replicas=brokers[::-1], isr=brokers
    )
    return TelemetrySample(
        id="5c0d",
        ts=_END,
        cluster="Zx",
        partitions=(partition, silent),
        committed={"pay": {partition.name: 8988}},
        named_groups=("pay",),
    )


def _telemetry_examples(own: OwnTopics) -> Examples:
    """Examples of measurements."""
    sample = _sample()
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
            "Key `topic`; one record per sample and topic, with a column for each value of its "
            "partitions; a sample has one `sample_id`. `log_bytes` is the size on the leader; "
            "`begin_offset` may be 10 s old; "
            f"unknown values are `null`. A topic with more than {MOST_PARTITIONS} partitions has "
            "several records, numbered by `part` and `of`. `named` are the groups that the monitor "
            "was told to watch: `null` in their columns is an unknown offset, in the column of any "
            "other group it means that the group has no offset there. Records of version 1, with "
            "the key `topic/partition` and one partition each, are still read.",
            telemetry_to(sample, sample.partitions, {"pay": {0: 8988}}),
        ),
        own.rates: (
            "Key `topic`; each record has all partitions of its topic, so the newest record is "
            "complete. `ts` is the time of the newest sample used. A record above 900 kB is split "
            "into several with the same key and `ts`: `part` counts from 0, `of` is their number. "
            "The rates count when all parts of a `ts` have arrived; without these fields a record "
            "is complete. A partition may have `lag_s`, seconds by group.",
            codec.rates_to("orders", [load], ts=_END, window_start=_START, window_end=_END),
        ),
        own.hotkeys: (
            "Key `topic`; the heavy keys of one window. A key that is not UTF-8 is encoded as "
            "`key_b64`.",
            codec.hot_keys_to(
                "orders", [key], window_start=_START, window_end=_END, n=100_000, epsilon=0.0001
            ),
        ),
    }


def _control_examples(own: OwnTopics) -> Examples:
    """Examples of the messages between a controller and its consumers."""
    return {
        own.control("pay"): (
            "One for each group, here `pay`. Partition 0 is for the controller: `started`, "
            "`stopped`, `state`, `hello`, `rate`, and `plan`, with which `trimtab apply` requests "
            "the execution of a plan. Partition i + 1 is for consumer i: `start`, "
            "`stop`, `state_query`, written in transactions. `incarnation` identifies the process "
            "that a command is for; a later process with the same index ignores it.",
            control_codec.control_to(
                ReadingStopped(
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
            "One for each group; key `state`: the state that a controller hands over to the next. "
            "`clean` is false during a hand-over. The controller that is assigned the only "
            "partition of this topic, in the consumer group `trimtab-controller-pay`, is the "
            "leader.",
            control_codec.group_state_to(
                GroupState(epoch=7, clean=True, assignment=Assignment({_PAY[0]: 0})), ts=_END
            ),
        ),
    }


def _decision_examples(own: OwnTopics) -> Examples:
    """Examples of decisions, plans and receipts."""
    return {
        own.plans: (
            "Key = the plan's id; every plan that a decision follows, in the form of a plan file. "
            "Key = the id and `/state`: the journal of a plan executed by `trimtab apply "
            f"--execute`, such as `{codec.dumps(journal_to(_JOURNAL))}`. `state` is made, running, "
            "done, failed, cancelled or rolled_back; `found` holds the state to restore, `why` the "
            "reason if the plan failed or was cancelled.",
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
            "Key = group; every decision, including those that change nothing or refuse to act.",
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
            "Key = that of the record; one each time a record is processed. `seq` is the record's "
            "`tt-seq`, `event_ts` its `tt-ts`, else its Kafka timestamp.",
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
    """Examples of the topics that steer producers."""
    return {
        own.weights: (
            "Key `brokers`: the relative share of keyless records for each broker; after "
            "`valid_s` without another record all brokers are equal. Each partition holds every "
            "record and has one replica, so that one hanging broker blocks no reader: read all "
            "partitions, use the newest `ts`.",
            codec.weights_to(Weights(ts=_END, valid_s=10, weights={1: 1.0, 2: 0.3})),
        ),
        own.probe: (
            "Written by `trimtab steer` to measure the latency of each broker, about ten small "
            "records a second; it is never read, and its values are not JSON. It gets another "
            "partition when a broker joins.",
            {},
        ),
    }
