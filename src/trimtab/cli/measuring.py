"""What the flags of `trimtab measure` ask for, in the words of the modules that do it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimtab.cli.connection import cluster_of
from trimtab.errors import ConfigError
from trimtab.measure.counters import parse_threshold
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import offsets_from
from trimtab.model.reading import parse, parse_file
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab.evaluate.spark.live_outcomes import Watching
    from trimtab.kafka.cluster import Cluster
    from trimtab.measure.kafka.monitor import Interest
    from trimtab.measure.spark.hot_keys import Mode
    from trimtab.measure.spark.jobs import How
    from trimtab.measure.spark.spans import Asked

MICROS = 1_000_000
_MOST_MICROS = round(datetime.max.replace(tzinfo=UTC).timestamp()) * MICROS


def moment(text: str) -> int:
    """Reads an ISO time (UTC unless it says otherwise), or microseconds since 1970."""
    if text.isdecimal():
        if len(text) > len(str(_MOST_MICROS)) or int(text) > _MOST_MICROS:
            raise typer.BadParameter(f"{text} microseconds since 1970 are after the year 9999")
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a time; write it as 2026-01-31T12:00:00"
        ) from error
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * MICROS)


def read_offsets(text: str) -> dict[TopicPartition, tuple[int, int]]:
    """Reads what --offsets says, in place or in a file."""
    looks_inline = text.lstrip().startswith("{")
    node = parse(text, origin="--offsets") if looks_inline else parse_file(Path(text))
    return offsets_from(node)


def span_of(
    since: float | None, from_ts: int | None, to_ts: int | None, *, now: int
) -> tuple[int, int]:
    """The span of time that is asked for; `now` is when the command was given."""
    if since is not None and from_ts is not None:
        raise ConfigError("Give --since or --from, not both.")
    end = now if to_ts is None else min(to_ts, now)  # nobody has measured the future
    start = from_ts if from_ts is not None else end - round((since or 300.0) * MICROS)
    if start >= now:
        raise ConfigError("The span lies in the future.", hint="Look at --from and --to.")
    if start >= end:
        raise ConfigError("The span ends before it begins.", hint="Look at --from and --to.")
    return start, end


def mode_of(name: str) -> Mode:
    """The way of counting keys that --keys names."""
    from trimtab.measure.spark.hot_keys import Mode

    try:
        return Mode(name)
    except ValueError as error:
        raise ConfigError(f"--keys is one of auto, none, {', '.join(Mode)}, not {name}.") from error


class Ask:
    """What the flags say, in the words of the doors."""

    def __init__(
        self,
        *,
        settings: Settings,
        topics: frozenset[str],
        pattern: re.Pattern[str] | None,
        groups: frozenset[str] | None,
        rates_from: str,
        window_s: float,
        keys: str,
        key_window_s: float | None,
        threshold: str,
        epsilon: float | None,
        warehouse: str,
        checkpoint: str,
    ) -> None:
        self.settings = settings
        self.topics, self.pattern, self.groups = topics, pattern, groups
        self.rates_from = rates_from
        self.window_s = window_s
        self.keys = keys
        self.key_window_s = key_window_s
        self.threshold = parse_threshold(threshold)
        self.epsilon = epsilon
        self.warehouse = warehouse
        self.checkpoint = checkpoint

    @property
    def interest(self) -> Interest:
        """What a monitor of ours samples."""
        from trimtab.measure.kafka.monitor import Interest

        return Interest(
            topics=self.topics,
            pattern=self.pattern,
            groups=None if self.groups is None else tuple(sorted(self.groups)),
            own_prefix=self.settings.topic_prefix,
        )

    @property
    def cluster(self) -> Cluster:
        """The cluster that is measured."""
        return cluster_of(self.settings)

    def asked(
        self,
        span: tuple[int, int],
        offsets: dict[TopicPartition, tuple[int, int]] | None = None,
    ) -> Asked:
        """What is read of the cluster."""
        from trimtab.measure.spark.spans import Asked

        return Asked(
            topics=self.topics or frozenset(p.topic for p in offsets or ()),
            pattern=self.pattern,
            groups=self.groups,
            from_ts=span[0],
            to_ts=span[1],
            events=self.rates_from != "samples" or self.keys != "none",
            samples=self.rates_from != "events",
            only_samples=self.rates_from == "samples",
            min_span_s=self.settings.measure.min_span_s,
            offsets=offsets,
        )

    def judged(self, sla_s: float | None) -> Watching:
        """How receipts are judged beside the rates."""
        from trimtab.evaluate.spark.live_outcomes import Watching

        return Watching(
            window_s=self.settings.measure.outcome_window_s, sla_s=sla_s, asked=self.asked((0, 0))
        )

    def how(self) -> How:
        """The parameters of the job."""
        from trimtab.measure.spark.hot_keys import Mode
        from trimtab.measure.spark.jobs import How

        return How(
            window_s=self.window_s,
            min_span_s=self.settings.measure.min_span_s,
            key_window_s=self.key_window_s,
            threshold=None if self.keys == "none" else self.threshold,
            mode=Mode.TWO_PASS if self.keys in ("auto", "none") else mode_of(self.keys),
            epsilon=self.epsilon,
        )
