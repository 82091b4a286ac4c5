"""Every Prometheus metric we expose, named `trimtab_<stage>_<noun>_<unit>`."""

from __future__ import annotations

from prometheus_client import REGISTRY, Counter, Gauge, start_http_server

from trimtab.errors import ConfigError

measure_batch_seconds = Gauge(
    "trimtab_measure_batch_seconds", "Duration of the newest micro-batch", ["query"]
)
measure_input_rows_per_second = Gauge(
    "trimtab_measure_input_rows_per_second", "Rows read per second by the newest batch", ["query"]
)
measure_behind_rows = Gauge(
    "trimtab_measure_behind_rows", "Rows in Kafka that were not read yet", ["query"]
)
measure_freshness_seconds = Gauge(
    "trimtab_measure_freshness_seconds", "Now minus the newest sample or window end", ["query"]
)
measure_restarts_total = Counter(
    "trimtab_measure_restarts_total", "Restarts of a query that had died", ["query"]
)
measure_rejects_total = Counter(
    "trimtab_measure_rejects_total", "Telemetry records that did not parse", ["query"]
)
measure_late_total = Counter(
    "trimtab_measure_late_total", "Records that came after their window was closed", ["query"]
)
measure_gaps_total = Counter(
    "trimtab_measure_gaps_total", "Offsets that were skipped between two batches", ["query"]
)

outcome_latency_seconds = Gauge(
    "trimtab_outcome_latency_seconds",
    "From event time to the end of processing, in the newest closed window",
    ["group", "quantile"],
)
outcome_within_sla_ratio = Gauge(
    "trimtab_outcome_within_sla_ratio",
    "Share of records within the SLA, in the newest closed window",
    ["group"],
)

controller_consumers = Gauge(
    "trimtab_controller_consumers", "Consumers that exist, as the controller knows", ["group"]
)
controller_decisions_total = Counter(
    "trimtab_controller_decisions_total", "Decisions, doing nothing included", ["group", "action"]
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
steer_published_total = Counter(
    "trimtab_steer_published_total", "Records of weights that were published"
)

forward_records_total = Counter(
    "trimtab_forward_records_total", "Records forwarded and acknowledged", ["topic"]
)

ALL = tuple(
    (name, metric)
    for name, metric in sorted(globals().items())
    if isinstance(metric, Gauge | Counter)
)


def serve(port: int) -> None:
    """Serves the metrics on the loopback address."""
    try:
        start_http_server(port, addr="127.0.0.1", registry=REGISTRY)
    except OSError as error:
        raise ConfigError(
            f"Metrics cannot be served on port {port}: {error.strerror}.",
            hint="Choose another --metrics-port.",
        ) from error
