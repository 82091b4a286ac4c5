"""Every benchmark by name: what is timed, against what, and the bar it should reach.

The code of a benchmark is imported when it starts, because it needs heavy libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from trimtab.errors import ConfigError
from trimtab_lab.benchmarks.benchmark import BenchContext, Benchmark, BenchUnit, Run, Sides

MILLION = 1_000_000


def _lazy(module: str, function: str) -> Run:
    """A function of a benchmark's module, which is imported when the benchmark starts."""

    def run(context: BenchContext, rows: int, runs: int) -> Sides:
        found: Run = getattr(import_module(f"{_PACKAGE}.{module}"), function)
        return found(context, rows, runs)

    return run


_PACKAGE = "trimtab_lab.benchmarks"

_ALL = (
    Benchmark(
        name="rates",
        what="rates from events in Parquet",
        rival="plain groupBy(topic, partition, window).agg(count, sum)",
        bar=0.75,
        unit=BenchUnit.ROWS_S,
        rows=20 * MILLION,
        run=_lazy("spark.batch", "rates"),
    ),
    Benchmark(
        name="rates-samples",
        what="rates from samples, with the restart rule",
        rival="plain groupBy(topic, partition, window).agg(min, max)",
        bar=0.5,
        unit=BenchUnit.ROWS_S,
        rows=5 * MILLION,
        run=_lazy("spark.batch", "rates_samples"),
        when_missed="Whether a series was ever restarted shows only in order of time, and in no "
        "fixed number of aggregates. CPU for 5 M samples, the better of two rounds on a shared "
        "machine of two cores: the rival 1.0 s, so the bar allows 2.0 s. Reading our six columns "
        "takes 1.4 s, so a second reading for restarted series alone is too much; handing four "
        "numbers per sample to Python 2.7 s (2.2 s in another run); collecting arrays 4.2 s; "
        "lag() over a window 5.4 s; the whole step 8.4 s, half of it for evaluating the arrays. "
        "In another run the rule on numpy columns took 7.8 to 9.9 s, the step 8.9 to 10.4 s.",
    ),
    Benchmark(
        name="hot-keys",
        what="heavy keys, exact in two passes, Zipf–Mandelbrot keys",
        rival="plain groupBy(window, key).count().filter",
        bar=0.8,
        unit=BenchUnit.ROWS_S,
        rows=20 * MILLION,
        run=_lazy("spark.batch", "hot_keys_exact"),
        when_missed="Two passes read the files twice. With so few distinct keys, reading and "
        "decoding is most of the rival's time, so the second read alone uses up most of the "
        "allowance. The benefit: memory for 16 384 buckets instead of one entry per key.",
    ),
    Benchmark(
        name="hot-keys-lossy",
        what="heavy keys in bounded memory, Zipf–Mandelbrot keys",
        rival="plain groupBy(window, key).count().filter",
        bar=0.6,
        unit=BenchUnit.ROWS_S,
        rows=20 * MILLION,
        run=_lazy("spark.batch", "hot_keys_lossy"),
        when_missed="Every key is transferred from Java to Python, which alone takes about as long "
        "as the rival's whole count when there are few distinct keys.",
    ),
    Benchmark(
        name="hot-keys-distinct",
        what="heavy keys in bounded memory, 80 % of the rows with a unique key",
        rival="plain groupBy(window, key).count().filter",
        bar=1.2,
        unit=BenchUnit.ROWS_S,
        rows=20 * MILLION,
        run=_lazy("spark.batch", "hot_keys_distinct"),
        when_missed="With enough memory for every key the rival does not spill to disk, and the "
        "transfer from Java to Python costs ours as much as it saves in counting.",
    ),
    Benchmark(
        name="hot-keys-memory",
        what="peak memory of a Python worker with lossy counting, every key distinct",
        rival="the same with a tenth of the keys",
        bar=0.833,  # within 20 %
        unit=BenchUnit.MEGABYTES,
        rows=20 * MILLION,
        run=_lazy("spark.memory", "hot_keys_memory"),
    ),
    Benchmark(
        name="kafka-read",
        what="Kafka read and rates, records of 100 bytes",
        rival="plain Kafka read and count",
        bar=0.8,
        unit=BenchUnit.ROWS_S,
        rows=5 * MILLION,
        run=_lazy("spark.kafka_read", "kafka_read"),
        kafka=True,
    ),
    Benchmark(
        name="live-rate",
        what="sample to published rate, live, 95th percentile",
        rival="one second",
        bar=1.0,
        unit=BenchUnit.SECONDS,
        rows=50,
        run=_lazy("spark.live_rate", "live_rate"),
        kafka=True,
    ),
    Benchmark(
        name="live-rate-1000",
        what="sample to published rate on executors, 1 000 partitions, 95th percentile",
        rival="two seconds",
        bar=1.0,
        unit=BenchUnit.SECONDS,
        rows=1_000,
        counted="partitions",
        run=_lazy("spark.live_replay", "live_replay"),
        kafka=True,
        least_runs=1,
    ),
    Benchmark(
        name="live-rate-10000",
        what="sample to published rate on executors, 10 000 partitions, 95th percentile",
        rival="two seconds",
        bar=1.0,
        unit=BenchUnit.SECONDS,
        rows=10_000,
        counted="partitions",
        run=_lazy("spark.live_replay", "live_replay"),
        kafka=True,
        least_runs=1,
    ),
    Benchmark(
        name="live-rate-growth",
        what="processor time per partition and sample on executors, 50 000 partitions",
        rival="the same at 1 000",
        bar=0.667,
        unit=BenchUnit.MICROS_PARTITION,
        rows=50_000,
        counted="partitions",
        run=_lazy("spark.live_replay", "live_growth"),
        kafka=True,
        least_runs=1,
    ),
    Benchmark(
        name="live-hot-keys",
        what="heavy keys, live for two minutes: records processed",
        rival="the records offered",
        bar=1.0,
        unit=BenchUnit.ROWS_S,
        rows=100_000,
        run=_lazy("spark.live_keys", "live_hot_keys"),
        counted="records per second",
        kafka=True,
        least_runs=1,
    ),
    Benchmark(
        name="growth",
        what="time per row of rates from events at 16 times the rows",
        rival="the same at the smallest number",
        bar=0.95,
        unit=BenchUnit.MICROS_ROW,
        rows=20 * MILLION,
        run=_lazy("spark.growth", "growth_rates"),
    ),
    Benchmark(
        name="growth-keys",
        what="time per row of lossy heavy keys at 16 times the rows",
        rival="the same at the smallest number",
        bar=0.95,
        unit=BenchUnit.MICROS_ROW,
        rows=20 * MILLION,
        run=_lazy("spark.growth", "growth_keys"),
    ),
    Benchmark(
        name="plan-fits",
        what="a plan by bfd and one by mwf, 10 000 partitions with current owners",
        rival="the same plans, scanning all consumers for every choice",
        bar=50.0,
        unit=BenchUnit.SECONDS,
        rows=10_000,
        run=_lazy("planners", "plan_fits"),
        counted="partitions",
        spark=False,
    ),
    Benchmark(
        name="plan-growth",
        what="time of a plan over n log n at 100 000 partitions, worst of the twelve heuristics",
        rival="the same at 1 000 partitions",
        bar=0.5,  # no worse than n log n by a factor of 2
        unit=BenchUnit.NANOS_N_LOG_N,
        rows=100_000,
        run=_lazy("planners", "plan_growth"),
        counted="partitions",
        spark=False,
    ),
    Benchmark(
        name="plan-keys",
        what="the decision of smalops for 100 000 new hot keys on 1 000 partitions",
        rival="the same moves, scanning all partitions for every key in numpy",
        bar=1.5,
        unit=BenchUnit.SECONDS,
        rows=100_000,
        run=_lazy("key_planners", "plan_keys"),
        counted="keys",
        spark=False,
    ),
    Benchmark(
        name="plan-keys-growth",
        what="time of a plan over n log n at 100 000 keys, the slower of smalops and trim",
        rival="the same at 1 000 keys",
        bar=0.5,  # no worse than n log n by a factor of 2
        unit=BenchUnit.NANOS_N_LOG_N,
        rows=100_000,
        run=_lazy("key_planners", "plan_keys_growth"),
        counted="keys",
        spark=False,
    ),
    Benchmark(
        name="decide-growth",
        what="time per partition of a decision that changes nothing, from the records of rates",
        rival="json.loads of the same records, and the sum of each consumer's loads",
        bar=0.1,
        unit=BenchUnit.MICROS_PARTITION,
        rows=50_000,
        run=_lazy("deciding", "decide_growth"),
        counted="partitions",
        spark=False,
    ),
    Benchmark(
        name="trim-1000",
        what="mean Rscore of trim, 1 000 partitions",
        rival="that of bfd on the same streams",
        bar=1.0,
        unit=BenchUnit.RSCORE,
        rows=1000,
        run=_lazy("planners", "trim"),
        counted="partitions",
        spark=False,
    ),
    Benchmark(
        name="trim-10000",
        what="mean Rscore of trim, 10 000 partitions",
        rival="that of bfd on the same streams",
        bar=1.0,
        unit=BenchUnit.RSCORE,
        rows=10_000,
        run=_lazy("planners", "trim"),
        counted="partitions",
        spark=False,
    ),
    Benchmark(
        name="ll-ffd",
        what="a plan by ll-ffd, 10 000 partitions with current owners and small lags",
        rival="one second",
        bar=1.0,
        unit=BenchUnit.SECONDS,
        rows=10_000,
        run=_lazy("planners", "ll_ffd"),
        counted="partitions",
        spark=False,
        when_missed="Packing takes less than half of the time; the rest is matching thousands of "
        "bins with as many consumers.",
    ),
    Benchmark(
        name="ll-ffd-lag",
        what="a plan by ll-ffd, 10 000 partitions with current owners and large lags",
        rival="one second",
        bar=1.0,
        unit=BenchUnit.SECONDS,
        rows=10_000,
        run=_lazy("planners", "ll_ffd_lag"),
        counted="partitions",
        spark=False,
        when_missed="Where lag is the limit, many numbers of consumers are tried, since a larger "
        "number may fail where a smaller one works; each trial places the partitions one by one "
        "from the first one that does not fit because of its lag.",
    ),
    Benchmark(
        name="latency-model",
        what="latencies and their percentiles by Landau's model, in closed form",
        rival="the same percentiles from single samples, in NumPy",
        bar=1.0,
        unit=BenchUnit.SAMPLES_S,
        rows=5 * MILLION,
        run=_lazy("latency_model", "latency_model"),
        counted="samples",
        spark=False,
    ),
    Benchmark(
        name="sweep",
        what="a sweep over planners, deltas and seeds on Spark, every result kept",
        rival="the same cells in as many plain Python processes",
        bar=0.85,
        unit=BenchUnit.CELLS_S,
        rows=60,
        run=_lazy("spark.sweep", "sweep"),
        counted="cells",
    ),
    Benchmark(
        name="choose-3",
        what="a partition for a keyless record, the slowest of our five, 3 partitions",
        rival="kafka-python's default partitioner",
        bar=0.667,  # at most 1.5 times as slow
        unit=BenchUnit.MICROS_ROW,
        rows=200_000,
        run=_lazy("routing", "choose_3"),
        counted="records",
        spark=False,
    ),
    Benchmark(
        name="choose-12",
        what="a partition for a keyless record, the slowest of our five, 12 partitions",
        rival="kafka-python's default partitioner",
        bar=0.667,
        unit=BenchUnit.MICROS_ROW,
        rows=200_000,
        run=_lazy("routing", "choose_12"),
        counted="records",
        spark=False,
    ),
    Benchmark(
        name="produce",
        what="RoutedProducer with node: keyless records of 100 bytes, sent and acknowledged",
        rival="the plain confluent-kafka producer",
        bar=0.5,  # in a loop that does nothing else
        unit=BenchUnit.ROWS_S,
        rows=300_000,
        run=_lazy("kafka.producing", "produce"),
        counted="records",
        spark=False,
        kafka=True,
        when_missed="The plain client chooses in C, and stays on a partition for 10 ms. Ours "
        "chooses in Python, which takes about 1 us per record, and choosing for each record makes "
        "smaller batches; `ratios` also shows the choice per batch. Measured on a shared machine.",
    ),
    Benchmark(
        name="audit",
        what="topology audit without pair list, 12 partitions per topic, 100 brokers",
        rival="Burato's Algorithms 1, 2 and 3, which list all pairs",
        bar=50.0,
        unit=BenchUnit.SECONDS,
        rows=2000,
        run=_lazy("topology", "full_audit"),
        counted="topics",
        spark=False,
    ),
    Benchmark(
        name="audit-same",
        what="groups and groups by broker only, of the same cluster",
        rival="Burato's Algorithms 1 and 3: no pairs on either side",
        bar=3.0,
        unit=BenchUnit.SECONDS,
        rows=2000,
        run=_lazy("topology", "same_audit"),
        counted="topics",
        spark=False,
        when_missed="Both sides start with a pass over all partitions. It is most of our time, "
        "because it also counts what the rest of the audit needs.",
    ),
    Benchmark(
        name="audit-faults",
        what="every failure of one broker of 100, ranked",
        rival="Algorithms 1, 2 and 3, run again for each failure",
        bar=50.0,
        unit=BenchUnit.SECONDS,
        rows=2000,
        run=_lazy("topology", "all_faults"),
        counted="topics",
        spark=False,
    ),
    Benchmark(
        name="audit-groups-10k",
        what="groups of 10 000 topics on 300 brokers, from leaders counted before",
        rival="Algorithm 1, from the same leaders",
        bar=50.0,
        unit=BenchUnit.SECONDS,
        rows=10_000,
        run=_lazy("topology", "many_groups"),
        counted="topics",
        spark=False,
    ),
    Benchmark(
        name="audit-growth",
        what="time per partition of the audit, 10 000 topics on 300 brokers",
        rival="the same with 2 000 topics on 100 brokers",
        bar=0.8,
        unit=BenchUnit.MICROS_ROW,
        rows=10_000,
        run=_lazy("topology", "growth"),
        counted="topics",
        spark=False,
        when_missed="The overlapping pairs are counted with a bit per group for every leader, so "
        "that part grows with the square of the groups, divided by the width of a word.",
    ),
    Benchmark(
        name="simulate-keys",
        what="queues of 8 partitions with smalops as in the paper, from given records to delays",
        rival="the same model as a plain loop, with the same result",
        bar=5.0,
        unit=BenchUnit.ROWS_S,
        rows=2 * MILLION,
        run=_lazy("key_queues", "simulated_keys"),
        counted="records",
        spark=False,
    ),
    Benchmark(
        name="count-keys",
        what="lossy counting of Zipf–Mandelbrot keys in batches of 1 000, as a gateway counts",
        rival="a bare collections.Counter, which keeps every key",
        bar=0.25,
        unit=BenchUnit.MICROS_ROW,
        rows=MILLION,
        run=_lazy("key_queues", "counted_keys"),
        counted="records",
        spark=False,
    ),
    Benchmark(
        name="keyed-task",
        what="keyed consumer without migrations, receipts in its transactions, until committed",
        rival="the plain cycle on the same records, with receipts",
        bar=0.5,
        unit=BenchUnit.ROWS_S,
        rows=200_000,
        run=_lazy("kafka.keyed", "keyed_task"),
        counted="records",
        spark=False,
        kafka=True,
    ),
    Benchmark(
        name="keyed-restore",
        what="restore of entries of 100 bytes from a changelog",
        rival="a bare consume of the same changelog",
        bar=0.5,
        unit=BenchUnit.ROWS_S,
        rows=MILLION,
        run=_lazy("kafka.keyed", "keyed_restore"),
        counted="entries",
        spark=False,
        kafka=True,
    ),
)

BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({b.name: b for b in _ALL})


def benchmark(name: str) -> Benchmark:
    """The benchmark of this name."""
    if name not in BENCHMARKS:
        raise ConfigError(
            f'Unknown benchmark "{name}".', hint=f"Benchmarks: {', '.join(BENCHMARKS)}."
        )
    return BENCHMARKS[name]
