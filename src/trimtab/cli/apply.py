"""`trimtab apply`: shows a plan, checks that it still fits, and has it carried out or undone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trimtab.apply.freshness import check_fresh
from trimtab.cli.connection import ClusterOptions, cluster_of, local_cluster_runs
from trimtab.cli.options import (
    AsJson,
    LoadsStep,
    ReportFile,
    Verbose,
    duration_option,
    with_options,
)
from trimtab.cli.output import progress_bar, result, result_json, say, warn, write_report
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.measure.group_state import GroupSnapshot
from trimtab.model.codec import VERSION, read_loads
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.journal_codec import journal_to
from trimtab.model.load import Measurement
from trimtab.model.plan import AnyPlan, ConsumerPlan
from trimtab.model.plan_codec import plan_id, plan_to, read_plan
from trimtab.observe.logging import configure
from trimtab.plan.consumers.situation import situation_of_file
from trimtab.services.apply import (
    ApplyOptions,
    carry_out,
    journal_of,
    not_carried_out,
    stored_plan,
    undoing,
)
from trimtab.services.groups import present_group


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyVerbOptions:
    """The plan, what is done with it, and what it is compared with."""

    plan_file: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="What `trimtab plan … -o` wrote, or the id of a plan stored in the cluster.",
        ),
    ]
    execute: Annotated[
        bool, typer.Option("--execute", help="Carry the plan out; without it nothing changes.")
    ] = False
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback", help="Show the plan that undoes PLAN; with --execute, carry that out."
        ),
    ] = False
    hold: Annotated[
        float,
        duration_option(
            "--hold",
            zero=True,
            shown="5m",
            help="How long the controller makes no changes of its own afterwards, except for an "
            "overload or a partition without a reader.",
        ),
    ] = 300.0
    timeout: Annotated[
        float,
        duration_option(
            "--timeout",
            shown="10m",
            help="How long to wait for the plan to end. The controller goes on after that.",
        ),
    ] = 600.0
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="Compare with the partitions and the assignment of this loads file, "
            "instead of the live group.",
        ),
    ] = None
    step: LoadsStep = None
    report: ReportFile = None
    of: ClusterOptions
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def apply(options: ApplyVerbOptions) -> None:
    """Show a plan, check that it still fits, and carry it out with --execute.

    If partitions or owners have changed since the plan was made, it is refused with exit code 5. A
    consumers' plan is carried out by the controller of its group (`trimtab run --execute`).
    """
    configure(verbose=options.verbose)
    cluster = _cluster(options)
    given = read_named_plan(options.plan_file, cluster)
    plan = undoing(given, cluster) if options.rollback else given
    if not options.as_json:
        from trimtab.report.plans import plan_view

        result(plan_view(plan))
    if options.report is not None:
        from trimtab.report.plan_page import plan_page

        write_report(options.report, plan_page(plan))
    loads = options.loads
    if options.execute and cluster is not None:
        if loads is not None:
            raise ConfigError("--loads is a file: leave it out to carry the plan out.")
        how = ApplyOptions(hold_s=options.hold, within_s=options.timeout)
        done = _carry_out(plan, cluster, how, undoes=given if options.rollback else None)
        _tell(plan, fresh=True, entry=done, as_json=options.as_json)
        return
    now = _of_file(plan, loads, options.step) if loads is not None else _of_cluster(plan, cluster)
    entry = None if cluster is None or loads is not None else journal_of(cluster, plan)
    _check(plan, now, entry, as_json=options.as_json)


def _check(
    plan: AnyPlan, now: GroupSnapshot | None, entry: JournalEntry | None, *, as_json: bool
) -> None:
    """Refuses a plan that no longer fits; one that was begun is compared with its journal."""
    if now is not None and isinstance(plan, ConsumerPlan) and not _under_way(entry):
        check_fresh(plan, now.partitions, now.assignment)
    _tell(plan, fresh=None if now is None else True, entry=entry, as_json=as_json)


def _under_way(entry: JournalEntry | None) -> bool:
    """Whether a plan is compared with its journal: it has moved some partitions itself."""
    return entry is not None and entry.state in {PlanState.RUNNING, PlanState.DONE}


def _carry_out(
    plan: AnyPlan, cluster: Cluster, options: ApplyOptions, *, undoes: AnyPlan | None
) -> JournalEntry:
    say(f"Carrying out plan {plan_id(plan)}; Ctrl-C stops waiting, the controller goes on.")
    with progress_bar() as bar:
        task = bar.add_task("moves", total=None)
        return carry_out(
            plan,
            cluster,
            options,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            undoes=undoes,
        )


def _tell(plan: AnyPlan, *, fresh: bool | None, entry: JournalEntry | None, as_json: bool) -> None:
    if as_json:
        journal = {} if entry is None else {"journal": journal_to(entry)}
        result_json({"v": VERSION, "plan": plan_to(plan), "fresh": fresh, **journal})
        return
    if entry is not None:
        why = f": {entry.why.rstrip('.')}" if entry.why else ""
        say(f"Its journal: {entry.state}, {entry.step} of {entry.of} moves{why}.")
    if _under_way(entry):
        return
    if not isinstance(plan, ConsumerPlan):
        say(not_carried_out(plan))
    elif fresh:
        say("The plan is fresh: partitions and owners are as it found them.")
    else:
        say(
            "Whether the plan is still fresh was not checked: that needs its group and "
            "a cluster (--bootstrap-server, or a running local one), or --loads."
        )


def _cluster(options: ApplyVerbOptions) -> Cluster | None:
    """The cluster that is named or runs here; None where there is neither and none is needed."""
    settings = options.of.settings()
    named = settings.bootstrap_server is not None or settings.command_config is not None
    if not (options.execute or named or local_cluster_runs(settings)):
        return None
    return cluster_of(settings)


def read_named_plan(named: str, cluster: Cluster | None) -> AnyPlan:
    """The plan of a file, else the one that the cluster keeps under this id."""
    is_id = len(named) == 12 and all(c in "0123456789abcdef" for c in named)
    if is_id and not Path(named).exists():
        if cluster is None:
            raise ConfigError(
                f"There is no file {named}, and no cluster to look for a plan of that id.",
                hint="Give --bootstrap-server, or the plan's file.",
            )
        return stored_plan(cluster, named)[0]
    plan, warnings = read_plan(named)
    warn(warnings)
    return plan


def _of_file(plan: AnyPlan, path: Path, step: int | None) -> GroupSnapshot:
    found, warnings = read_loads(path)
    warn(warnings)
    if isinstance(found, Measurement):
        raise ConfigError(
            f"{path} is a measurement, which does not say who reads what.",
            hint="Give a loads file, or --bootstrap-server.",
        )
    topics = frozenset(plan.scope.topics)
    situation = situation_of_file(found, origin=str(path), step=step)
    return GroupSnapshot(
        frozenset(p for p in situation.loads if p.topic in topics), situation.current
    )


def _of_cluster(plan: AnyPlan, cluster: Cluster | None) -> GroupSnapshot | None:
    if plan.scope.group is None or cluster is None:
        return None
    return present_group(cluster, plan.scope.group, frozenset(plan.scope.topics))
