"""Messages of Kafka's protocol that kafka-python does not have yet.

The `.json` files are Apache Kafka's own schemas (4.3.1, Apache License 2.0); kafka-python generates
messages from them as from its own. Brokers answer `DescribeGroups` for classic groups only; groups
of the consumer protocol (KIP-848) need `ConsumerGroupDescribe`.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc]
    """Asks a coordinator for the state and members of groups of the consumer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc]
    """State and members of groups; kafka-python finds this class by its API key."""
