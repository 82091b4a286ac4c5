"""Checks the arguments of a routed producer, and makes its client and its partitioner of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import ref

from confluent_kafka import Producer, SerializingProducer

from trimtab.apply.records.kafka.delivery_callbacks import OnDelivery, ignored, refreshing_watches
from trimtab.apply.records.kafka.leader_watch import LeaderWatch
from trimtab.apply.records.kafka.producer_settings import (
    EVERY_RECORD,
    WITHOUT_A_KEY,
    KeylessRule,
    connection_settings,
    keyless_of,
)
from trimtab.apply.records.outstanding import OutstandingBytes
from trimtab.errors import ConfigError
from trimtab.observe.logging import library_log
from trimtab.plan.records.partitioner import Partitioner, RoutingOptions, nothing_queued
from trimtab.plan.records.registry import DEFAULTS, partitioner_of

log = library_log()

_BY_QUEUE = frozenset({"adaptive", "rack-aware"})


def check_client(client: Any, settings: Mapping[str, Any]) -> None:
    """Refuses objects that are not producers, and producers with another `produce`."""
    if settings:
        raise TypeError(f"RoutedProducer: an existing producer takes no {', '.join(settings)}")
    if isinstance(client, SerializingProducer):
        raise ConfigError(
            "RoutedProducer takes bytes, but SerializingProducer takes objects, key before value.",
            hint="Call the serializers yourself, and pass a Producer or its settings.",
        )
    if not callable(getattr(client, "produce", None)):
        raise TypeError(
            "RoutedProducer takes confluent-kafka's settings or its Producer, "
            f"not {type(client).__name__}"
        )


def admin_settings(
    config: Mapping[str, Any] | None, admin: Mapping[str, Any] | None, *, needed: bool
) -> dict[str, Any]:
    """The settings of the client that asks for racks."""
    found = connection_settings(config or {} if admin is None else admin)
    if needed and not found:
        raise ConfigError(
            "RoutedProducer: the racks of brokers cannot be read from an existing producer.",
            hint="Pass the settings of the client in admin=.",
        )
    return found


def check_reports(config: Mapping[str, Any]) -> None:
    """Refuses settings with which unacknowledged records cannot be counted."""
    if config.get("delivery.report.only.error") is True:
        raise ConfigError(
            "RoutedProducer: with delivery.report.only.error there are no reports of delivered "
            "records, so unacknowledged records cannot be counted.",
            hint="Remove that setting, or use a partitioner other than adaptive and rack-aware.",
        )


def chooser_of(
    partitioner: str | Partitioner, options: RoutingOptions, stuck_after_s: float | None
) -> tuple[Partitioner, OutstandingBytes | None]:
    """The partitioner, and the counter of unacknowledged records if it needs one."""
    if not isinstance(partitioner, str):
        if not callable(getattr(partitioner, "closed", None)):
            raise TypeError(
                f"RoutedProducer takes a partitioner or its name, not {type(partitioner).__name__}"
            )
        if options is not DEFAULTS:
            raise ConfigError(
                "RoutedProducer: options can only be set for a partitioner given by name.",
                hint="Pass them to partitioner_of(name, options), or pass the name here.",
            )
        return partitioner, None
    if partitioner not in _BY_QUEUE or options.queues is not nothing_queued:
        return partitioner_of(partitioner, options), None
    counts = OutstandingBytes(
        batch_bytes=options.sticky_bytes, stuck_after_s=stuck_after_s, clock=options.clock
    )
    with_queues = replace(options, queues=counts.queues, stuck=counts.stuck)
    return partitioner_of(partitioner, with_queues), counts


def keyless_for(
    config: Mapping[str, Any] | None, partitioner: Partitioner, *, asked: bool
) -> KeylessRule:
    """Which records the partitioner chooses for."""
    if asked or getattr(partitioner, "ignore_keys", False):
        return EVERY_RECORD
    if config is None:
        return WITHOUT_A_KEY
    found = keyless_of(config)
    if found.nothing:
        log.warning(
            "nothing_is_routed",
            why=f"partitioner={config.get('partitioner')} sends records without a key to one "
            "partition; use a partitioner that ends in _random",
        )
    return found


def made_client(
    config: Mapping[str, Any], on_delivery: OnDelivery | None, looking: list[ref[LeaderWatch]]
) -> Producer:
    """A client with these settings, whose errors also refresh the watches.

    A callback that is not callable is passed on, so that the client refuses it.
    """
    settings = dict(config)
    if on_delivery is not None:
        settings.setdefault("on_delivery", on_delivery)
    settings.setdefault("error_cb", ignored)
    for name in {"on_delivery", "error_cb"} & settings.keys():
        if callable(settings[name]):
            settings[name] = refreshing_watches(looking, settings[name])
    return Producer(settings)
