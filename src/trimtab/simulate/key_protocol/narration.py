"""Tells how a fault was reached: who did what, and what each side believed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trimtab.apply.keys.key_entry import EntryStatus
from trimtab.apply.keys.message_sets import (
    DataRecord,
    EndMarker,
    FenceMarker,
    StartMarker,
)
from trimtab.simulate.key_protocol.exploration import Action, FoundFault
from trimtab.simulate.key_protocol.scenario import ProtocolFault
from trimtab.simulate.key_protocol.world import MODES, ModelTables, TaskMemory, World

_GATEWAY_ACTS = {
    "commits": "commits its transaction",
    "crashes": "crashes; another gateway is started",
    "freezes": "freezes; another gateway is started",
    "aborts": "has its transaction aborted and goes on",
    "is_fenced": "finds that it is fenced and starts again",
    "refuses": "refuses to run: its input topic was created again",
    "commits_moves": "commits its offset of .moves",
}
_TASK_ACTS = {
    "commits": "commits its transaction",
    "commits_late": "wakes up and commits its old transaction",
    "saves": "saves the entry in its store",
    "crashes": "crashes; another owner is started",
    "freezes": "freezes; another owner is started",
}


def narrate(fault: FoundFault[World], tables: ModelTables) -> str:
    """The fault and the steps to it, as numbered lines."""
    lines = [f"{ProtocolFault[fault.kind]}: {fault.text}", ""]
    for number, step in enumerate(fault.trace, 1):
        lines.append(f"{number:3}. {_act(step.action, tables)}")
        if step.after is not None:
            lines += [f"     {line}" for line in _beliefs(step.action, step.after, tables)]
    last = fault.trace[-1].after if fault.trace else None
    if last is not None:
        lines += ["", "At the end nothing more happens:"]
        tasks = tuple(owners[-1].memory for owners in last.owners) or last.tasks
        lines += [f"  {_task(partition, memory, tables)}" for partition, memory in enumerate(tasks)]
    return "\n".join(lines)


def _act(action: Action, tables: ModelTables) -> str:
    match action:
        case ("gateway", number, act, *details):
            said = _GATEWAY_DETAILS.get(act)
            text = _GATEWAY_ACTS[act] if said is None else said(tables, *details)
            return f"Gateway {number} {text}."
        case ("task", partition, act, *details):
            said = _TASK_DETAILS.get(act)
            text = _TASK_ACTS[act] if said is None else said(tables, *details)
            return f"The task of partition {partition} {text}."
        case ("broker", partition, "stores", letter, number):
            return f"Partition {partition} stores {_letter(tables, letter)} of gateway {number}."
        case _:
            return "The input topic is deleted and created again; its offsets begin at 0."


def _migrates(_: ModelTables, key: int, target: int, *__: object) -> str:
    return f"begins to migrate key {key} to partition {target}"


def _takes(tables: ModelTables, handover: int) -> str:
    key, value = tables.handovers.values[handover]
    what = "" if value is None else f"set {value.set_id}, {_history(value.value)}"
    return f"takes the hand-over of key {key}: {what}"


def _gives_up(tables: ModelTables, letter: int, partition: int) -> str:
    return (
        f"gives up {_letter(tables, letter)} for partition {partition} after a time-out; another "
        "gateway is started"
    )


_GATEWAY_DETAILS: dict[str, Callable[..., str]] = {
    "start": lambda _, steps: f"starts: {', then '.join(steps)}",
    "routes": lambda tables, letter, p: f"routes {_letter(tables, letter)} to partition {p}",
    "migrates": _migrates,
    "changes_route": lambda _, key, p: f"changes the route of key {key} to partition {p}",
    "skips": lambda _, key, p: f"skips a move of key {key} to partition {p}",
    "stage": lambda _, key, stage, set_id: (
        f"goes on to migrate key {key}, set {set_id}: {stage.upper()}"
    ),
    "commits_offset": lambda _, offset: f"commits the input offset {offset}",
    "gives_up": _gives_up,
}
_TASK_DETAILS: dict[str, Callable[..., str]] = {
    "start": lambda _, steps: f"has a new owner, which starts: {', then '.join(steps)}",
    "reads": lambda tables, letter: f"reads {_letter(tables, letter)}",
    "replays": lambda tables, letter: f"replays the parked {_letter(tables, letter)}",
    "takes": _takes,
    "commits_offset": lambda _, offset: f"commits offset {offset}",
    "adopts_empty": lambda _, key: f"takes END of key {key} for unreadable; adopts the empty state",
}


def _letter(tables: ModelTables, letter: int) -> str:
    key, record = tables.letters.values[letter]
    match record:
        case DataRecord(payload=number, set_id=set_id, gen=gen, src=src):
            belongs = "no set id" if set_id is None else f"set {set_id}"
            return f"record {number} of key {key} (source {src}, {belongs}, generation {gen})"
        case EndMarker(next_set=next_set, to=to, gen=gen):
            return f"END of key {key} (next set {next_set} on partition {to}, generation {gen})"
        case StartMarker(set_id=set_id, source=source, gen=gen):
            return f"START of key {key} (set {set_id} from partition {source}, generation {gen})"
        case FenceMarker(gen=gen):
            return f"FENCE of generation {gen}"
        case _:
            raise ValueError(f"Unknown record {record}.")


def _beliefs(action: Action, after: World, tables: ModelTables) -> Iterator[str]:
    if action[0] == "gateway":
        for gateway in after.gateways:
            if gateway.number == action[1] and gateway.alive and gateway.step:
                routes = ", ".join(
                    f"key {key} {_route(number, tables)}"
                    for key, number in enumerate(gateway.routes)
                )
                yield (
                    f"Gateway {gateway.number} ({MODES[gateway.mode]}, generation {gateway.gen}) "
                    f"believes: {routes}; next input offset {gateway.position}."
                )
    elif action[0] == "task":
        partition = action[1]
        if not after.owners:
            yield _task(partition, after.tasks[partition], tables)
            return
        for owner in after.owners[partition]:
            if owner.step == len(tables.protocol.task_start):
                yield _task(partition, owner.memory, tables)


def _route(number: int, tables: ModelTables) -> str:
    route = tables.routes.values[number]
    if route is None:
        return "is at home"
    return f"is on partition {route.partition} (set {route.set_id}, {route.phase})"


def _task(partition: int, memory: TaskMemory, tables: ModelTables) -> str:
    keys = []
    for key, number in enumerate(memory.entries):
        entry = tables.entries.values[number]
        text = f"set {entry.set_id}, {_history(entry.value)}"
        if entry.status is EntryStatus.WAIT:
            text = f"waits for the state of set {entry.set_id}"
        elif entry.status is EntryStatus.LEFT:
            text = f"has left with set {entry.set_id}"
        if memory.queues[key]:
            text += f", {len(memory.queues[key])} parked"
        if entry.early:
            text += ", holds an early hand-over"
        keys.append(f"key {key} {text}" if len(memory.entries) > 1 else text)
    return f"Partition {partition} believes: {'; '.join(keys)}."


def _history(value: tuple[int, ...] | None) -> str:
    return "state with records " + ", ".join(map(str, value)) if value else "empty state"
