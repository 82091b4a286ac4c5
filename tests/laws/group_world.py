"""A world for the controller's laws: consumers that obey, an orchestrator, and a referee.

Everything that can be late is a queue that somebody must work off: commands to each consumer,
reports to the controller, and what the orchestrator was asked to do. The referee looks after every
single move: no partition may be held by two processes, frozen ones included, for they may wake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trimtab.apply.consumers.controller import step
from trimtab.apply.consumers.controller_state import (
    ConsumerExited,
    ControllerRules,
    ControllerState,
    Create,
    Decide,
    Effect,
    Event,
    GroupObserved,
    GroupVerdict,
    GroupView,
    Kill,
    LeadershipGained,
    Note,
    Persist,
    PlanOrdered,
    Policy,
    RemovalRefused,
    Remove,
    ReportReceived,
    Send,
    WriteJournal,
)
from trimtab.apply.consumers.directed import ConsumerProcess, SendReport, execute
from trimtab.apply.consumers.plan_orders import inherited_orders
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, Command, Decision, GroupState, Rate, Report
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan import ConsumerPlan
from trimtab.model.plan_codec import plan_id

Step = Callable[[ControllerState, Event, Policy], tuple[ControllerState, tuple[Effect, ...]]]


@dataclass
class Process:
    """A consumer process; `read` is how far it is in its control partition."""

    state: ConsumerProcess
    identity: str
    read: int
    frozen: bool = False
    ending: bool = False
    mute: bool = False  # it is still starting, and says hello when it is woken


def towards(target: Assignment) -> Policy:
    """Always wants this, of the partitions there are."""

    def policy(view: GroupView) -> GroupVerdict | None:
        wanted = Assignment({p: c for p, c in target.items() if p in view.partitions})
        surplus = view.consumers - set(wanted.consumers)
        if wanted == view.assignment and not surplus:
            return None
        decision = Decision(
            ts=0,
            group="g",
            action=Action.REASSIGN,
            before=len(view.consumers),
            after=len(wanted.consumers),
            reason="so it was drawn",
        )
        return GroupVerdict(decision, wanted)

    return policy


@dataclass
class World:
    """Everything outside the controller, and the controller that leads just now."""

    partitions: frozenset[TopicPartition]
    take_step: Step = step
    now: float = 0.0
    processes: dict[int, Process] = field(default_factory=dict)
    commands: dict[int, list[Command]] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    kept: GroupState | None = None
    controller: ControllerState | None = None
    heard: int = 0
    pending: list[Effect] = field(default_factory=list)
    born: int = 0
    steps: int = 0
    reigns: int = 0
    crash_at: int | None = None
    unkillable: frozenset[int] = frozenset()
    violations: list[Note] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    rules: ControllerRules = field(default_factory=ControllerRules)
    slow: dict[int, float] = field(default_factory=dict)  # how long a consumer takes to start
    wakes: list[tuple[float, str]] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)  # of those that end as they start
    killed: list[int] = field(default_factory=list)
    immovable: frozenset[int] = frozenset()  # never removed
    stateful_set: bool = False  # only the highest are removed
    plans: dict[str, ConsumerPlan] = field(default_factory=dict)
    journal: list[JournalEntry] = field(default_factory=list)

    # ------------------------------------------------------------ the referee

    def check(self) -> None:
        """No partition is held by two processes."""
        for partition in sorted(self.partitions):
            owners = [c for c, p in self.processes.items() if partition in p.state.owned]
            assert len(owners) <= 1, f"{partition} is read by {owners}"

    @property
    def owners(self) -> Assignment:
        """Who reads what in truth."""
        return Assignment(
            {p: c for c, process in self.processes.items() for p in process.state.owned}
        )

    # ------------------------------------------------------------ the controller

    def lead(self) -> None:
        """A controller takes over; what the last one was about to do is not done."""
        self.controller = ControllerState(rules=self.rules)
        self.reigns += 1
        self.heard = len(self.reports)  # it reads from the end
        self.pending = []
        newest = {entry.plan: entry for entry in self.journal}
        kept = [(self.plans[name], entry) for name, entry in newest.items()]
        left = inherited_orders(kept, "g", now_ts=round(self.now * 1e6))
        nothing = towards(Assignment())
        self.feed(
            LeadershipGained(self.now, self.running(), self.kept, left.held_plan, left.held_s),
            nothing,
        )
        if left.unfinished is not None:
            plan, entry = left.unfinished
            self.feed(PlanOrdered(self.now, entry.plan, plan, step=entry.step), nothing)

    def order(self, plan: ConsumerPlan, policy: Policy, *, within_s: float = 30.0) -> None:
        """Somebody asks for a plan to be carried out."""
        name = plan_id(plan)
        self.plans[name] = plan
        ts = round(self.now * 1e6)
        self.journal.append(
            JournalEntry(plan=name, state=PlanState.MADE, step=0, of=len(plan.moves), ts=ts)
        )
        self.feed(
            PlanOrdered(self.now, name, plan, until=self.now + within_s, hold_s=60.0, ts=ts), policy
        )

    def feed(self, event: Event, policy: Policy) -> None:
        """One step: what it sends and writes is one transaction, the rest comes after it."""
        if self.controller is None:
            return
        self.controller, effects = self.take_step(self.controller, event, policy)
        if self.crashes():
            return
        for effect in effects:
            match effect:
                case Send(consumer, command):
                    self.commands.setdefault(consumer, []).append(command)
                case Persist(state):
                    self.kept = state
                case WriteJournal(entry):  # the producer stamps it
                    self.journal.append(replace(entry, ts=round(self.now * 1e6)))
                case Create() | Remove() | Kill():
                    self.pending.append(effect)
                case Decide(decision):
                    self.decisions.append(decision)
                case Note():
                    self.violations += [effect] if effect.violation else []
        self.crashes()
        self.check()

    def crashes(self) -> bool:
        """Counts the steps of the controller, and ends it at the one that was chosen."""
        self.steps += 1
        if self.steps - 1 == self.crash_at:
            self.controller = None
            return True
        return False

    def look(self, policy: Policy) -> None:
        """Time is up for another look."""
        looked = GroupObserved(
            now=self.now, running=self.running(), partitions=self.partitions, reasons=self.reasons
        )
        self.feed(looked, policy)

    def hear(self, policy: Policy) -> bool:
        """The next report reaches the controller."""
        if self.controller is None or self.heard >= len(self.reports):
            return False
        self.heard += 1
        self.feed(ReportReceived(self.now, self.reports[self.heard - 1]), policy)
        return True

    # ------------------------------------------------------------ the orchestrator

    def running(self) -> dict[int, str]:
        """What exists, frozen or not."""
        return {c: p.identity for c, p in self.processes.items()}

    def orchestrate(self, policy: Policy) -> bool:
        """Does one thing that it was asked for."""
        if self.controller is None or not self.pending:
            return False
        effect = self.pending.pop(0)
        if self.crashes():
            return False
        match effect:
            case Create(consumers):
                for consumer in sorted(set(consumers) - self.processes.keys()):
                    self.start(consumer)
            case Remove(consumers):
                immovable = self.immovable | self.below_others(set(consumers))
                for consumer in sorted(self.processes.keys() & set(consumers) - immovable):
                    self.let_go(consumer)
                if kept := immovable & set(consumers):
                    self.feed(RemovalRefused(self.now, kept), policy)
            case Kill(consumer=consumer) if consumer in self.unkillable:
                self.pending.append(effect)
                return False
            case Kill(consumer=consumer, identity=identity):
                self.kill(consumer, identity)
                self.feed(ConsumerExited(self.now, consumer, identity), policy)
            case _:
                raise TypeError(effect)
        self.check()
        return True

    def let_go(self, consumer: int) -> None:
        """Has a process end gently, when it is awake."""
        process = self.processes[consumer]
        assert not process.state.owned, "a busy consumer is let go"
        process.ending = True
        self.thaw(consumer, frozen=process.frozen)

    def below_others(self, idle: set[int]) -> frozenset[int]:
        """Those that a StatefulSet keeps: it removes pods from the top, as far as all are idle."""
        top = max(self.processes.keys() - idle, default=-1)
        return frozenset(c for c in idle if self.stateful_set and c < top)

    def kill(self, consumer: int, identity: str | None) -> None:
        """Ends a process, but not another one in its place."""
        if self.running().get(consumer) == identity:
            self.killed.append(consumer)
            del self.processes[consumer]

    def start(self, consumer: int) -> None:
        """A new process: it reads commands from the end, and says hello once it has started."""
        self.born += 1
        state = ConsumerProcess(consumer=consumer, incarnation=f"i{self.born}")
        end = len(self.commands.get(consumer, []))
        process = Process(state, identity=f"p{self.born}", read=end)
        self.processes[consumer] = process
        process.frozen = process.mute = consumer in self.reasons or consumer in self.slow
        if consumer in self.slow:
            self.wakes.append((self.now + self.slow[consumer], process.identity))
        elif not process.mute:
            self.reports.append(state.hello)

    # ------------------------------------------------------------ the consumers

    def work(self, consumer: int) -> bool:
        """A consumer obeys its next command."""
        process = self.processes.get(consumer)
        if process is None or process.frozen:
            return False
        waiting = self.commands.get(consumer, [])
        if process.read >= len(waiting):
            return False
        command = waiting[process.read]
        process.read += 1
        process.state, actions = execute(process.state, command, {})
        self.reports += [action.report for action in actions if isinstance(action, SendReport)]
        self.check()
        return True

    def thaw(self, consumer: int, *, frozen: bool = False) -> None:
        """Freezes or wakes a process; one that was told to end does so once it is awake."""
        process = self.processes[consumer]
        process.frozen = frozen
        if process.mute and not frozen:
            process.mute = False
            process.read = len(self.commands.get(consumer, []))
            self.reports.append(process.state.hello)
        if process.ending and not frozen:
            assert not process.state.owned, "a busy consumer ends"
            del self.processes[consumer]

    def breathe(self) -> None:
        """Whoever is not frozen gives a sign of life."""
        for consumer, process in self.processes.items():
            if not process.frozen:
                self.reports.append(
                    Rate(
                        consumer=consumer,
                        incarnation=process.state.incarnation,
                        max_bytes_s=None,
                        max_records_s=None,
                    )
                )

    # ------------------------------------------------------------ all together

    def turn(self, policy: Policy) -> None:
        """Everybody does what is to be done, once; time goes on by a second."""
        self.now += 1
        if self.controller is None:
            self.lead()
        for consumer in [c for c, p in self.processes.items() if p.mute and c in self.reasons]:
            del self.processes[consumer]
        due = {identity for at, identity in self.wakes if at <= self.now}
        for consumer in [c for c, p in self.processes.items() if p.mute and p.identity in due]:
            self.thaw(consumer)
        self.breathe()
        for consumer in sorted(self.processes):
            while self.work(consumer):
                pass
        while self.hear(policy):
            pass
        while self.orchestrate(policy):
            pass
        self.look(policy)

    def settle(self, target: Assignment, *, turns: int = 400) -> int:
        """Turns until the target is reached in truth; the referee looks on."""
        policy = towards(target)
        for turn in range(turns):
            wanted = Assignment({p: c for p, c in target.items() if p in self.partitions})
            if self.owners == wanted and set(self.processes) == set(wanted.consumers):
                return turn
            self.turn(policy)
        raise AssertionError(f"not settled: {self.owners} instead of {target}")
