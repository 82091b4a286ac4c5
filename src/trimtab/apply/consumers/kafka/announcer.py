"""Publishes a controller's decisions: to topics, metrics, the log and a callback."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.kafka.publisher import RecordPublisher
from trimtab.model.codec import Json, dumps
from trimtab.model.control import Decision
from trimtab.model.control_codec import decision_to
from trimtab.model.plan import ConsumerPlan
from trimtab.model.plan_codec import plan_to
from trimtab.observe import metrics

log = structlog.get_logger()


class Announcer:
    """Publishes the decisions made during one term as leader; `close` delivers the rest."""

    def __init__(self, config: GroupConfig, on_decision: Callable[[Decision], None]) -> None:
        self._own = config.cluster.topics
        self._on_decision = on_decision
        self._publisher = RecordPublisher(config.cluster, client_id=config.name, linger_ms=0)

    def announce(self, decision: Decision, plan: ConsumerPlan | None = None) -> None:
        """Publishes a decision and its plan; never waits for a broker."""
        record = decision_to(decision)
        if plan is not None:
            whole = plan_to(plan)
            self._publish(self._own.plans, whole["id"], whole)
        self._publish(self._own.decisions, decision.group, record)
        metrics.controller_decisions_total.labels(decision.group, decision.action).inc()
        log.info("decision_was_made", **record)
        self._on_decision(decision)

    def _publish(self, topic: str, key: str, value: Json) -> None:
        self._publisher.publish(topic, key.encode(), dumps(value).encode())

    def close(self) -> None:
        """Waits until everything published is delivered."""
        self._publisher.flush()
