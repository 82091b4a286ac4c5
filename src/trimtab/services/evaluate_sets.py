"""Audits the message sets of a keyed consumer group: V1 to V6, from what its topics say."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.errors import ThinData
from trimtab.evaluate.key_history import SetAudit
from trimtab.evaluate.key_sets import SetAuditRules, audit_sets
from trimtab.kafka.cluster import Cluster
from trimtab.model.record import TopicLog
from trimtab.services.key_topics_reading import ReadTopic, read_key_history
from trimtab.services.progress import NO_LISTENER, ProgressListener

_CLIENT = "trimtab-set-audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAuditRequest:
    """What is audited, and how it is judged.

    With `run`, findings at receipts of other runs are left out; the history is read whole all the
    same, since states outlive a run. `source` is the topic that sources write; without it `<t>.in`
    if it exists, else the data topic.
    """

    topic: str
    group: str
    run: str | None = None
    source: str | None = None
    rules: SetAuditRules


def audited(
    cluster: Cluster,
    topic: str,
    group: str,
    *,
    run: str | None = None,
    source: str | None = None,
    at_rest: bool = True,
    clock_skew_us: int = 0,
) -> SetAudit:
    """Audits the keys of a topic and a group; by default everything must be at rest."""
    rules = SetAuditRules(at_rest=at_rest, clock_skew_us=clock_skew_us)
    request = SetAuditRequest(topic=topic, group=group, run=run, source=source, rules=rules)
    return evaluate_sets(cluster, request)


def evaluate_sets(
    cluster: Cluster, request: SetAuditRequest, *, listener: ProgressListener = NO_LISTENER
) -> SetAudit:
    """Reads the topics of a keyed group and audits them."""
    from trimtab.kafka.topic_log import topic_logs

    with topic_logs(cluster, client_id=_CLIENT) as logs:
        done = 0

        def read(topic: str) -> TopicLog | None:
            nonlocal done
            listener.progress("reading topics", done, None)
            done += 1
            return logs(topic)

        return audit_topics(read, request, receipts=cluster.topics.receipts)


def audit_topics(read: ReadTopic, request: SetAuditRequest, *, receipts: str) -> SetAudit:
    """Audits what `read` returns for the topics."""
    topics = KeyedTopics(request.topic, request.group)
    history = read_key_history(read, topics, receipts=receipts, source=request.source)
    of_run = [r for r in history.receipts if request.run is None or r.run == request.run]
    if not of_run:
        whose = f"group {request.group}" + (f" in run {request.run}" if request.run else "")
        raise ThinData(
            f"There are no receipts of {whose} for topic {request.topic}.",
            hint="Check --topic, --group and --run.",
        )
    found = audit_sets(history, request.rules)
    if request.run is None:
        return found
    kept = tuple(f for f in found.findings if f.run in (None, request.run))
    return replace(found, findings=kept)
