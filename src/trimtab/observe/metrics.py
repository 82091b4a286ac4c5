"""All Prometheus metrics of Trimtab, named `trimtab_<stage>_<noun>_<unit>`.

Metrics that kafka-exporter also has are exposed under its names, too, so that its dashboards and
alerts work without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from trimtab.errors import ConfigError

Series = Mapping[tuple[str, ...], float | None]
"""Values by labels; None means unknown and is not exposed."""


class SeriesGauge(Collector):
    """A gauge whose series are read at each scrape, so that old series disappear.

    `twin` is its name in kafka-exporter, under which the series are exposed a second time; there
    the label `group` is `consumergroup`. `also` is the same or a similar metric of other exporters.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        twin: str | None = None,
        also: str | None = None,
    ) -> None:
        self.name, self.documentation = name, documentation
        self.labels, self.twin, self.also = tuple(labels), twin, also
        self._read: Callable[[], Series] | None = None
        REGISTRY.register(self)

    def read_from(self, read: Callable[[], Series] | None) -> None:
        """Exposes what `read` returns at each scrape; None exposes nothing."""
        self._read = read

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The name and the help, without values."""
        yield from self._families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The current series."""
        series = sorted((self._read() if self._read else {}).items())
        for family in self._families():
            for labels, value in series:
                if value is not None:
                    family.add_metric(labels, value)
            yield family

    def _families(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(self.name, self.documentation, labels=self.labels)
        if self.twin is not None:
            labels = ["consumergroup" if label == "group" else label for label in self.labels]
            yield GaugeMetricFamily(self.twin, self.documentation, labels=labels)


_PARTITION = ("topic", "partition")
_GROUP_PARTITION = ("group", *_PARTITION)

monitor_freshness_seconds = SeriesGauge(
    "trimtab_monitor_freshness_seconds", "Now minus the time of the newest sample", ()
)
monitor_interval_seconds = SeriesGauge(
    "trimtab_monitor_interval_seconds",
    "Time between two samples: the period, or a multiple of it while samples take longer",
    (),
)
monitor_partition_begin_offset = SeriesGauge(
    "trimtab_monitor_partition_begin_offset",
    "First offset of a partition's log",
    _PARTITION,
    twin="kafka_topic_partition_oldest_offset",
)
monitor_partition_end_offset = SeriesGauge(
    "trimtab_monitor_partition_end_offset",
    "Offset of the next record of a partition",
    _PARTITION,
    twin="kafka_topic_partition_current_offset",
)
monitor_partition_log_bytes = SeriesGauge(
    "trimtab_monitor_partition_log_bytes",
    "Size of a partition's log on its leader",
    _PARTITION,
    also="kafka_log_log_size",
)
monitor_partition_replicas = SeriesGauge(
    "trimtab_monitor_partition_replicas",
    "Replicas of a partition",
    _PARTITION,
    twin="kafka_topic_partition_replicas",
)
monitor_partition_in_sync_replicas = SeriesGauge(
    "trimtab_monitor_partition_in_sync_replicas",
    "Replicas of a partition that are in sync",
    _PARTITION,
    twin="kafka_topic_partition_in_sync_replica",
)
monitor_group_offset = SeriesGauge(
    "trimtab_monitor_group_offset",
    "Committed offset of a group in a partition",
    _GROUP_PARTITION,
    twin="kafka_consumergroup_current_offset",
)
monitor_group_lag_records = SeriesGauge(
    "trimtab_monitor_group_lag_records",
    "End offset minus committed offset of a group in a partition",
    _GROUP_PARTITION,
    twin="kafka_consumergroup_lag",
)

measure_partition_bytes_per_second = SeriesGauge(
    "trimtab_measure_partition_bytes_per_second",
    "Bytes per second that producers write to a partition, as stored",
    _PARTITION,
    also="kafka_server_brokertopicmetrics_bytesin_total as a rate, there per topic only",
)
measure_partition_records_per_second = SeriesGauge(
    "trimtab_measure_partition_records_per_second",
    "Records per second that producers write to a partition",
    _PARTITION,
    also="rate(kafka_topic_partition_current_offset)",
)
measure_group_lag_seconds = SeriesGauge(
    "trimtab_measure_group_lag_seconds",
    "Age of the oldest record that a group has not committed",
    _GROUP_PARTITION,
    also="kafka_consumergroup_group_lag_seconds",
)

measure_batch_seconds = Gauge(
    "trimtab_measure_batch_seconds", "Duration of the newest micro-batch", ["query"]
)
measure_input_rows_per_second = Gauge(
    "trimtab_measure_input_rows_per_second", "Rows read per second by the newest batch", ["query"]
)
measure_behind_rows = Gauge(
    "trimtab_measure_behind_rows", "Rows in Kafka that are not read yet", ["query"]
)
measure_freshness_seconds = Gauge(
    "trimtab_measure_freshness_seconds", "Now minus the newest sample or window end", ["query"]
)
measure_restarts_total = Counter(
    "trimtab_measure_restarts_total", "Restarts of a failed query", ["query"]
)
measure_rejects_total = Counter(
    "trimtab_measure_rejects_total", "Telemetry records that could not be parsed", ["query"]
)
measure_late_total = Counter(
    "trimtab_measure_late_total", "Records that arrived after their window was closed", ["query"]
)
measure_gaps_total = Counter(
    "trimtab_measure_gaps_total", "Offsets that were skipped between two batches", ["query"]
)

outcome_latency_seconds = Gauge(
    "trimtab_outcome_latency_seconds",
    "Time from event time to the end of processing, in the newest closed window",
    ["group", "quantile"],
)
outcome_within_sla_ratio = Gauge(
    "trimtab_outcome_within_sla_ratio",
    "Share of records within the SLA, in the newest closed window",
    ["group"],
)

controller_consumers = Gauge(
    "trimtab_controller_consumers", "Consumers that the controller knows", ["group"]
)
controller_partition_bytes_per_second = SeriesGauge(
    "trimtab_controller_partition_bytes_per_second",
    "Newest published bytes per second of a partition, as the controller received them",
    _GROUP_PARTITION,
)
controller_partition_records_per_second = SeriesGauge(
    "trimtab_controller_partition_records_per_second",
    "Newest published records per second of a partition, as the controller received them",
    _GROUP_PARTITION,
)
controller_decisions_total = Counter(
    "trimtab_controller_decisions_total",
    "Decisions, including those without a change",
    ["group", "action"],
)
controller_violations_total = Counter(
    "trimtab_controller_violations_total",
    "Partitions found with two readers; must stay 0",
    ["group"],
)

steer_weight_ratio = Gauge(
    "trimtab_steer_weight_ratio", "Weight of a broker among producers, 0 to 1", ["broker"]
)
steer_probe_seconds = Gauge(
    "trimtab_steer_probe_seconds",
    "90th percentile of the latency of the newest produce probes",
    ["broker"],
)
steer_published_total = Counter("trimtab_steer_published_total", "Published records of weights")

forward_records_total = Counter(
    "trimtab_forward_records_total", "Records forwarded and acknowledged", ["topic"]
)

_GROUP_TOPIC = ("group", "topic")
_MOVE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_RESTORE_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)

consume_owned_keys = SeriesGauge(
    "trimtab_consume_owned_keys",
    "Keys whose state a partition of this consumer has",
    _GROUP_PARTITION,
)
consume_waiting_keys = SeriesGauge(
    "trimtab_consume_waiting_keys",
    "Keys that have come to a partition of this consumer and wait for their state",
    _GROUP_PARTITION,
)
consume_parked_records = SeriesGauge(
    "trimtab_consume_parked_records", "Records of keys that wait for their state", _GROUP_PARTITION
)
consume_parked_bytes = SeriesGauge(
    "trimtab_consume_parked_bytes",
    "Bytes of records of keys that wait for their state",
    _GROUP_PARTITION,
)
consume_oldest_wait_seconds = SeriesGauge(
    "trimtab_consume_oldest_wait_seconds",
    "How long the key that waits longest has waited, since this consumer has the partition",
    _GROUP_PARTITION,
)
consume_states_sent_total = Counter(
    "trimtab_consume_states_sent_total", "States handed over to another partition", _GROUP_TOPIC
)
consume_sent_bytes_total = Counter(
    "trimtab_consume_sent_bytes_total", "Bytes of states handed over", _GROUP_TOPIC
)
consume_states_adopted_total = Counter(
    "trimtab_consume_states_adopted_total",
    "States adopted from another partition, lost ones included",
    _GROUP_TOPIC,
)
consume_adopted_bytes_total = Counter(
    "trimtab_consume_adopted_bytes_total", "Bytes of states adopted", _GROUP_TOPIC
)
consume_lost_states_total = Counter(
    "trimtab_consume_lost_states_total",
    "Keys that went on with the empty state, since theirs could not come any more",
    _GROUP_TOPIC,
)
consume_handover_travel_seconds = Histogram(
    "trimtab_consume_handover_travel_seconds",
    "Time of a state on its way: from its record in the hand-over topic to its adoption",
    _GROUP_TOPIC,
    buckets=_MOVE_BUCKETS,
)
consume_handover_blocked_seconds = Histogram(
    "trimtab_consume_handover_blocked_seconds",
    "How long a key waited for its state; 0 if the state came first",
    _GROUP_TOPIC,
    buckets=_MOVE_BUCKETS,
)
consume_dropped_records_total = Counter(
    "trimtab_consume_dropped_records_total",
    "Repeated records, markers and hand-overs, and records of fenced gateways, by reason",
    (*_GROUP_TOPIC, "reason"),
)
consume_dead_letters_total = Counter(
    "trimtab_consume_dead_letters_total",
    "Records that went to the topic of dead letters",
    _GROUP_TOPIC,
)
consume_restore_seconds = Histogram(
    "trimtab_consume_restore_seconds",
    "Time to fence and restore the task of a partition",
    _GROUP_TOPIC,
    buckets=_RESTORE_BUCKETS,
)
consume_restored_records_total = Counter(
    "trimtab_consume_restored_records_total", "Records of changelogs read to restore", _GROUP_TOPIC
)

ALL = tuple(
    (name, metric)
    for name, metric in sorted(globals().items())
    if isinstance(metric, Gauge | Counter | Histogram | SeriesGauge)
)


def serve(port: int, *, host: str = "127.0.0.1") -> None:
    """Serves the metrics, by default on the loopback address."""
    try:
        start_http_server(port, addr=host, registry=REGISTRY)
    except OSError as error:
        raise ConfigError(
            f"Metrics cannot be served on {host} port {port}: {error.strerror}.",
            hint="Choose another --metrics-port or --metrics-host.",
        ) from error
