"""The faults of a campaign, the points where a consumer ends itself, and the broken variants."""

from __future__ import annotations

from enum import StrEnum


class CampaignFault(StrEnum):
    """What happens to the processes while keys migrate.

    kill_*: kill -9 of the consumer that a key leaves, of the one it goes to, of both, or of a
    broker; consumers are started again. freeze_*: SIGSTOP for longer than the session time-out,
    then SIGCONT, while others have taken over. takeover: in directed mode, another consumer gets
    the partitions of one that is believed dead and goes on. leave, join: a consumer ends as asked,
    one more starts. point: a consumer ends itself at one of the kill points.
    """

    KILL_OLD = "kill-old"
    KILL_NEW = "kill-new"
    KILL_BOTH = "kill-both"
    KILL_BROKER = "kill-broker"
    FREEZE_OLD = "freeze-old"
    FREEZE_NEW = "freeze-new"
    FREEZE_BOTH = "freeze-both"
    TAKEOVER = "takeover"
    LEAVE = "leave"
    JOIN = "join"
    POINT = "point"


class KillPoint(StrEnum):
    """Where a consumer ends itself, as by kill -9."""

    BEFORE_END = "before-end"
    HANDOVER_SENT = "handover-sent"
    PARKING = "parking"
    ADOPTING = "adopting"
    ADOPTED = "adopted"


class BrokenVariant(StrEnum):
    """A consumer with one rule broken: an audit that finds nothing then is worth nothing.

    no-left: a partition forgets the keys that have left it. parked-in-memory: parked records are
    not in the changelog. restore-first: a task is restored before its predecessor is fenced.
    """

    NO_LEFT = "no-left"
    PARKED_IN_MEMORY = "parked-in-memory"
    RESTORE_FIRST = "restore-first"
