"""An audit as JSON, the same bytes for the same cluster.

Programs may rely on the first keys; the later ones add details. A failure lists only the leaders
that change, −1 for a partition without a leader.
"""

from __future__ import annotations

from typing import Any

from trimtab.audit.faults import Fault
from trimtab.audit.finding import Finding
from trimtab.audit.findings import findings
from trimtab.audit.known_loads import CarriedLoads
from trimtab.audit.leader_moves import kafka_json
from trimtab.audit.loads import BrokerLoads, PolicyLoad
from trimtab.audit.topology import Audit
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import VERSION, Json
from trimtab.model.wire import by_partition


def audit_to(audit: Audit, *, worst: int | None = None) -> Json:
    """The JSON document of an audit; `worst` limits it to that many of the worst failures."""
    return {
        "groups": [{"brokers": list(g.brokers), "topics": list(g.topics)} for g in audit.groups],
        "pairs": [
            {"groups": [pair.first, pair.second], "brokers": list(pair.brokers)}
            for pair in audit.pairs
        ],
        "overlaps_by_broker": {
            str(broker): list(groups) for broker, groups in audit.overlaps_by_broker.items()
        },
        "uneven": [
            {
                "topic": u.topic,
                "counts": {str(b): c for b, c in zip(u.brokers, u.counts, strict=True)},
                "spread": u.spread,
                "peak_to_mean": float(u.peak_to_mean),
                "level": str(u.level),
            }
            for u in audit.uneven
        ],
        "offline_topics": list(audit.offline_topics),
        "offline_partitions": _partitions(audit.offline_partitions),
        "leaders_per_broker": {str(b): count for b, count in audit.leaders_per_broker.items()},
        "faults": [_fault(audit, fault) for fault in audit.faults[:worst]],
        "v": VERSION,
        "kind": "audit",
        "cluster": audit.cluster,
        "findings": [_finding(found) for found in findings(audit)],
        "group_counts": [list(counts) for counts in audit.group_counts],
        "pairs_total": audit.pairs_total,
        "pair_rates": [pair.rate for pair in audit.pairs],
        "components": [list(part) for part in audit.components],
        "contested_brokers": list(audit.contested),
        "stacked": list(audit.stacked),
        "idle_brokers": list(audit.idle),
        "silent_brokers": list(audit.silent),
        "under_replicated": audit.under_replicated,
        "below_min_insync": audit.below_min_insync,
        "drift": {
            "share": audit.drift.share,
            "by_broker": {str(b): audit.drift.share_of(b) for b in audit.drift.by_broker},
        },
        "carried": _carried(audit.carried),
        "leader_moves": kafka_json(audit.leader_moves)["partitions"],
        "loads": _loads(audit.loads),
        "fault_scan": {
            "scanned": len(audit.faults),
            "of": audit.scenarios_of,
            "seed": audit.options.seed,
        },
    }


def _finding(found: Finding) -> Json:
    return {
        "level": str(found.level),
        "kind": found.kind,
        "count": found.count,
        "text": found.text,
        "advice": found.advice or None,
    }


def _partitions(names: tuple[TopicPartition, ...]) -> list[Json]:
    return [{"topic": topic, "partition": partition} for topic, partition in names]


def _fault(audit: Audit, fault: Fault) -> Json:
    details = audit.details(fault)
    return {
        "dead": list(fault.dead),
        "leaders": by_partition(details.leaders),
        "offline_partitions": _partitions(details.offline_partitions),
        "what": fault.what or None,
        "moved": fault.moved,
        "offline_topics": list(details.offline_topics),
        "below_min_insync": fault.below_min_insync,
        "new_pairs": fault.new_pairs,
        "vanished_pairs": fault.vanished_pairs,
        "contested_brokers": list(fault.contested),
        "newly_uneven": list(details.newly_uneven),
        "newly_skewed": list(details.newly_skewed),
        "skewed_share": fault.skewed_share,
        "peak_to_mean": fault.peak_to_mean,
        "peak_broker": fault.peak_broker,
        "bound_to_mean": fault.bound_to_mean,
        "default_to_mean": fault.default_to_mean,
        "node_to_mean": fault.node_to_mean,
        "doubled_to_mean": fault.doubled_to_mean,
        "least_to_mean": fault.least_to_mean,
    }


def _carried(load: CarriedLoads) -> Json:
    hottest = load.hottest
    return {
        "basis": str(load.basis),
        "unit": load.unit and str(load.unit),
        "by_broker": {str(broker): value for broker, value in load.by_broker.items()},
        "mean": load.mean,
        "peak": load.peak,
        "broker": load.broker,
        "peak_to_mean": load.peak_to_mean,
        "bound_to_mean": load.bound_to_mean,
        "hottest": hottest and {**_partitions((hottest,))[0], "load": load.hottest_load},
        "unmeasured_partitions": load.unmeasured,
    }


def _loads(loads: BrokerLoads) -> Json:
    def policy(load: PolicyLoad | None) -> Any:
        return load and {
            "peak": load.peak,
            "broker": load.broker,
            "peak_to_mean": load.peak_to_mean,
            "by_broker": {str(broker): value for broker, value in load.by_broker.items()},
        }

    return {
        "unit": loads.unit and str(loads.unit),
        "mean": loads.mean,
        "default": policy(loads.default),
        "node": policy(loads.node),
        "least": {
            "peak": loads.least.peak,
            "peak_to_mean": loads.least.peak_to_mean,
            "topics": list(loads.least.topics),
            "brokers": list(loads.least.brokers),
        },
        "measured": policy(loads.measured),
        "unmeasured": list(loads.unmeasured),
        "measured_in_part": list(loads.in_part),
        "doubled": [
            {"topic": d.topic, "peak_to_mean": d.peak_to_mean, "broker": d.broker}
            for d in loads.doubled
        ],
    }
