"""Every benchmark by name: what is timed, against what, and the bar it should reach.

The code of a benchmark is imported when it starts, because it needs heavy libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trimtab.errors import ConfigError
from trimtab_lab.benchmarks.benchmark import BenchContext, Benchmark, BenchUnit, Sides

MILLION = 1_000_000


def _rates(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.batch import rates

    return rates(context, rows, runs)


def _hot_keys(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.batch import hot_keys_exact

    return hot_keys_exact(context, rows, runs)


def _hot_keys_lossy(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.batch import hot_keys_lossy

    return hot_keys_lossy(context, rows, runs)


def _hot_keys_distinct(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.batch import hot_keys_distinct

    return hot_keys_distinct(context, rows, runs)


def _hot_keys_memory(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.memory import hot_keys_memory

    return hot_keys_memory(context, rows, runs)


def _rates_samples(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.batch import rates_samples

    return rates_samples(context, rows, runs)


def _kafka_read(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.kafka_read import kafka_read

    return kafka_read(context, rows, runs)


def _live_rate(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.live_rate import live_rate

    return live_rate(context, rows, runs)


def _live_replay(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.live_replay import live_replay

    return live_replay(context, rows, runs)


def _live_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.live_replay import live_growth

    return live_growth(context, rows, runs)


def _growth(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.growth import growth_rates

    return growth_rates(context, rows, runs)


def _growth_keys(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.growth import growth_keys

    return growth_keys(context, rows, runs)


def _plan_fits(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.planners import plan_fits

    return plan_fits(context, rows, runs)


def _plan_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.planners import plan_growth

    return plan_growth(context, rows, runs)


def _decide_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.deciding import decide_growth

    return decide_growth(context, rows, runs)


def _trim(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.planners import trim

    return trim(context, rows, runs)


def _ll_ffd(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.planners import ll_ffd

    return ll_ffd(context, rows, runs)


def _ll_ffd_lag(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.planners import ll_ffd_lag

    return ll_ffd_lag(context, rows, runs)


def _latency_model(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.latency_model import latency_model

    return latency_model(context, rows, runs)


def _sweep(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.spark.sweep import sweep

    return sweep(context, rows, runs)


def _choose_3(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.routing import choose_3

    return choose_3(context, rows, runs)


def _choose_12(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.routing import choose_12

    return choose_12(context, rows, runs)


def _produce(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.kafka.producing import produce

    return produce(context, rows, runs)


def _audit(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.topology import full_audit

    return full_audit(context, rows, runs)


def _audit_same(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.topology import same_audit

    return same_audit(context, rows, runs)


def _audit_faults(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.topology import all_faults

    return all_faults(context, rows, runs)


def _audit_groups(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.topology import many_groups

    return many_groups(context, rows, runs)


def _audit_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    from trimtab_lab.benchmarks.topology import growth

    return growth(context, rows, runs)


_ALL = (
    Benchmark(
        name="rates",
        what="rates from events in Parquet",
        rival="plain groupBy(topic, partition, window).agg(count, sum)",
        bar=0.75,
        unit=BenchUnit.ROWS_S,
        rows=20 * MILLION,
        run=_rates,
    ),
    Benchmark(
        name="rates-samples",
        what="rates from samples, with the restart rule",
        rival="plain groupBy(topic, partition, window).agg(min, max)",
        bar=0.5,
        unit=BenchUnit.ROWS_S,
        rows=5 * MILLION,
        run=_rates_samples,
        when_missed="The rival keeps two numbers per group. Whether a series was ever restarted "
        "cannot be computed from any fixed number of aggregates, so ours collects the samples of "
        "each window; Spark does this outside of its generated code and sends all samples through "
        "the shuffle.",
    ),
    Benchmark(
        name="hot-keys",
        what="heavy keys, exact in two passes, Zipf–Mandelbrot keys",
        rival="plain groupBy(window, key).count().filter",
        bar=0.8,
        unit=BenchUnit.ROWS_S,
        rows=20 * MILLION,
        run=_hot_keys,
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
        run=_hot_keys_lossy,
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
        run=_hot_keys_distinct,
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
        run=_hot_keys_memory,
    ),
    Benchmark(
        name="kafka-read",
        what="Kafka read and rates, records of 100 bytes",
        rival="plain Kafka read and count",
        bar=0.8,
        unit=BenchUnit.ROWS_S,
        rows=5 * MILLION,
        run=_kafka_read,
        kafka=True,
    ),
    Benchmark(
        name="live-rate",
        what="sample to published rate, live, 95th percentile",
        rival="one second",
        bar=1.0,
        unit=BenchUnit.SECONDS,
        rows=50,
        run=_live_rate,
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
        run=_live_replay,
        kafka=True,
    ),
    Benchmark(
        name="live-rate-10000",
        what="sample to published rate on executors, 10 000 partitions, 95th percentile",
        rival="two seconds",
        bar=1.0,
        unit=BenchUnit.SECONDS,
        rows=10_000,
        counted="partitions",
        run=_live_replay,
        kafka=True,
    ),
    Benchmark(
        name="live-rate-growth",
        what="processor time per partition and sample on executors, 50 000 partitions",
        rival="the same at 1 000",
        bar=0.667,
        unit=BenchUnit.MICROS_PARTITION,
        rows=50_000,
        counted="partitions",
        run=_live_growth,
        kafka=True,
    ),
    Benchmark(
        name="growth",
        what="time per row of rates from events at 16 times the rows",
        rival="the same at the smallest number",
        bar=0.95,
        unit=BenchUnit.MICROS_ROW,
        rows=20 * MILLION,
        run=_growth,
    ),
    Benchmark(
        name="growth-keys",
        what="time per row of lossy heavy keys at 16 times the rows",
        rival="the same at the smallest number",
        bar=0.95,
        unit=BenchUnit.MICROS_ROW,
        rows=20 * MILLION,
        run=_growth_keys,
    ),
    Benchmark(
        name="plan-fits",
        what="a plan by bfd and one by mwf, 10 000 partitions with current owners",
        rival="the same plans, scanning all consumers for every choice",
        bar=50.0,
        unit=BenchUnit.SECONDS,
        rows=10_000,
        run=_plan_fits,
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
        run=_plan_growth,
        counted="partitions",
        spark=False,
    ),
    Benchmark(
        name="decide-growth",
        what="time per partition of a decision that changes nothing, from the records of rates",
        rival="json.loads of the same records, and the sum of each consumer's loads",
        bar=0.1,
        unit=BenchUnit.MICROS_PARTITION,
        rows=50_000,
        run=_decide_growth,
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
        run=_trim,
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
        run=_trim,
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
        run=_ll_ffd,
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
        run=_ll_ffd_lag,
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
        run=_latency_model,
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
        run=_sweep,
        counted="cells",
    ),
    Benchmark(
        name="choose-3",
        what="a partition for a keyless record, the slowest of our five, 3 partitions",
        rival="kafka-python's default partitioner",
        bar=0.667,  # at most 1.5 times as slow
        unit=BenchUnit.MICROS_ROW,
        rows=200_000,
        run=_choose_3,
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
        run=_choose_12,
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
        run=_produce,
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
        run=_audit,
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
        run=_audit_same,
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
        run=_audit_faults,
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
        run=_audit_groups,
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
        run=_audit_growth,
        counted="topics",
        spark=False,
        when_missed="The overlapping pairs are counted with a bit per group for every leader, so "
        "that part grows with the square of the groups, divided by the width of a word.",
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
