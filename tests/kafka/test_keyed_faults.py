"""Keyed consumers on real brokers, hurt while their keys migrate, and judged key by key.

Longer, with all faults in random order: `trimtab experiment keyed-faults`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trimtab.apply.keys.key_route import GatewayMode
from trimtab.evaluate.key_history import SetFindingKind
from trimtab.local.cluster import LocalCluster
from trimtab.services.consume import ConsumeMode
from trimtab_lab.keyed_faults.faults import BrokenVariant, CampaignFault, KillPoint
from trimtab_lab.keyed_faults.kafka.campaign import CampaignPlan, campaign
from trimtab_lab.keyed_faults.schedule import ScheduleRules
from trimtab_lab.keyed_faults.verdict import CampaignVerdict

WITHIN_S = 240.0
"""Generous: on a busy machine a process may take ten seconds until it reads."""


def plan(mode: ConsumeMode, manner: GatewayMode):
    return CampaignPlan(
        mode=mode,
        manner=manner,
        rules=ScheduleRules(seed=11, records_per_s=100),
        seed=11,
        heal_s=WITHIN_S,
        fail_fast=True,
    )


def told(verdict: CampaignVerdict) -> str:
    return "\n".join(verdict.lines())


def test_directed_consumers_keep_every_key_whole_when_they_end_at_the_worst_moment(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with campaign(
        cluster, plan(ConsumeMode.DIRECTED, GatewayMode.LOW_LATENCY), tmp_path
    ) as running:
        for point in KillPoint:
            running.hurt(CampaignFault.POINT, point)
        running.hurt(CampaignFault.TAKEOVER)
        verdict = running.finish()

    assert verdict.is_clean, told(verdict)
    assert verdict.audit.adoptions > 20, told(verdict)


def test_members_of_a_group_keep_every_key_whole_when_others_die_freeze_and_leave(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with campaign(cluster, plan(ConsumeMode.GROUP, GatewayMode.EXACTLY_ONCE), tmp_path) as running:
        for fault in (
            CampaignFault.KILL_BOTH,
            CampaignFault.FREEZE_OLD,
            CampaignFault.LEAVE,
            CampaignFault.KILL_BROKER,
        ):
            running.hurt(fault)
        verdict = running.finish()

    assert verdict.is_clean, told(verdict)
    assert verdict.audit.adoptions > 20, told(verdict)


def test_the_audit_finds_what_a_consumer_loses_that_parks_only_in_memory(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    broken = replace(
        plan(ConsumeMode.DIRECTED, GatewayMode.EXACTLY_ONCE),
        variant=BrokenVariant.PARKED_IN_MEMORY,
        fail_fast=False,  # a lost END is waited for in vain
        heal_s=30.0,
    )
    with campaign(cluster, broken, tmp_path) as running:
        for _ in range(3):
            running.hurt(CampaignFault.POINT, KillPoint.PARKING)
        verdict = running.finish()

    kinds = {finding.kind for finding in verdict.audit.findings}
    assert SetFindingKind.WRONG_CHAIN in kinds, told(verdict)  # later records were applied
    assert verdict.wrong_states, told(verdict)
