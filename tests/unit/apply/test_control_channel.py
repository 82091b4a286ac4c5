"""What a consumer hears on its control topic is handed out once, in order."""

from __future__ import annotations

from collections import deque

from trimtab.apply.kafka.control_channel import ControlChannel
from trimtab.client_properties import ClientProperties
from trimtab.model.codec import dumps
from trimtab.model.control import StateQuery
from trimtab.model.control_codec import control_to


class _Message:
    def __init__(self, query_id: str) -> None:
        query = StateQuery(epoch=1, query_id=query_id)
        self._value = dumps(control_to(query, ts=1)).encode()

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


class _Topic:
    """Hands out one command at a time, as they come."""

    def __init__(self) -> None:
        self.arrived: deque[_Message] = deque()

    def consume(self, most: int, timeout_s: float) -> list[_Message]:
        return [self.arrived.popleft()] if self.arrived else []


def test_who_asks_whether_it_is_called_takes_nothing_away():
    channel = ControlChannel("control", 0, "localhost:1", ClientProperties.none(), client_id="c")
    channel._reader.close()
    topic = _Topic()
    channel._reader = topic  # type: ignore[assignment]

    assert not channel.called()
    topic.arrived.extend([_Message("first"), _Message("second")])
    assert channel.called()
    assert channel.called()
    topic.arrived.append(_Message("third"))
    assert [c.query_id for c in channel.commands()] == ["first", "second", "third"]
    assert channel.commands() == ()
    assert not channel.called()
