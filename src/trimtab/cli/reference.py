"""Writes docs/reference from the code itself: `python -m trimtab.cli.reference FOLDER`.

Promise  Equal code gives equal pages, independent of terminal, user and machine. A test compares
         them with docs/reference.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.main import get_command

import trimtab
from trimtab.cli.main import app
from trimtab.cli.output import say, write_file
from trimtab.cli.reference_policies import key_policies_page
from trimtab.cli.reference_topics import table_row, topics_page
from trimtab.errors import TrimtabError
from trimtab.model.plan import Layer
from trimtab.observe import metrics
from trimtab.plan.planner import NamedPlanner
from trimtab.plan.registry import PLANNERS, option_texts
from trimtab.settings import Settings

SAMPLE = "trimtab.sample.toml"
_WIDTH = 90
_MADE = "<!-- Generated from the code by `make docs`; do not edit. -->\n"
_USERS_OWN = {"home": "the user's data folder", "cache": "the user's cache folder"}
_UNSET = {
    "bootstrap_server": "kafka-1:9092,kafka-2:9092",
    "command_config": "client.properties",
    "home": "~/.local/share/trimtab",
    "cache": "~/.cache/trimtab",
    "properties_file": "spark-defaults.conf",
    "epsilon": 0.0001,
    "token": "a long random text",
    "token_file": "controller.token",
}
"""Example values for settings without a fixed default."""
_TABLES = {
    "samples": "Samples of the monitor: one row per sample and partition.",
    "events": "One row per record, without its value.",
    "partition_rates": "The rate of each partition, per window.",
    "hot_keys": "Heavy keys per window; the true count is between `lower` and `upper`.",
    "lag": "The lag of each group, and its state.",
    "receipts": "One row each time a record is processed: consumer and time.",
    "decisions": "Decisions for a group, with reasons; `forecast` is JSON.",
    "outcomes": "Latency, share within the SLA and replicas of a run, per window of event time; "
    "with `measure --continuous`, per window of processing time.",
    "violations": "Violations found by the order audit; `at` is a sequence number, else an offset.",
    "rejects": "Rows that could not be read, with the reason.",
}


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    made = {
        "api.md": _api(),
        "cli.md": _cli(),
        "errors.md": _errors(),
        "key-policies.md": key_policies_page(),
        "metrics.md": _metrics(),
        "planners.md": _planners(),
        "settings.md": _settings(),
        "tables.md": _tables(),
        "topics.md": topics_page(),
    }
    written = {name: _MADE + "\n" + text.rstrip() + "\n" for name, text in made.items()}
    return {**written, SAMPLE: _sample()}


def commands() -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every command with its path and context; groups come before their commands."""

    def below(path: tuple[str, ...], command: Any, parent: Any) -> Iterator[Any]:
        name = "trimtab" if parent is None else path[-1]
        context = command.make_context(
            name, [], parent=parent, resilient_parsing=True, terminal_width=_WIDTH
        )
        yield path, command, context
        for child in command.list_commands(context) if hasattr(command, "commands") else ():
            yield from below((*path, child), command.commands[child], context)

    return below((), get_command(app), None)


def _cli() -> str:
    parts = [
        "# Command line\n",
        "The output of `--help`. Results go to stdout, messages and progress to stderr; "
        "[exit codes](errors.md) are for scripts.\n",
    ]
    for path, command, context in commands():
        title = " ".join(("trimtab", *path))
        parts += [f"## {title}\n", f"```text\n{command.get_help(context).strip()}\n```\n"]
    return "\n".join(parts)


def _settings() -> str:
    rows = [
        table_row(f"`{name}`", f"`TRIMTAB_{name.upper().replace('.', '__')}`", default, said)
        for name, default, said in settings_of(Settings)
    ]
    return "\n".join(
        [
            "# Settings\n",
            "A flag overrides the environment, that overrides `trimtab.toml` in the working folder "
            "(or the file named by `TRIMTAB_CONFIG`), that overrides the default. In it a dot is a "
            "table: `spark.master` is `master` under `[spark]`. An unknown "
            "name in the file is an error. Times are seconds (`…_s`) or milliseconds (`…_ms`), or "
            'text with a unit: `window_s = "2m"`. A sample file with every setting is '
            f"[{SAMPLE}]({SAMPLE}).\n",
            table_row("setting", "environment", "default", "what it is"),
            table_row("---", "---", "---", "---"),
            *rows,
        ]
    )


def settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every setting: dotted name, default as text, description."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from settings_of(type(field.default), f"{prefix}{name}.")
            continue
        yield f"{prefix}{name}", _default(name, field), field.description or ""


def _sample() -> str:
    """Every setting with its default, commented out."""
    parts = [
        "# Settings of Trimtab. Copy this file to trimtab.toml in the working folder, or set\n"
        "# TRIMTAB_CONFIG to its path. Remove the # before a setting to change it; the values are\n"
        "# the defaults unless a comment gives another. Generated from the code by `make docs`.\n"
    ]
    parts += _sample_lines(Settings, "")
    return "\n".join(parts)


def _sample_lines(model: type[BaseModel], table: str) -> Iterator[str]:
    inner = []
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            inner.append((name, type(field.default)))
            continue
        said = f"# {field.description}"
        value = field.get_default(call_default_factory=True)
        if name in _UNSET:
            said += f" (default: {_USERS_OWN.get(name, 'not set')})"
            value = _UNSET[name]
        yield f"{said}\n#{name} = {json.dumps(value, ensure_ascii=False)}\n"
    for name, kind in inner:
        yield f"[{table}{name}]"
        yield from _sample_lines(kind, f"{table}{name}.")


def _default(name: str, field: Any) -> str:
    if name in _USERS_OWN:
        return _USERS_OWN[name]
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or value == {}:
        return "–"
    return f"`{value}`"


_CONTEXTS = {Layer.CONSUMERS: "PackingContext", Layer.KEYS: "KeyContext"}


def _planners() -> str:
    parts = [
        "# Planners\n",
        "`trimtab plan LAYER --planner NAME`; `trimtab.PLANNERS[layer][name]` in Python. "
        "A planner is a pure function: equal input gives an equal plan.\n",
    ]
    for layer in PLANNERS:
        planners: list[NamedPlanner[Any, Any]] = [*PLANNERS[layer].values()]
        parts.append(f"## {layer}\n")
        for module, members in groupby(planners, key=_module_of):
            family = list(members)
            text, _, _ = inspect.cleandoc(module.__doc__ or "").partition("\n>>> ")
            title, _, body = text.partition("\n")
            names = ", ".join(planner.name for planner in family)
            parts += [f"### {names}\n", f"{title}\n", f"```text\n{body.strip()}\n```\n"]
            parts += [table_row("planner", "options", "facts"), table_row("---", "---", "---")]
            parts += [
                table_row(
                    f"`{p.name}`",
                    _in_code(p.option_names),
                    _in_code(sorted(p.reads.difference(p.option_names))),
                )
                for p in family
            ]
            parts.append("")
        parts += _planner_options(layer, planners)
    return "\n".join(parts)


def _in_code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"


def _planner_options(layer: Layer, planners: Iterable[NamedPlanner[Any, Any]]) -> Iterator[str]:
    """The table of all options: who has it, its default, and what it means."""
    rows: dict[str, tuple[list[str], Any, str]] = {}
    for planner in planners:
        for name, text in option_texts(planner).items():
            default = getattr(planner.options, name)
            rows.setdefault(name, ([], default, text))[0].append(planner.name)
    yield "### Options\n"
    yield (
        "In Python: `planner.with_options(max_moves=3)`. The facts of the tables above are fields "
        f"of `{_CONTEXTS[layer]}`.\n"
    )
    yield table_row("option", "of", "default", "meaning")
    yield table_row("---", "---", "---", "---")
    for name, (owners, default, text) in sorted(rows.items()):
        shown = "–" if default is None else f"`{default}`"
        yield table_row(f"`{name}`", ", ".join(owners), shown, text)
    yield ""


def _module_of(planner: NamedPlanner[Any, Any]) -> ModuleType:
    rule = planner.rule
    module = inspect.getmodule(rule.func if isinstance(rule, partial) else rule)
    if module is None:
        raise ValueError(f"planner {planner.name} has no module")
    return module


def _errors() -> str:
    def below(kind: type[TrimtabError], depth: int) -> Iterator[str]:
        retriable = " (retriable)" if kind.retriable else ""
        said = _first_line(kind)
        yield f"{'  ' * depth}- `{kind.__name__}`, exit {kind.exit_code}{retriable}: {said}"
        for child in kind.__subclasses__():
            if not child.__name__.startswith("_"):  # private errors are not documented
                yield from below(child, depth + 1)

    codes = {
        0: "done",
        1: "findings, or a failed check",
        2: "usage, settings, or the machine's own state",
        3: "measurement failed",
        4: "planning",
        5: "applying",
        70: "internal error in Trimtab; please report it",
        130: "interrupted by Ctrl-C",
        141: "the reader closed the output, as in `trimtab … | head -1`",
    }
    return "\n".join(
        [
            "# Errors and exit codes\n",
            table_row("code", "means"),
            table_row("---", "---"),
            *(table_row(str(code), said) for code, said in codes.items()),
            "",
            "An error is one line `error: …` on stderr that says what happened, and "
            "often a line `hint: …` that says what to do. In Python each is an exception with "
            "`message`, `hint`, `exit_code` and `retriable`:\n",
            *below(TrimtabError, 0),
        ]
    )


def _metrics() -> str:
    parts = [
        "# Metrics\n",
        "Prometheus metrics, served by verbs with `--metrics-port`, on 127.0.0.1 unless "
        "`--metrics-host` is given. `trimtab_monitor_*` come from `trimtab monitor`, "
        "`trimtab_measure_*` and `trimtab_outcome_*` from `trimtab measure --continuous`, "
        "`trimtab_controller_*` from `trimtab run`, `trimtab_consume_*` from `trimtab consume "
        "--keyed`. A series disappears when its partition, topic "
        "or group does; an unknown value has no series.\n",
        "Metrics that kafka-exporter also has are also served under its names, with its labels "
        "(`consumergroup` for `group`), so that its dashboards and alerts work without it: see "
        "the fifth column. If kafka-exporter runs beside `trimtab monitor`, both serve them; "
        "distinguish them by `job`. The last column names the equivalent metric of Kafka's JMX "
        "exporter or of kafka-lag-exporter.\n",
    ]
    parts += [
        table_row("metric", "type", "labels", "what it is", "also served as", "elsewhere"),
        "|---|---|---|---|---|---|",
    ]
    for _, metric in metrics.ALL:
        family = next(iter(metric.describe()))
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if isinstance(metric, metrics.SeriesGauge):
            names, twin, also = metric.labels, metric.twin, metric.also
        else:
            names, twin, also = metric._labelnames, None, None
        labels = ", ".join(f"`{label}`" for label in names)
        shown = f"`{twin}`" if twin else "–"
        cells = (labels or "–", family.documentation, shown, also or "–")
        parts.append(table_row(f"`{name}`", family.type, *cells))
    return "\n".join(parts)


def _tables() -> str:
    from trimtab.spark.schemas import TABLES

    parts = ["# Tables\n", "Parquet under `<home>/warehouse/<table>/`; times are UTC.\n"]
    for table, schema in TABLES.items():
        parts += [f"## {table}\n", f"{_TABLES[table]}\n", table_row("column", "type"), "|---|---|"]
        parts += [table_row(f"`{c.name}`", c.dataType.simpleString()) for c in schema.fields]
        parts.append("")
    return "\n".join(parts)


def _api() -> str:
    kinds: dict[str, list[str]] = {
        "Producers, consumers, Spark": [],
        "Values": [],
        "Functions": [],
        "Errors": [],
        "Other": [],
    }
    for name in trimtab.__all__:
        value = getattr(trimtab, name)
        kind = _kind_of(name, value)
        shown = f"`{name}`"
        if inspect.isfunction(value) or (name in trimtab._LAZY and _is_made(value)):
            shown = f"`{name}({', '.join(inspect.signature(value).parameters)})`"
        kinds[kind].append(table_row(shown, _OTHER.get(name) or _first_line(value)))
    parts = [
        "# Python\n",
        "The names in `import trimtab`. It loads neither Spark nor a Kafka client: the names of "
        "the first table are loaded on first use. How to use them: [from a "
        "program](../how-to/use-from-python.md). A local cluster for tests is "
        "`trimtab.local.cluster.LocalCluster`.\n",
    ]
    for kind, rows in kinds.items():
        parts += [f"## {kind}\n", table_row("name", "what it is"), "|---|---|", *rows, ""]
    return "\n".join(parts)


_OTHER = {
    "BrokerId": "A Kafka id.",
    "Handler": "Your function, called with one `Record` at a time, in order within a partition.",
    "PARTITIONERS": "Every partitioner by name.",
    "PLANNERS": "Every planner by layer and name.",
    "__version__": "The version.",
}


def _is_made(value: object) -> bool:
    """Whether it is a class that users create with its parameters."""
    chosen = isinstance(value, type) and issubclass(value, Enum)
    return isinstance(value, type) and not chosen and not getattr(value, "_is_protocol", False)


def _kind_of(name: str, value: object) -> str:
    if name in trimtab._LAZY:
        return "Producers, consumers, Spark"
    if isinstance(value, type):
        return "Errors" if issubclass(value, TrimtabError) else "Values"
    return "Functions" if inspect.isfunction(value) else "Other"


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def main(folder: Path) -> None:
    """Writes every page into the folder."""
    for name, text in pages().items():
        write_file(folder / name, text)
    say(f"Wrote {len(pages())} pages to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
