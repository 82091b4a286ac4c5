"""What a controller hears: reports of consumers, and published rates."""

from __future__ import annotations

import time
from contextlib import closing

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.controller import Heard
from trimtab.apply.kafka.control_channel import TO_CONTROLLER
from trimtab.apply.kafka.leadership import ABSENT, Post
from trimtab.apply.policy import Measured
from trimtab.errors import BadFile, ProtocolViolation
from trimtab.model.control import Command, Start, StateQuery, Stop
from trimtab.model.control_codec import control_from, topic_rates_from
from trimtab.model.reading import parse
from trimtab.workload.kafka.errors import is_passing, kafka_errors, reason_of

log = structlog.get_logger()

_ASK_S = 15.0
_POLL_S = 0.05
_LOOK_BACK_S = 60.0


class Ears:
    """Reports of consumers and published rates, as they come."""

    def __init__(self, post: Post, *, control: bool = True) -> None:
        self._control, self._rates = post.own.control(post.group), post.own.rates
        self._consumer = Consumer(
            post.client(
                **{
                    "group.id": f"{post.name}-ears",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "latest",
                    "isolation.level": "read_committed",
                    "fetch.wait.max.ms": 50,
                }
            )
        )
        try:
            places = [self._recent()]
            if control:
                places.append(self._end())
            self._consumer.assign(places)
        except BaseException:
            self._consumer.close()
            raise

    def _end(self) -> TheirPartition:
        """The end as it is now: what a consumer answers later than this is not missed."""
        with kafka_errors(f"reading {self._control}"):
            place = TheirPartition(self._control, TO_CONTROLLER)
            _, end = self._consumer.get_watermark_offsets(place, timeout=_ASK_S)
        return TheirPartition(self._control, TO_CONTROLLER, end)

    def _recent(self) -> TheirPartition:
        """Where the rates of the last minute begin."""
        since_ms = round((time.time() - _LOOK_BACK_S) * 1000)
        try:
            [found] = self._consumer.offsets_for_times(
                [TheirPartition(self._rates, 0, since_ms)], timeout=_ASK_S
            )
        except KafkaException as error:
            log.warning("rates_were_not_found", topic=self._rates, why=reason_of(error))
            return TheirPartition(self._rates, 0, OFFSET_END)
        return found

    def listen(self, measured: Measured) -> tuple[list[Heard], Measured]:
        """What has come; waits a moment for it."""
        heard = []
        with kafka_errors("listening to consumers"):
            for message in self._consumer.consume(500, _POLL_S):
                if (error := message.error()) is not None:
                    if not is_passing(KafkaException(error)) and error.code() not in ABSENT:
                        raise KafkaException(error)
                    continue
                try:
                    if message.topic() == self._rates:
                        origin = self._rates
                        measured = measured.heard(
                            topic_rates_from(parse(message.value() or b"", origin=origin))
                        )
                    else:
                        heard.append(self._report(message))
                except (BadFile, ProtocolViolation) as error:
                    log.warning("record_was_refused", topic=message.topic(), why=str(error))
        return heard, measured

    def _report(self, message: Message) -> Heard:
        said = control_from(parse(message.value() or b"", origin=self._control))
        if isinstance(said, Start | Stop | StateQuery):
            raise ProtocolViolation(f"A command came where reports belong: {_kind(said)}.")
        return Heard(time.monotonic(), said)

    def close(self) -> None:
        """Lets go."""
        self._consumer.close()


def _kind(command: Command) -> str:
    return type(command).__name__.lower()


def newest_rates(post: Post, *, within_s: float) -> Measured:
    """What was published lately, as far as it can be read in that time."""
    measured, deadline = Measured(), time.monotonic() + within_s
    with closing(Ears(post, control=False)) as ears:
        while time.monotonic() < deadline:
            _, measured = ears.listen(measured)
    return measured
