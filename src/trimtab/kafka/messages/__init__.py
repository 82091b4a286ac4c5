"""Messages of Kafka's protocol that kafka-python does not know yet.

The `.json` files are Apache Kafka's own schemas (4.3.1, Apache License 2.0), which kafka-python
turns into messages as it does with those it brings along. Brokers answer `DescribeGroups` for
classic groups only; groups of the consumer protocol (KIP-848) need `ConsumerGroupDescribe`.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc]
    """Asks a coordinator for the state and members of groups of the consumer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc]
    """State and members of groups; the client finds this class by its number."""
