"""A campaign: real consumers under a scripted gateway, hurt again and again, then judged.

Promise  Every fault is followed by a wait until the group has read what was there when it was over;
         a group that does not get there in time is a finding. At the end all is drained before the
         topics are read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.key_route import GatewayMode
from trimtab.errors import TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.observe.clock import TimedOut, wait_until
from trimtab.services.consume import ConsumeMode
from trimtab_lab.keyed_faults.faults import BrokenVariant, CampaignFault, KillPoint
from trimtab_lab.keyed_faults.kafka.aftermath import settled_aftermath
from trimtab_lab.keyed_faults.kafka.director import Director
from trimtab_lab.keyed_faults.kafka.scripted_gateway import ScriptedGateway
from trimtab_lab.keyed_faults.schedule import ScheduleRules
from trimtab_lab.keyed_faults.verdict import BlockedTimes, CampaignVerdict, judged, wrong_states

_SESSION_S = 10.0
"""The session time-out of members of a group, see `open_group_reader`."""

_RIVALS_S = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignPlan:
    """What a campaign does.

    Attributes:
        mode: How consumers get their partitions.
        manner: How the scripted gateway writes.
        rules: Its schedule.
        seed: Of the faults.
        consumers: How many consumers there are at first.
        variant: A rule of the protocol that all consumers break.
        heal_s: Longest time until the group has recovered from a fault.
        fail_fast: Whether a wait that fails raises `TimedOut` instead of being a finding.
    """

    mode: ConsumeMode = ConsumeMode.DIRECTED
    manner: GatewayMode = GatewayMode.EXACTLY_ONCE
    rules: ScheduleRules = field(default_factory=ScheduleRules)
    seed: int = 0
    consumers: int = 3
    variant: BrokenVariant | None = None
    heal_s: float = 120.0
    fail_fast: bool = False


class ConsumerSlot:
    """The place of one consumer; its process may be replaced."""

    def __init__(self, index: int, argv: Callable[[int], list[str]], folder: Path) -> None:
        self.index = index
        self._argv = argv
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, env: dict[str, str], *faulty: str) -> None:
        """Starts the process; `faulty` are options of the faulty consumer."""
        program = [sys.executable, "-m", "trimtab_lab.keyed_faults.faulty_consumer"]
        adoptions = ["--adoptions", str(self._folder / f"adoptions-{self.index}")]
        with (self._folder / f"consumer-{self.index}.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [*program, *adoptions, *faulty, "--", *self._argv(self.index)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def is_alive(self) -> bool:
        """Whether the process runs or is frozen."""
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process if it is alive."""
        if self._process is not None and self.is_alive:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Ends the process as `kill -9` does."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def end(self, within_s: float) -> bool:
        """Asks the process to end; False if it had to be killed."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self._process is None:
            return True
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def last_words(self) -> str:
        """The end of its log."""
        log = self._folder / f"consumer-{self.index}.log"
        return log.read_text(errors="replace")[-1500:] if log.exists() else ""


class Campaign:
    """Consumers, director and gateway of one campaign; faults are done one after the other."""

    def __init__(
        self, brokers: LocalCluster, plan: CampaignPlan, folder: Path, *, say: Say = lambda _: None
    ) -> None:
        self.plan = plan
        self.faults: Counter[str] = Counter()
        self.unhealed: list[str] = []
        self._say = say
        self._brokers = brokers
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex[:8]
        self._topics = OwnTopics(f"k{name}.")
        self._cluster = Cluster(brokers.bootstrap_servers, topics=self._topics)
        self.topic, self.group = f"keyed-{name}", f"group-{name}"
        self._random = Random(f"{plan.seed}/faults")
        self._began = time.monotonic()
        self.gateway = ScriptedGateway(self._cluster, self.topic, plan.rules, plan.manner)
        self._director = (
            Director(self._cluster, self.group, self.topic, plan.rules.partitions, seed=plan.seed)
            if plan.mode is ConsumeMode.DIRECTED
            else None
        )
        self._slots = [self._slot(index) for index in range(plan.consumers)]

    # ------------------------------------------------------------ begin and end

    def start(self, *faulty: str) -> None:
        """Starts everything, and waits until records are read."""
        for slot in self._slots:
            self._launch(slot, *faulty)
        if self._director is not None:
            self._director.start()
        self.gateway.start()
        self._heal("the start")

    def _slot(self, index: int) -> ConsumerSlot:
        return ConsumerSlot(index, self._argv, self._folder)

    def _argv(self, index: int) -> list[str]:
        return [
            *("consume", "--keyed", "--verbose", "--mode", str(self.plan.mode)),
            *("--bootstrap-server", self._cluster.servers),
            *("--group", self.group, "--topic", self.topic, "--index", str(index)),
            *("--commit-every", "200ms", "--max-parked", "200", "--run", "campaign"),
        ]

    @property
    def _env(self) -> dict[str, str]:
        return {
            **os.environ,
            "TRIMTAB_TOPIC_PREFIX": self._topics.prefix,
            "TRIMTAB_HOME": str(self._folder),
        }

    def _launch(self, slot: ConsumerSlot, *faulty: str) -> None:
        variant = self.plan.variant
        broken = [] if variant is None else ["--variant", str(variant)]
        slot.start(self._env, *broken, *faulty)

    def close(self) -> None:
        """Ends every process and thread that was started here."""
        if self._director is not None:
            self._director.stop()
        for slot in self._slots:
            slot.kill()

    def finish(self) -> CampaignVerdict:
        """Stops the gateway, waits until all is drained, and judges."""
        self.gateway.stop()
        if self._director is not None:
            self._director.keep_still()
        truth = self.gateway.truth
        self._heal("the end")
        found = settled_aftermath(
            self._cluster,
            self.topic,
            self.group,
            self.plan.rules.partitions,
            truth,
            within_s=self.plan.heal_s if not self.unhealed else 0.0,
        )
        if found.unrest:
            self.unhealed.append(f"at the end {found.unrest}")
        return CampaignVerdict(
            audit=judged(found.history),
            wrong_states=tuple(wrong_states(truth, found.counts)),
            unhealed=tuple(self.unhealed),
            blocked=BlockedTimes.of(self._blocked()),
            from_end=BlockedTimes.of(found.from_end_s),
            faults=dict(self.faults),
            migrations=self.gateway.moved,
            gateway_starts=self.gateway.starts,
        )

    def _blocked(self) -> list[float]:
        lines = [
            line
            for file in sorted(self._folder.glob("adoptions-*"))
            for line in file.read_text().splitlines()
        ]
        return [json.loads(line)["blocked_s"] for line in lines if line.endswith("}")]

    # ------------------------------------------------------------ faults

    def run(self, minutes: float) -> None:
        """Does random faults for so long; all of them in turn, in an order by the seed."""
        until = time.monotonic() + 60 * minutes
        left: list[CampaignFault] = []
        while time.monotonic() < until and not self.unhealed:
            if not left:
                left = [
                    f
                    for f in CampaignFault
                    if f is not CampaignFault.TAKEOVER or self._director is not None
                ]
                self._random.shuffle(left)
            self.hurt(left.pop())

    def hurt(self, fault: CampaignFault, point: KillPoint | None = None) -> None:
        """Does one fault and waits until the group has recovered."""
        self._say(f"{time.monotonic() - self._began:.0f} s: {fault}{f' {point}' if point else ''}")
        self.faults[str(fault)] += 1
        match fault:
            case CampaignFault.KILL_OLD | CampaignFault.KILL_NEW | CampaignFault.KILL_BOTH:
                self._kill(self._victims(fault is CampaignFault.KILL_BOTH))
            case CampaignFault.FREEZE_OLD | CampaignFault.FREEZE_NEW | CampaignFault.FREEZE_BOTH:
                self._freeze(self._victims(fault is CampaignFault.FREEZE_BOTH))
            case CampaignFault.KILL_BROKER:
                self._kill_broker()
            case CampaignFault.TAKEOVER:
                self._take_over(self._victims(both=False))
            case CampaignFault.LEAVE:
                self._leave()
            case CampaignFault.JOIN:
                self._join()
            case CampaignFault.POINT:
                self._die_at(point or self._random.choice(list(KillPoint)))
        self._heal(f"{fault}{f' {point}' if point else ''}")

    def _victims(self, both: bool) -> list[ConsumerSlot]:
        """The owners of two partitions: keys go from one to the other all the time."""
        owners = self.owners()
        busy = sorted({n for n in owners.values() if n < len(self._slots)}) or [0]
        chosen = self._random.sample(busy, min(2 if both else 1, len(busy)))
        return [self._slots[n] for n in chosen]

    def owners(self) -> dict[int, int]:
        """The index of the consumer of each partition, as far as it is known."""
        if self._director is not None:
            return self._director.owners()
        try:
            with self._cluster.admin() as admin:
                [group] = admin.groups([self.group])
        except (TrimtabError, ValueError):
            return {}
        ends = f"trimtab-{self.group}-"
        return {
            partition.partition: int(member.client_id.removeprefix(ends))
            for member in group.members
            if member.client_id.startswith(ends)
            for partition in member.partitions
        }

    def _kill(self, victims: list[ConsumerSlot]) -> None:
        for slot in victims:
            slot.kill()
            self._dead(slot)
        for slot in victims:
            self._launch(slot)

    def _dead(self, slot: ConsumerSlot) -> None:
        if self._director is not None:
            self._director.declare_dead(slot.index)

    def _freeze(self, victims: list[ConsumerSlot]) -> None:
        """Longer than the session; in directed mode others take over in one of two cases."""
        if len(victims) == len(self._slots):
            self._join()
        replaced = self._director is not None and self._random.random() < 0.5
        for slot in victims:
            slot.send(signal.SIGSTOP)
            if replaced:
                self._dead(slot)
        time.sleep(_SESSION_S + 2)
        for slot in victims:
            slot.send(signal.SIGCONT)
        if replaced:
            self._rival(victims)

    def _take_over(self, victims: list[ConsumerSlot]) -> None:
        """Others get the partitions of a consumer that lives."""
        for slot in victims:
            self._dead(slot)
        self._rival(victims)

    def _rival(self, victims: list[ConsumerSlot]) -> None:
        """Two processes believe that they own partitions, until the first ones are ended.

        A controller gives nothing away before that; they fence each other, and may get nowhere.
        """
        director = self._director
        if director is not None:
            with suppress(TimedOut):
                wait_until(director.all_read, within_s=_RIVALS_S, what="other owners")
        self._kill(victims)

    def _kill_broker(self) -> None:
        broker = self._random.choice([b.id for b in self._brokers.status().brokers])
        self._brokers.kill(broker)
        time.sleep(self._random.uniform(1.0, 5.0))
        self._brokers.start(broker)

    def _leave(self) -> None:
        if len([slot for slot in self._slots if slot.is_alive]) < 2:
            self._join()
        slot = self._random.choice([slot for slot in self._slots if slot.is_alive])
        if not slot.end(60):
            self.unhealed.append(f"consumer {slot.index} did not end within 60 s")
        self._dead(slot)

    def _join(self) -> None:
        gone = [slot for slot in self._slots if not slot.is_alive]
        if not gone and len(self._slots) < self.plan.consumers + 2:
            self._slots.append(self._slot(len(self._slots)))
            gone = self._slots[-1:]
        for slot in gone[:1]:
            self._launch(slot)

    def _die_at(self, point: KillPoint) -> None:
        """Replaces a consumer by one that ends itself at this point, and waits until it has."""
        [slot] = self._victims(both=False)
        slot.kill()
        self._dead(slot)
        nth = self._random.randrange(1, 4)
        self._launch(slot, "--point", str(point), "--nth", str(nth))
        try:
            wait_until(
                lambda: not slot.is_alive, within_s=self.plan.heal_s, what=f"the end at {point}"
            )
        except TimedOut as error:
            if self.plan.fail_fast:
                raise
            self.unhealed.append(str(error))
            return
        self.faults[f"point {point}"] += 1
        self._dead(slot)
        self._launch(slot)

    # ------------------------------------------------------------ recovery

    def _heal(self, what: str) -> None:
        """Waits until everything that is there now is committed; else it is a finding."""
        try:
            goal = self._persist(lambda: self._offsets(committed=False))
            wait_until(
                lambda: self._reached(goal),
                within_s=self.plan.heal_s,
                every_s=0.2,
                what=f"recovery from {what}",
            )
        except TimedOut as error:
            words = [f"consumer {slot.index}: …{slot.last_words()}" for slot in self._slots]
            if self.plan.fail_fast:
                raise TimedOut("\n".join([str(error), *words])) from error
            self.unhealed.append(f"{error} Owners: {self.owners()}")
            for line in words:
                self._say(line)
        if self._director is not None and self._director.failure is not None:
            raise self._director.failure

    def _reached(self, goal: dict[int, int]) -> bool:
        for slot in self._slots:  # one that has ended itself though nobody asked
            if not slot.is_alive and slot.index in self.owners().values():
                self.unhealed.append(f"consumer {slot.index} has ended: {slot.last_words()}")
                return True
        try:
            done = self._offsets(committed=True)
        except KafkaException:
            return False
        return all(done.get(p, 0) >= end for p, end in goal.items())

    def _persist(self, ask: Callable[[], dict[int, int]]) -> dict[int, int]:
        """Asks until the brokers answer."""
        found: list[dict[int, int]] = []

        def answered() -> bool:
            try:
                found.append(ask())
            except KafkaException:
                return False
            return True

        wait_until(answered, within_s=self.plan.heal_s, what="an answer of the brokers")
        return found[-1]

    def _offsets(self, *, committed: bool) -> dict[int, int]:
        """What the group has committed, or the ends of the partitions."""
        settings = {"group.id": self.group, "isolation.level": "read_committed"}
        places = [TheirPartition(self.topic, n) for n in range(self.plan.rules.partitions)]
        with closing(self._cluster.consumer("campaign", settings)) as asking:
            if committed:
                found = asking.committed(places, timeout=30)
                return {p.partition: p.offset for p in found if p.offset >= 0}
            return {p.partition: asking.get_watermark_offsets(p, timeout=30)[1] for p in places}


@contextmanager
def campaign(
    brokers: LocalCluster, plan: CampaignPlan, folder: Path, *, say: Say = lambda _: None
) -> Iterator[Campaign]:
    """A campaign that has begun; its processes end with the block."""
    running = Campaign(brokers, plan, folder, say=say)
    try:
        running.start()
        yield running
    finally:
        running.close()
