"""What a consumer hears on its control topic is handed out once, in order."""

from __future__ import annotations

from collections import deque

from trimtab.apply.kafka.control_channel import ControlChannel
from trimtab.client_properties import ClientProperties
from trimtab.model.codec import dumps
from trimtab.model.control import StateQuery
from trimtab.model.control_codec import control_to


def _query(name: str) -> StateQuery:
    return StateQuery(epoch=1, query_id=name)


class _Message:
    def __init__(self, name: str) -> None:
        self._value = dumps(control_to(_query(name), ts=1)).encode()

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
    assert channel.commands() == tuple(map(_query, ("first", "second", "third")))
    assert channel.commands() == ()
    assert not channel.called()
