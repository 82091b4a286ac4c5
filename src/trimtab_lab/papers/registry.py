"""Every experiment by name: its verb, its parts, what runs it, and its page.

The verbs of `trimtab experiment`, the pages and the tests of docs/papers take their lists from
here. Code is named as `module:name` and imported at its first use: it needs heavy libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperExperiment:
    """One experiment; `name` is also that of its page and its results in docs/papers.

    Attributes:
        name: The verb after `trimtab experiment`.
        summary: One line for the list of verbs.
        examples: Commands for the help and the reference.
        verb: The function of the command line: options, progress, printing.
        runs: A function, or a function for each part.
        page: A `PaperPage`.
        parts: What `--what` takes; empty if there is no such option.
    """

    name: str
    summary: str
    examples: tuple[str, ...]
    verb: str
    runs: str
    page: str
    parts: tuple[str, ...] = ()


EXPERIMENTS: Mapping[str, PaperExperiment] = MappingProxyType(
    {
        one.name: one
        for one in (
            PaperExperiment(
                name="landau",
                summary="Packing planners: consumers used, load moved, latency.",
                examples=(
                    "trimtab experiment landau",
                    "trimtab experiment landau --seeds 1 --iterations 50 --partitions 40",
                ),
                verb="trimtab_lab.cli.experiment_simulated:landau",
                runs="trimtab_lab.papers.landau.experiment:PARTS",
                page="trimtab_lab.papers.landau.page:PAGE",
                parts=("tables", "headline", "latency", "beyond"),
            ),
            PaperExperiment(
                name="ezzeddine",
                summary="Scaling to meet a latency target, compared with Kafka and KEDA.",
                examples=(
                    "trimtab experiment ezzeddine",
                    "trimtab experiment ezzeddine --intervals 1s,10s,30s --cooldowns 0s,30s",
                ),
                verb="trimtab_lab.cli.experiment_simulated:ezzeddine",
                runs="trimtab_lab.papers.ezzeddine.experiment:PARTS",
                page="trimtab_lab.papers.ezzeddine.page:PAGE",
                parts=("workload-1", "curve"),
            ),
            PaperExperiment(
                name="smalops",
                summary="Hot keys: delays, migrations, and rivals on the same arrivals.",
                examples=(
                    "trimtab experiment smalops",
                    "trimtab experiment smalops --what delays --seeds 1 --duration 20s",
                ),
                verb="trimtab_lab.cli.experiment_simulated:smalops",
                runs="trimtab_lab.papers.smalops.experiment:PARTS",
                page="trimtab_lab.papers.smalops.page:PAGE",
                parts=(
                    "workload",
                    "delays",
                    "service-times",
                    "thresholds",
                    "utilisation",
                    "shifting",
                    "rivals",
                    "ours",
                ),
            ),
            PaperExperiment(
                name="ezzeddine-live",
                summary="A latency target on real brokers, against rivals.",
                examples=(
                    "trimtab experiment ezzeddine-live",
                    "trimtab experiment ezzeddine-live --strategies trim,ll-ffd --stretch 0.1",
                ),
                verb="trimtab_lab.cli.experiment_brokers:ezzeddine_live",
                runs="trimtab_lab.papers.live.experiment:ezzeddine_live",
                page="trimtab_lab.papers.live.page:EZZEDDINE_PAGE",
            ),
            PaperExperiment(
                name="landau-live",
                summary="A real consumer's peak rate, and response times.",
                examples=(
                    "trimtab experiment landau-live",
                    "trimtab experiment landau-live --scale 0.1 --stretch 0.1 --again",
                ),
                verb="trimtab_lab.cli.experiment_brokers:landau_live",
                runs="trimtab_lab.papers.live.experiment:landau_live",
                page="trimtab_lab.papers.live.page:LANDAU_PAGE",
                parts=("peak", "delta-5", "delta-25", "bytes-5", "bytes-25"),
            ),
            PaperExperiment(
                name="burato",
                summary="Partitioners on real brokers: throughput and latency.",
                examples=(
                    "trimtab experiment burato",
                    "trimtab experiment burato --policies node,sqf --runs 5 --duration 1s",
                ),
                verb="trimtab_lab.cli.experiment_brokers:burato",
                runs="trimtab_lab.papers.burato.experiment:burato",
                page="trimtab_lab.papers.burato.page:PAGE",
            ),
        )
    }
)


def loaded(place: str) -> Any:
    """What a `module:name` names.

    >>> loaded("math:floor")(2.5)
    2
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
