"""One file of client properties opens the SASL listener to every client."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from confluent_kafka import Producer

from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.cli import main
from trimtab.cli.connection import cluster_of
from trimtab.errors import ConfigError, TrimtabError
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.publisher import open_publisher
from trimtab.kafka.snapshot import take_snapshot
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.settings import Settings, load_settings
from trimtab.workload.kafka.load import send


def write(path: Path, *, mechanism: str, username: str, password: str) -> Path:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required \\\n"
        f'    username="{username}" \\\n'
        f'    password="{password}";\n'
    )
    return path


@pytest.fixture(params=["PLAIN", "SCRAM-SHA-256"])
def settings(request, tmp_path, cluster, sasl_user) -> Settings:
    file = write(
        tmp_path / "client.properties",
        mechanism=request.param,
        username=sasl_user.username,
        password=sasl_user.password,
    )
    return load_settings(bootstrap_server=cluster.sasl_bootstrap_servers, command_config=file)


def test_the_admin_port_takes_a_snapshot_over_sasl(settings, cluster):
    with cluster_of(settings).admin() as admin:
        snapshot = take_snapshot(admin, clock=lambda: 1)

    assert snapshot.cluster == cluster.status().cluster_id
    assert len(snapshot.brokers) == 3


def test_records_are_produced_over_sasl(settings):
    to = cluster_of(settings)
    with to.admin() as admin:
        admin.create_topic(TopicSpec(name="secured", partitions=1, replication=1))
        with open_publisher(to) as producer:
            producer.publish("secured", b"k", b"v")
        admin.delete_topic("secured")

    assert (producer.published, producer.failed) == (1, 0)


def test_a_routed_producer_knows_the_racks_of_a_secured_cluster(settings):
    to = cluster_of(settings)
    config = {"bootstrap.servers": to.servers, **to.properties.for_confluent()}
    landed: set[int] = set()
    spec = TopicSpec(
        name="racked", partitions=3, replication=1, assignment={0: [1], 1: [2], 2: [3]}
    )
    with to.admin() as admin:
        admin.create_topic(spec)
        with RoutedProducer(
            config, "rack-aware", RoutingOptions(rack="b", sticky_bytes=10)
        ) as routed:
            for _ in range(30):
                routed.produce("racked", b"v", on_delivery=lambda _, m: landed.add(m.partition()))
            assert routed.flush(30) == 0
        admin.delete_topic("racked")

    assert landed == {1}


@pytest.fixture
def heard(caplog, monkeypatch):
    """All that the clients log, down to the lowest level, whatever was configured before."""
    for name in ("kafka", "librdkafka"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
        logging.getLogger(name).manager._clear_cache()  # type: ignore[attr-defined]
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_a_clear_error_that_does_not_show_it(
    cluster, sasl_user, tmp_path, heard, capfd, mechanism
):
    file = write(
        tmp_path / "wrong.properties",
        mechanism=mechanism,
        username=sasl_user.username,
        password="hunter2",
    )

    with pytest.raises(ConfigError, match="Authentication failed") as caught:
        _connect(cluster.sasl_bootstrap_servers, ClientProperties.read(file))

    said = [caught.value.message, caught.value.hint or "", repr(caught.value.__cause__)]
    said += [heard.text, *capfd.readouterr()]
    assert "--command-config" in said[1]
    assert "hunter2" not in "".join(said)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_load_with_a_wrong_password_says_the_same(
    cluster, sasl_user, tmp_path, heard, capfd, mechanism
):
    file = write(
        tmp_path / "wrong.properties",
        mechanism=mechanism,
        username=sasl_user.username,
        password="hunter2",
    )

    code = main.run(
        [
            *("load", "keyless", "--topic", "any", "--create", "1", "--duration", "1s"),
            *("--bootstrap-server", cluster.sasl_bootstrap_servers),
            *("--command-config", str(file)),
        ]
    )

    said = capfd.readouterr()
    assert code == 2
    assert "Authentication failed" in said.err
    assert "--command-config" in said.err
    assert "hunter2" not in "".join([heard.text, *said])


def test_a_producer_with_a_wrong_password_is_refused_before_it_sends(cluster, sasl_user, tmp_path):
    file = write(
        tmp_path / "wrong.properties",
        mechanism="PLAIN",
        username=sasl_user.username,
        password="hunter2",
    )

    with pytest.raises(ConfigError, match="Authentication failed"):
        send(
            [],
            topic="any",
            cluster=Cluster(cluster.sasl_bootstrap_servers, ClientProperties.read(file)),
        )


def test_the_right_password_is_in_no_log_even_at_the_lowest_level(
    cluster, sasl_user, tmp_path, heard, capfd
):
    file = write(
        tmp_path / "right.properties",
        mechanism="PLAIN",
        username=sasl_user.username,
        password=sasl_user.password,
    )

    _connect(cluster.sasl_bootstrap_servers, ClientProperties.read(file))

    assert "kafka.net.manager" in heard.text
    assert sasl_user.password not in "".join([heard.text, *capfd.readouterr()])


def test_librdkafka_with_a_wrong_password_delivers_nothing(cluster, sasl_user, tmp_path):
    file = write(
        tmp_path / "wrong.properties",
        mechanism="PLAIN",
        username=sasl_user.username,
        password="hunter2",
    )
    refused = []
    producer = Producer(
        {
            **ClientProperties.read(file).for_confluent(),
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "error_cb": lambda error: refused.append(error.name()),
            "logger": logging.getLogger("librdkafka"),
        }
    )

    producer.produce("any", b"v")
    producer.flush(2)

    assert "_AUTHENTICATION" in refused
    producer.purge()
    producer.flush(1)


def test_the_sasl_listener_is_closed_to_those_who_do_not_say_who_they_are(cluster):
    with pytest.raises(TrimtabError) as caught:
        _connect(cluster.sasl_bootstrap_servers, ClientProperties.none())

    assert "--command-config" in (caught.value.hint or "")


def _connect(servers: str, properties: ClientProperties) -> None:
    with Cluster(servers, properties).admin(connect_within_s=3.0) as admin:
        admin.cluster()
