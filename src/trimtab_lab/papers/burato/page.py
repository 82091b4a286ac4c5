"""docs/papers/burato.md: what was run, compared with the thesis, and how to read its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from trimtab_lab.papers.burato.comparison import LATE_AT_MOST, MARGIN, setting_name
from trimtab_lab.papers.burato.design import SLOWED, default_grid, full_grid
from trimtab_lab.papers.burato.result import result
from trimtab_lab.papers.markdown import cells, conditions, rows_table, shown
from trimtab_lab.papers.paper_page import PaperPage
from trimtab_lab.papers.part import Part, Parts
from trimtab_lab.papers.published import burato as paper

_ABOUT = """\
# Burato: partitioners for keyless records

*Load balancing and early fault detection in Apache Kafka clusters.* A record without a key may go \
to any partition. Kafka's partitioner at that time used the partitions in turn (round robin); a \
broker that leads more of them than another gets more records. The thesis uses the brokers in turn \
instead (Node), or the broker with the fewest records so far (SQF), and measures both on two \
brokers.
"""

_METHOD = f"""\
## What was run, and how

| part of the thesis | where it is |
|---|---|
| partitioners, chapters 2 and 6 | `plan/records/`, for producers \
`apply/records/kafka/partitioner.py` and `apply/records/kafka/routed_producer.py`, for Spark \
`apply/records/spark/routed_sink.py` |
| groups and overlaps, chapter 3 | `audit/`, `trimtab audit` |
| queueing policies, chapter 5 | `simulate/brokers.py`, `trimtab simulate brokers` |
| halfway collectors, chapter 6 | `apply/records/kafka/forwarder.py`, `trimtab forward` |
| benchmark, chapter 7 | `trimtab_lab/papers/burato/`, this page |
| the thesis' figures | `trimtab_lab/papers/published/burato.py` |

Everything here is real: three brokers on one machine, one producer (librdkafka with the Java \
client's defaults of today: batches of 16 384 bytes, a linger of 5 ms, a buffer of 32 MiB, five \
requests in flight), records of 100 bytes for throughput, as in the thesis, and of 1 000 bytes for \
latency: with small ones the client saturates before the brokers do. Topics are those of the \
thesis, on brokers 1 and 2 (B even, U uneven, 1 or 2 replicas), and U3, uneven over three brokers \
with two replicas. Runs take place under three conditions: *even*; *slowed*, where broker \
{SLOWED}, which leads two of the partitions, is paused for a part of every short period; and \
*foreign load*, where another producer writes to that broker. `trimtab steer` runs during every \
run. `weighted-node` uses its weights, all others ignore them. Under each condition, runs start \
when the weights are stable, after half a minute at the latest, and each run waits for that again, \
for at most five seconds: this time is not part of the run (about two seconds after a broker \
becomes slow). With foreign load the resulting weights are not known in advance, and runs do not \
wait.

*Saturating* runs measure throughput only. *Open loop* runs send at given times, at a fraction of \
the throughput of one of three policies (weighted-node, node, uniform-sticky, which cost the \
client the same): the best one so far in that setting, measured in the same repetition. They \
measure the time from when a record was due until its acknowledgement. The order is random, in \
blocks: conditions; within each condition its settings; within each setting the saturating runs \
and then the loads; within each load the policies, which are only compared with policies of the \
same block. If an experiment was interrupted and continued later, a block may contain runs from \
both times. Intervals are Student's, at 95 %, over repetitions; latencies are geometric means, \
with intervals of their logarithms; rates in headings are means over repetitions. Every row has \
two ratios, maximum over mean of the brokers and of the partitions: a policy that balances brokers \
makes partitions uneven, and therefore consumers as well.

`trimtab experiment burato` runs the default grid, {len(default_grid())} cells at least five \
times, keeps the result of each run, and makes this page; `--full` runs all {len(full_grid())}. In \
the tables, *paper* is the figure that the thesis states, *bar* a limit that we set ourselves; \
there is no model.
"""

DEVIATIONS = """\
## How to read the thesis' figures

- Throughput multiplied by time is 9 550 to 9 700 MB in nearly every row, so MB means MiB.
- The acks of B1 and U1 are not stated; with one replica acks=1 and acks=-1 wait for the same \
broker. Ours ran with acks=1.
- The test saturates the producer's buffer of 32 MiB: with acks=-1 the mean latency is about \
0.9 × 32 MiB / throughput in all three columns. It expresses throughput, not quality of service, \
and is not compared with our figures.
- In five of the six columns of node policies on uneven topics the mean is above the maximum that \
the stated percentiles allow (U2, acks=-1, Node: at most 259 ms, stated 1 847 ms). Mean and \
percentiles cannot be from the same samples, so the drop of the p95 from 4 071 to 407 ms is not a \
target for us.
- Intervals of throughput do not overlap Default's in two settings only: a gain on U2 with \
acks=-1 (Node and SQF), a loss on U1 (SQF). One setting of six shows a gain.
- Node splits B2 and U2 equally over the brokers, but has 14.2 and 15.5 MB/s with acks=-1: the \
difference between topics is as large as the effect. The intervals only cover repetition.
- A simple model gives the size of that gain: a leader's work is 1 per byte, a follower's φ; the \
busier broker does 2/3 + φ/3 under Default and (1 + φ)/2 under Node, which is 1.14 at φ = 0.41.

## What differs from the thesis, and why

- **One machine.** Brokers and producer share its cores, and the producer is Python code that \
calls librdkafka: with records of 100 bytes the client saturates, not a broker. Compare \
throughputs only within this page.
- **Runs of a second or two**, not of 100 million records, many times and in random order. A \
shared machine can be several times faster in one minute than in the next: therefore a load is a \
fraction of the throughput measured just before, and ratios are taken within a repetition.
- **Brokers compile quickly** (only the JVM's first compiler): with the second one their speed \
still changed minutes after their start.
- **Today's Kafka**, and today's rivals. `sticky`, `uniform-sticky` and `adaptive` are our \
implementations of KIP-480 and KIP-794, because librdkafka has none of them; `librdkafka` is the \
client's built-in choice, which needs no Python code and is therefore the cheapest for the client.
- **`sticky` without its flaw.** It changes the partition after 16 384 bytes or 5 ms, because \
librdkafka does not report when a batch is complete. The known flaw, that a slow broker keeps \
batches open and so gets more records, cannot appear.
- **`adaptive` knows more** than Java's: records in flight count as queued, not only waiting ones.
- **`rack-aware`** depends on the client's rack, and is shown from the rack of broker 1 and \
from that of broker 2, the one that is slowed. For that alone it may be the best or the worst of \
all; it is not a load balancer, and Kafka's clients have it from 4.4 on. The best stock \
partitioner is chosen among the others.
- **acks=all on two brokers**: every record waits for the slow follower, whichever broker leads, \
so no choice of leader helps. U2 with acks=all shows that.
"""


def introduction(parts: Parts) -> str:
    """The introduction: the result first, then the method."""
    return "\n".join([_ABOUT, *result(parts), _METHOD])


def _saturating(part: Part) -> str:
    lines = ["## Saturating: throughput\n", conditions(part), rows_table(part.rows), ""]
    lines += [_published(), ""]
    for title, found in _by_setting(part):
        lines += [
            f"\n### {title}\n",
            cells(
                *("policy", "MB/s", "95 % interval", "brokers", "partitions"),
                *("bytes by broker", "by partition"),
            ),
            cells("---", *["---:"] * 4, "---", "---"),
        ]
        for cell in found:
            lines.append(
                cells(
                    cell["policy"],
                    f"{cell['mb_s'][0]:.2f}",
                    _interval(cell["mb_s"]),
                    *_ratios(cell),
                    _spread(cell["by_broker"]),
                    _spread(cell["by_partition"]),
                )
            )
    return "\n".join(lines) + "\n"


def _open_loop(part: Part) -> str:
    lines = [
        "## Open loop: latency\n",
        conditions(part),
        "On even brokers, ours should be no worse than the best stock partitioner. This is checked "
        "with the ratio of the p95s of each repetition and its 95 % interval: `better` if the "
        f"interval is below 1, `within` if below {MARGIN:g}, `outside` if above 1, otherwise "
        "undecided. With one slow broker, our p95 should be at least three times lower. The best "
        "stock partitioner is the one with the lowest geometric mean of p95. If more than "
        f"{LATE_AT_MOST:.0%} of the records of either were late because of the client, the row is "
        "not checked.\n",
        "*The same choices twice*: where every broker leads one partition, node and default, both "
        "per batch, make the same choices, and so does weighted-node while all brokers have the "
        "same weight (tested in `tests/laws/test_routing.py`). Differences between them are "
        "random: smaller differences cannot be detected on this machine.\n",
        rows_table(part.rows),
        "",
    ]
    for title, found in _by_setting(part, "load"):
        rate = max(cell["records_s"][0] for cell in found)
        lines += [
            f"\n### {title}: {f'{rate:,.0f}'.replace(',', ' ')} records/s\n",
            cells(
                *("policy", "p50 ms", "p95 ms", "95 % interval", "p99 ms", "p99.9 ms"),
                *("× own capacity", "brokers", "partitions", "bytes by broker", "by partition"),
                *("held", "late", "failed"),
            ),
            cells("---", *["---:"] * 8, "---", "---", "---:", "---:", "---:"),
        ]
        for cell in sorted(found, key=lambda cell: cell["p95_ms"][0]):
            lines.append(
                cells(
                    cell["policy"],
                    shown(cell["p50_ms"][0]),
                    shown(cell["p95_ms"][0]),
                    _interval(cell["p95_ms"]),
                    *(shown(cell[name][0]) for name in ("p99_ms", "p999_ms")),
                    shown(cell["of_own"]),
                    *_ratios(cell),
                    _spread(cell["by_broker"]),
                    _spread(cell["by_partition"]),
                    f"{cell['held']:.1%}",
                    f"{cell['late']:.1%}",
                    str(cell["failed"]),
                )
            )
    lines.append(
        "\n*× own capacity*: the sending rate divided by the same policy's throughput in "
        "saturating runs; above 1 its queue grows until the run ends. Known for policies that "
        "were also saturated with these records. "
        "*held*, *late*: records sent more than 20 ms after they were due, because the buffer was "
        "full (held) or because of the client itself (late); the wait is part of their latency. "
        "*failed*: records not acknowledged at the end of the run; their latency is counted up to "
        "that time.\n"
    )
    return "\n".join(lines)


def _published() -> str:
    """The figures of the thesis as a table."""
    lines = [
        "The thesis' figures, means with 99 % intervals where it gives them; latencies are those "
        "of saturated runs:\n",
        cells("setting", "policy", "MB/s", "interval", "p50 ms", "p95 ms", "p99 ms", "mean ms"),
        cells("---", "---", *["---:"] * 6),
    ]
    for (topic, acks), figures in paper.MEASURED.items():
        for at, policy in enumerate(paper.POLICIES):
            mean, low, high = figures["mb_s"][at]
            delays = (figures[name][at][0] for name in ("p50_ms", "p95_ms", "p99_ms", "mean_ms"))
            lines.append(
                cells(
                    setting_name(topic, acks),
                    policy,
                    f"{mean:.2f}",
                    f"{low:.2f} – {high:.2f}",
                    *(shown(delay) for delay in delays),
                )
            )
    return "\n".join(lines)


def _by_setting(part: Part, *more: str) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    def setting(cell: Mapping[str, Any]) -> str:
        size = "" if cell["value_bytes"] == 100 else f", {cell['value_bytes']} B"
        load = f" at {cell['load']:.0%}" if "load" in more else ""
        return f"{cell['topic']} acks={cell['acks']}, {cell['world']}{size}{load}"

    for title, found in groupby(part.figures["cells"], key=setting):
        yield title, list(found)


def _interval(values: Sequence[float | None]) -> str:
    _, low, high = values
    return "–" if low is None or high is None else f"{low:.3g} – {high:.3g}"


def _ratios(cell: Mapping[str, Any]) -> tuple[str, str]:
    return f"{cell['broker_ratio']:.2f}", f"{cell['partition_ratio']:.2f}"


def _spread(shares: Mapping[str, float]) -> str:
    return " · ".join(f"{broker}: {share:.0%}" for broker, share in shares.items())


SECTIONS: Mapping[str, tuple[str, Callable[[Part], str]]] = {
    "open-loop": ("Open loop: latency", _open_loop),
    "saturating": ("Saturating: throughput", _saturating),
}

PAGE = PaperPage(introduction=introduction, sections=SECTIONS, deviations=DEVIATIONS)
