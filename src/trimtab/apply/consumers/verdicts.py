"""The possible answers of the policy: refuse, change nothing, or go to a target assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.model.assignment import Assignment
from trimtab.model.control import Action, Decision
from trimtab.model.plan import ConsumerPlan
from trimtab.model.plan_codec import plan_id


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Builds verdicts: refuse, stay, or go to a target."""

    view: GroupView
    aim: DecisionGoals
    ts: int
    limit: str = ""  # why there cannot be more consumers now, if not because of --max-consumers

    @property
    def before(self) -> int:
        """How many consumers have partitions; idle ones do not count."""
        return len(self.view.assignment.consumers)

    def _decision(self, action: Action, after: int, reason: str) -> Decision:
        return Decision(
            ts=self.ts,
            group=self.aim.group,
            action=action,
            before=self.before,
            after=after,
            reason=reason,
        )

    def refuse(self, reason: str) -> GroupVerdict:
        """Nothing changes, because nothing reliable can be decided."""
        return GroupVerdict(self._decision(Action.REFUSE, self.before, reason))

    def stay(self, reason: str, forecast: Mapping[str, float] | None = None) -> GroupVerdict:
        """Nothing changes; the forecast is that of a plan that was not chosen."""
        decision = self._decision(Action.NONE, self.before, reason)
        return GroupVerdict(replace(decision, forecast=forecast or {}))

    def go(
        self,
        target: Assignment,
        reason: str,
        forecast: Mapping[str, float] | None = None,
        *,
        plan: ConsumerPlan | None = None,
    ) -> GroupVerdict:
        """The group goes to another assignment."""
        before, after = self.before, len(target.consumers)
        action = Action.REASSIGN
        if after != before:
            action = Action.SCALE_UP if after > before else Action.SCALE_DOWN
        decision = replace(
            self._decision(action, after, reason),
            forecast=forecast or {},
            plan=None if plan is None else plan_id(plan),
        )
        return GroupVerdict(decision, target, plan)


def with_more(answer: GroupVerdict, text: str) -> GroupVerdict:
    """The verdict with a longer reason."""
    reason = f"{answer.decision.reason}{text}"
    return replace(answer, decision=replace(answer.decision, reason=reason))
