"""The local cluster with its real brokers: started, broken, mended, gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from tests.kafka.streams import wait_until
from trimtab.cli.cluster import app
from trimtab.errors import ClusterStartFailed, ConfigError
from trimtab.kafka.probe import brokers_seen
from trimtab.local.cluster import BrokerProcessState, LocalCluster, SaslUser
from trimtab.local.jars import BROKER, broker_jars, jars_folder
from trimtab.settings import load_settings


@pytest.fixture(scope="module")
def small_home(tmp_path_factory):
    """The home of a cluster of one broker, for the tests that break it."""
    home = tmp_path_factory.mktemp("small")
    yield home
    small_cluster(home).down()
    assert processes_of(home) == []


@pytest.fixture
def small(small_home):
    """The cluster of one broker, up; `up` mends whatever the test before has done to it."""
    running = small_cluster(small_home)
    running.up()
    return running


def small_cluster(home: Path, **more) -> LocalCluster:
    """Its controller forgets a dead broker soon, so that the broker may register again soon."""
    properties = {"broker.session.timeout.ms": "2000"} | more.pop("properties", {})
    cache = load_settings().cache
    return LocalCluster("small", home=home, brokers=1, cache=cache, properties=properties, **more)


# ---- three brokers ------------------------------------------------------------------------------


def test_brokers_are_up_in_the_racks_they_were_dealt_to(cluster):
    status = cluster.status()

    assert [(broker.id, broker.rack) for broker in status.brokers] == [(1, "a"), (2, "b"), (3, "c")]
    assert {broker.state for broker in status.brokers} == {BrokerProcessState.RUNNING}
    assert brokers_seen(status.bootstrap_servers, 5) == {1, 2, 3}


def test_a_second_up_leaves_every_process_as_it_is(cluster):
    before = cluster.status()

    assert cluster.up() == before


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_sasl_listener_lets_in_who_knows_the_password(cluster, sasl_user, mechanism):
    right = sasl_client(cluster, mechanism, sasl_user.username, sasl_user.password)
    wrong = sasl_client(cluster, mechanism, sasl_user.username, "guessed")

    assert set(right.list_topics(timeout=10).brokers) == {1, 2, 3}
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=2)


def test_a_killed_broker_is_missed_by_the_others_and_joins_again_after_start(cluster):
    first, second, _ = cluster.status().brokers
    cluster.kill(2)
    assert cluster.status().brokers[1].state is BrokerProcessState.DEAD
    wait_until(lambda: brokers_seen(f"127.0.0.1:{first.port}", 2) == {1, 3})

    cluster.start(2)

    again = cluster.status().brokers[1]
    assert again.state is BrokerProcessState.RUNNING
    assert again.pid != second.pid
    assert brokers_seen(f"127.0.0.1:{first.port}", 5) == {1, 2, 3}


def test_a_paused_broker_is_missed_by_the_others_and_resume_brings_it_back(cluster):
    first = cluster.status().brokers[0]
    cluster.pause(3)
    assert cluster.status().brokers[2].state is BrokerProcessState.PAUSED
    with pytest.raises(ConfigError, match="paused, not dead"):
        cluster.start(3)
    wait_until(lambda: brokers_seen(f"127.0.0.1:{first.port}", 2) == {1, 2})

    cluster.resume(3)

    assert cluster.status().brokers[2].state is BrokerProcessState.RUNNING
    wait_until(lambda: brokers_seen(f"127.0.0.1:{first.port}", 2) == {1, 2, 3})


def test_a_broker_that_does_not_exist_cannot_be_killed(cluster):
    with pytest.raises(ConfigError, match="no broker 7, only 1 to 3"):
        cluster.kill(7)


def test_the_command_line_shows_the_same_cluster_to_people_and_programs(cluster, monkeypatch):
    monkeypatch.setenv("TRIMTAB_HOME", str(cluster.folder.parent.parent))

    table = CliRunner().invoke(app, ["status", "--name", cluster.name])
    answer = CliRunner().invoke(app, ["status", "--name", cluster.name, "--json"])

    shown = json.loads(answer.stdout)
    assert shown["bootstrap_servers"] == cluster.bootstrap_servers
    assert [broker["state"] for broker in shown["brokers"]] == ["running"] * 3
    assert all(f"127.0.0.1:{broker['port']}" in table.stdout for broker in shown["brokers"])


# ---- one broker, broken -------------------------------------------------------------------------


def test_a_cluster_stopped_in_order_keeps_its_topics_for_the_next_up(small, small_home):
    make_topic(small, "kept")

    small.down(keep_data=True)
    assert processes_of(small_home) == []
    assert [broker.state for broker in small.status().brokers] == [BrokerProcessState.ABSENT]
    small.up()

    assert "kept" in topics(small)


def test_a_state_file_left_by_a_crash_is_recognised_and_the_data_is_used(small, small_home):
    make_topic(small, "survivor")
    for pid in processes_of(small_home):
        os.kill(pid, signal.SIGKILL)

    later = small_cluster(small_home)
    wait_until(lambda: later.status().controller is BrokerProcessState.DEAD)
    wait_until(lambda: later.status().brokers[0].state is BrokerProcessState.DEAD)
    later.up()

    assert "survivor" in topics(later)


def test_a_port_taken_meanwhile_is_named_and_start_works_once_it_is_free(small):
    port = small.status().brokers[0].port
    small.kill(1)
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        with pytest.raises(ClusterStartFailed, match=f"Port {port} of broker-1 is in use"):
            small.start(1)

    small.start(1)

    assert small.status().brokers[0].state is BrokerProcessState.RUNNING


def test_a_broker_without_its_data_is_formatted_anew_and_joins(small):
    said: list[str] = []
    small.kill(1)
    (small.folder / "broker-1" / "data" / "meta.properties").unlink()

    small_cluster(small.folder.parent.parent, say=said.append).start(1)

    assert "The data of broker-1 is incomplete: formatting it again." in said
    assert brokers_seen(small.bootstrap_servers, 5) == {1}


def test_a_cluster_whose_controller_lost_its_data_starts_anew(small, small_home):
    before = small.status().cluster_id
    (small.folder / "controller" / "data" / "meta.properties").unlink()

    small.up()

    assert small.status().cluster_id != before
    assert brokers_seen(small.bootstrap_servers, 5) == {1}
    assert len(processes_of(small_home)) == 2


def test_down_ends_even_a_paused_broker_and_leaves_neither_process_nor_folder(small, small_home):
    assert len(processes_of(small_home)) == 2
    small.pause(1)

    small.down(keep_data=True)
    assert processes_of(small_home) == []
    small.down()
    small.down()

    assert not small.folder.exists()


def test_a_node_that_dies_while_starting_is_named_with_its_log_and_last_words(tmp_path):
    broken = small_cluster(tmp_path, properties={"authorizer.class.name": "no.such.Authorizer"})

    with pytest.raises(ClusterStartFailed, match="did not start: its process ended") as caught:
        broken.up()

    named = [log for log in broken.logs.iterdir() if str(log) in (caught.value.hint or "")]
    assert len(named) == 1
    assert "no.such.Authorizer" in caught.value.message
    assert "no.such.Authorizer" in named[0].read_text()
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_up_ends_what_it_started(tmp_path, number):
    with cluster_up(tmp_path) as starting:
        wait_until(lambda: len(processes_of(tmp_path / "clusters", "kafka.Kafka")) == 2)
        starting.send_signal(number)
        assert starting.wait(timeout=60) == 130

    assert processes_of(tmp_path / "clusters") == []
    assert not (tmp_path / "clusters" / "default" / "cluster.json").exists()


def test_a_signal_while_the_classes_are_learnt_ends_that_node_too(tmp_path):
    broker_jars(cache=load_settings().cache)
    jars = jars_folder(load_settings().cache) / BROKER.name
    cache = tmp_path / "cache"
    (cache / "jars").mkdir(parents=True)
    (cache / "jars" / BROKER.name).symlink_to(jars)
    with cluster_up(tmp_path, TRIMTAB_CACHE=str(cache)) as starting:
        wait_until(lambda: processes_of(cache, "kafka.Kafka"))
        starting.send_signal(signal.SIGTERM)
        assert starting.wait(timeout=60) == 130

    assert processes_of(tmp_path) == []


def test_no_command_line_shows_the_sasl_password(tmp_path, monkeypatch):
    seen: list[str] = []

    class Watched(subprocess.Popen[bytes]):
        def __init__(self, argv, *rest, **more):
            seen.append(" ".join(map(str, argv)))
            super().__init__(argv, *rest, **more)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    user = SaslUser("alice", "open-sesame")

    with small_cluster(tmp_path, sasl=user) as running:
        right = sasl_client(running, "SCRAM-SHA-256", "alice", "open-sesame")
        assert set(right.list_topics(timeout=10).brokers) == {1}

    assert any("kafka.Kafka" in argv for argv in seen)
    assert not any("open-sesame" in argv for argv in seen)


def cluster_up(home: Path, **variables: str) -> subprocess.Popen[bytes]:
    """`trimtab cluster up` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "trimtab.cli.main", "cluster", "up", "--brokers", "1"],
        env={**os.environ, "TRIMTAB_HOME": str(home), **variables},
        stderr=subprocess.DEVNULL,
    )


# ---- asking the machine and the brokers ---------------------------------------------------------


def processes_of(folder: Path, program: str = "kafka.") -> list[int]:
    """The Kafka processes that name the folder on their command line, zombies left out."""
    listing = subprocess.run(
        ["ps", "-eww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=2) for line in listing.splitlines())
    return [
        int(pid)
        for pid, stat, args in (row for row in rows if len(row) == 3)
        if str(folder) in args and f" {program}" in args and not stat.startswith("Z")
    ]


def sasl_client(cluster: LocalCluster, mechanism: str, username: str, password: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": cluster.sasl_bootstrap_servers or "",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": username,
            "sasl.password": password,
            "log_level": 0,
        }
    )


def make_topic(cluster: LocalCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(timeout=30)


def topics(cluster: LocalCluster) -> set[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return set(admin.list_topics(timeout=10).topics)
