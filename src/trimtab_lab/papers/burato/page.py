"""docs/papers/burato.md: what was run, the thesis' figures beside, and how they are to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from trimtab_lab.papers.burato.comparison import LATE_AT_MOST, MARGIN, stated
from trimtab_lab.papers.burato.design import SLOWED, full_grid, stated_grid
from trimtab_lab.papers.burato.result import result
from trimtab_lab.papers.markdown import cells, conditions, rows_table, shown
from trimtab_lab.papers.part import Part, Parts
from trimtab_lab.papers.published import burato as paper

_ABOUT = """\
# Burato: partitioners for keyless records

*Load balancing and early fault detection in Apache Kafka clusters.* A record without a key may go \
to any partition. Kafka's partitioner of the time went round the partitions; where one broker \
leads more of them than another, it gets more. The thesis goes round the brokers instead (Node), \
or to the one that was given least (SQF), and measures both on two brokers.
"""

_METHOD = f"""\
## What was run, and how

| part of the thesis | where it lives |
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
latency: with small ones the client saturates before the brokers do. Topics are the thesis' \
own, on brokers 1 and 2 (B even, U uneven, 1 or 2 replicas), and U3, uneven over three brokers \
with two replicas. In the *slowed* world broker {SLOWED}, which leads two of the partitions, \
stands still for a part of every moment; in the one with *foreign load* another producer writes to \
it. `trimtab steer` runs beside every run. `weighted-node` follows its weights, all others ignore \
them. Runs in a world begin when the weights have settled, after half a minute at the latest, and \
each run waits for that again, for five seconds at most: this time is not part of the run (some \
two seconds after a broker turns slow). With foreign load it is not known what the weights will \
be, and runs do not wait.

*Saturating* runs say throughput only. *Open loops* send by the clock, at a part of the throughput \
of one of three (weighted-node, node, uniform-sticky, which cost the client alike), the best so \
far in that setting, in the same repetition, and say how long a record takes from the time it was \
due to its acknowledgement. Order is random, in blocks: worlds, in each its settings, in each what \
saturates and then the loads, in each the policies, which are compared one by one with those of \
the same block; where an experiment was stopped and went on later, a block is of two moments. \
Intervals are Student's, at 95 %, over repetitions; latencies are geometric means, with intervals \
of their logarithms; rates in headings are means over repetitions. Every row has \
both ratios: fullest over mean of the brokers, and of the partitions, for a policy that levels \
brokers makes partitions uneven, and so consumers.

`trimtab experiment burato` runs the stated grid, {len(stated_grid())} cells at least five times, \
keeps each run, and makes this page; `--full` runs all {len(full_grid())}. In the tables *paper* \
is what the thesis states, *bar* a limit that we set ourselves; there is no model.
"""

DEVIATIONS = """\
## How the thesis' figures are to be read

- Throughput times time is 9 550 to 9 700 MB in nearly every row, so MB means MiB.
- The acks of B1 and U1 are not stated; with one replica acks=1 and acks=-1 wait for the same \
broker. Ours ran with acks=1.
- The test saturates the producer's buffer of 32 MiB: with acks=-1 the mean latency is about \
0.9 × 32 MiB / throughput in all three columns. It is throughput again, not quality of service, \
and is compared with nothing of ours.
- In five of the six columns of node policies on uneven topics the mean is above what the stated \
percentiles allow (U2, acks=-1, Node: at most 259 ms, stated 1 847 ms). Mean and percentiles \
cannot be of the same samples; so the drop of the p95 from 4 071 to 407 ms is no target.
- Intervals of throughput are clear of Default's in two settings only: a gain on U2 with acks=-1 \
(Node and SQF), a loss on U1 (SQF). One setting of six shows a gain.
- Node splits B2 and U2 alike over the brokers, yet reads 14.2 and 15.5 MB/s with acks=-1: what \
differs between topics is as large as the effect. The intervals cover repetition only.
- A model of one line gives the size of that gain: leaders work 1 per byte, followers φ; the \
busier broker does 2/3 + φ/3 under Default and (1 + φ)/2 under Node, which is 1.14 at φ = 0.41.

## What differs from the thesis, and why

- **One machine.** Brokers and producer share its cores, and the producer is Python around \
librdkafka: with records of 100 bytes the client, not a broker, is what saturates. Throughputs are \
compared within this page only.
- **Runs of a second or two**, not of 100 million records, many times and in random order. A \
shared machine is several times faster in one minute than in the next: so a load is a part of \
what went through a moment ago, and ratios are taken within a repetition.
- **Brokers compile quickly** (the JVM's first compiler alone): with the second one they still \
changed their speed minutes after their start.
- **Kafka of today**: the rivals are today's, too. `sticky`, `uniform-sticky` and `adaptive` are \
ours after KIP-480 and KIP-794, for librdkafka has none of them; `librdkafka` is the client's own \
choice, which no Python has to make, and so the cheapest of all for the client.
- **`sticky` without its flaw.** It moves on after 16 384 bytes or 5 ms, for librdkafka does not \
tell when a batch is done; that a slow broker keeps batches open and so gets more cannot show.
- **`adaptive` knows more** than Java's: what is under way counts as queued, not only what waits.
- **`rack-aware`** goes by where the client stands, and is shown from the rack of broker 1 and \
from that of broker 2, the one that is slowed. For that alone it may be the best or the worst of \
all; it is no balancer, and Kafka's clients have it from 4.4 on. The best stock is looked for \
among the others.
- **acks=all on two brokers**: every record waits for the slow follower, whoever leads, so that no \
choice of leader helps. U2 with acks=all shows that.
"""


def introduction(parts: Parts) -> str:
    """The result first, then what was run."""
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
        "On even brokers ours is to be no worse than the best stock partitioner, by the ratio of "
        "the p95s of each repetition: `better` is surely below 1, `within` surely below "
        f"{MARGIN:g}, `outside` surely above 1 (95 %); what chance leaves open is undecided. With "
        "one slow broker the p95 of ours is to be at least three times lower. The best has the "
        "lowest geometric mean of p95. Where more than "
        f"{LATE_AT_MOST:.0%} of either was late by the client's own fault, nothing is judged.\n",
        "*The same choices twice*: where every broker leads one partition, node and default, both "
        "per batch, choose alike, and so does weighted-node while brokers weigh the same (laws in "
        "`tests/laws/test_routing.py`). What these differ by is chance: a smaller difference "
        "cannot be seen on this machine.\n",
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
        "\n*× own capacity*: what was sent, as a multiple of what the same policy carries when it "
        "saturates; above 1 its queue grows until the run ends. It is known for those that were "
        "also saturated with these records. "
        "*held*, *late*: sent more than 20 ms after they were due, since the buffer was full of "
        "what brokers had not taken, or by the client's own fault; the wait is part of their "
        "latency. "
        "*failed*: not acknowledged when the run was over; they count as having taken until then.\n"
    )
    return "\n".join(lines)


def _published() -> str:
    """The thesis' own figures."""
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
                    stated(topic, acks),
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
