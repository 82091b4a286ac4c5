"""Examples that --help shows; a test parses each of them with the real command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import typer

EXAMPLES: Mapping[str, Sequence[str]] = {
    "cluster up": (
        "trimtab cluster up",
        "trimtab cluster up --brokers 5 --racks 3 --name big",
    ),
    "cluster status": (
        "trimtab cluster status",
        "trimtab cluster status --name big --json",
    ),
    "cluster kill": (
        "trimtab cluster kill 2",
        "trimtab cluster kill 2 --name big",
    ),
    "cluster pause": (
        "trimtab cluster pause 1",
        "trimtab cluster pause 1 --json",
    ),
    "cluster resume": (
        "trimtab cluster resume 1",
        "trimtab cluster resume 1 --name big",
    ),
    "cluster start": (
        "trimtab cluster start 2",
        "trimtab cluster start 2 --name big",
    ),
    "cluster down": (
        "trimtab cluster down",
        "trimtab cluster down --keep-data",
    ),
    "load keys": (
        "trimtab load keys --topic orders --create 8 --rate 2000 --duration 1m",
        "trimtab load keys --topic orders --keys 100000 --s 1.3 --shift 50 --shift-every 20s",
    ),
    "load rates": (
        "trimtab load rates --topic orders --create 8 --schedule landau --partitions 8",
        "trimtab load rates --topic orders --schedule loads.json --step 10s",
    ),
    "load keyless": (
        "trimtab load keyless --topic clicks --create 6 --rate 5000",
        "trimtab load keyless --topic clicks --acks 1 --linger 20ms --duration 2m",
    ),
    "load trace": (
        "trimtab load trace sent.parquet --topic orders",
        "trimtab load trace sent.parquet --topic orders --speed 2 --by-key",
    ),
    "snapshot": (
        "trimtab snapshot --bootstrap-server kafka:9092",
        "trimtab snapshot --topic orders -o snapshot.json",
    ),
    "audit": (
        "trimtab audit --bootstrap-server kafka:9092 --report audit.html",
        "trimtab audit --snapshot snapshot.json --loads loads.json --fail-on warning",
    ),
    "monitor": (
        "trimtab monitor --topic orders --group pay",
        "trimtab monitor --pattern 'orders.*' --period 5s --for 1h",
    ),
    "measure": (
        "trimtab measure --topic orders --since 10m -o loads.json",
        "trimtab measure --topic orders --group pay --continuous --metrics-port 9100",
    ),
    "plan consumers": (
        "trimtab plan consumers --loads loads.json --capacity 2000000 -o plan.json",
        "trimtab plan consumers --loads loads.json --group pay --planner mwf --max-moves 5",
    ),
    "plan keys": (
        "trimtab plan keys --counts counts.json -o plan.json --report plan.html",
        "trimtab plan keys --loads loads.json --topic orders --planner smalops --cool-below "
        "threshold",
        "trimtab plan keys --topic orders --since 1m --max-moves 5",
    ),
    "apply": (
        "trimtab apply plan.json",
        "trimtab apply plan.json --execute --hold 10m",
        "trimtab apply 7f3a9c01d2e4 --rollback --execute",
    ),
    "run": (
        "trimtab run --group pay --topic orders",
        "trimtab run --group pay --topic orders --execute --cooldown 30s "
        '--consume "--handler shop:book"',
    ),
    "consume": (
        "trimtab consume --group pay --topic orders --index 0 --handler shop:book",
        "trimtab consume --group pay --topic orders --mode group --lake ./lake",
    ),
    "consume-status": (
        "trimtab consume-status --group pay --topic orders",
        "trimtab consume-status --group pay --topic orders --watch 10s --json",
    ),
    "steer": (
        "trimtab steer",
        "trimtab steer --execute --interval 500ms --metrics-port 9100",
    ),
    "forward": (
        "trimtab forward --from-topic clicks.in --to-topic clicks --group halfway",
        "trimtab forward --from-topic clicks.in --to-topic clicks --group halfway --execute "
        "--until-end",
    ),
    "evaluate plan": (
        "trimtab evaluate plan plan.json",
        "trimtab evaluate plan plan.json --loads after.json --json",
    ),
    "evaluate order": (
        "trimtab evaluate order --group pay --since 10m",
        "trimtab evaluate order --topic orders --seq-header tt-seq --since 10m --json",
    ),
    "evaluate sets": (
        "trimtab evaluate sets --topic orders --group pay",
        "trimtab evaluate sets --topic orders --group pay --at-rest --json",
    ),
    "evaluate outcome": (
        "trimtab evaluate outcome --group pay --sla 2s --since 10m",
        "trimtab evaluate outcome --group pay --run r1 --window 30s -o outcome.json",
    ),
    "simulate packing": (
        "trimtab simulate packing --stream stream.json --planner mwf --planner trim",
        "trimtab simulate packing --stream stream.json --planner trim --dead 3:0",
    ),
    "simulate stream": (
        "trimtab simulate stream -o stream.json",
        "trimtab simulate stream --partitions 50 --iterations 100 --delta 25 -o stream.parquet",
    ),
    "simulate replay": (
        "trimtab simulate replay --history ./warehouse --planner trim --capacity 2000000",
        "trimtab simulate replay --history ./warehouse --planner trim --planner mwf "
        "--capacity 900 --unit records/s --sla 2s",
    ),
    "simulate brokers": (
        "trimtab simulate brokers --brokers 3",
        "trimtab simulate brokers --brokers 5 --utilisation 0.9 --policies node,sqf,jsq "
        "--plot waits.svg",
    ),
    "simulate keys": (
        "trimtab simulate keys --policies hash,smalops,trim --rate 112400 --report keys.html",
        "trimtab simulate keys --policies all --shift 10 --duration 4m --service-time 20us",
    ),
    "simulate key-protocol": (
        "trimtab simulate key-protocol --records 3 --migrations 2 --partitions 3",
        "trimtab simulate key-protocol --mode low-latency --migrations 1 --gateway-crashes 1",
        "trimtab simulate key-protocol --variant no-fence",
    ),
}


def add_examples(app: typer.Typer, examples: Mapping[str, Sequence[str]]) -> None:
    """Adds the examples to the help of their commands; a command group shows two."""
    for command in app.registered_commands:
        if command.name is not None and command.name in examples:
            command.epilog = _shown(examples[command.name])
    for group in app.registered_groups:
        inner: Any = group.typer_instance
        named = [
            (f"{group.name} {c.name or c.callback.__name__}", c) for c in inner.registered_commands
        ]
        of_each = [examples[name] for name, _ in named if name in examples]
        for name, command in named:
            if name in examples:
                command.epilog = _shown(examples[name])
        if of_each:
            in_turn = [example for row in zip_longest(*of_each) for example in row if example]
            group.epilog = _shown(in_turn[:2])


def _shown(examples: Sequence[str]) -> str:
    """The example lines; the leading mark prevents help from wrapping them."""
    return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
