"""The local cluster's own sense, without brokers; the brokers come in tests/kafka."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trimtab.errors import BadFile, ClusterStartFailed, ConfigError
from trimtab.local import processes
from trimtab.local.broker_properties import node_properties
from trimtab.local.class_archive import class_archive
from trimtab.local.cluster import LocalCluster, SaslUser
from trimtab.local.cluster_state import (
    CONTROLLER,
    BrokerProcessState,
    LocalClusterState,
    LocalNode,
    Shape,
    state_from_json,
    state_to_json,
)
from trimtab.local.java import find_java
from trimtab.local.ports import free_ports
from trimtab.local.processes import ProcessId, ProcessState, end, process_state, send, spawn
from trimtab.observe.clock import wait_until

STATE = LocalClusterState(
    cluster_id="Zx0123456789abcdefghij",
    shape=Shape(brokers=2, racks=2, properties=(("num.io.threads", "2"),)),
    nodes=(
        LocalNode(id=CONTROLLER, rack=None, port=21000, sasl_port=None),
        LocalNode(id=1, rack="a", port=21001, sasl_port=21003, process=ProcessId(4242, "99")),
        LocalNode(id=2, rack="b", port=21002, sasl_port=21004),
    ),
)


@pytest.fixture
def path_with(tmp_path, monkeypatch):
    """Makes a PATH on which `java` is the given shell script, or is missing."""

    def make(script: str | None) -> None:
        folder = tmp_path / "path"
        folder.mkdir()
        if script is not None:
            (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
            (folder / "java").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return make


def test_without_java_the_error_says_how_to_install_it(path_with, tmp_path):
    path_with(None)

    with pytest.raises(ConfigError, match="no Java") as caught:
        LocalCluster(home=tmp_path, jars=()).up()

    assert "apt-get install" in (caught.value.hint or "")
    assert "brew install" in (caught.value.hint or "")


def test_too_old_a_java_is_named_with_its_version(path_with, tmp_path):
    path_with("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")

    with pytest.raises(ConfigError, match="is Java 11; Kafka and Spark need 17"):
        LocalCluster(home=tmp_path, jars=()).up()


def test_a_java_that_does_not_run_is_not_taken_for_one(path_with):
    path_with("echo 'Unable to locate a Java Runtime.' >&2; exit 1")

    with pytest.raises(ConfigError, match="Unable to locate a Java Runtime"):
        find_java()


def test_a_full_disk_is_noticed_before_anything_is_started(path_with, tmp_path, monkeypatch):
    path_with("echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=120_000_000))

    with pytest.raises(ClusterStartFailed, match="Only 120 MB are free") as caught:
        LocalCluster(home=tmp_path, jars=()).up()

    assert "TRIMTAB_HOME" in (caught.value.hint or "")
    assert not (tmp_path / "clusters" / "default").exists()


def test_a_java_that_makes_no_class_archive_is_asked_once_and_done_without(tmp_path):
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\nexit 1\n")
    java.chmod(0o755)

    archives = [class_archive(java, (), folder=tmp_path / "jars", say=print) for _ in range(2)]

    assert archives == [None, None]
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_state_file_survives_the_way_through_json():
    assert state_from_json(json.loads(json.dumps(state_to_json(STATE)))) == STATE


@pytest.mark.parametrize("text", ['{"v":1,"clus', '{"v":2}', "[]", '{"v":1,"nodes":[{}]}'])
def test_a_state_file_that_is_none_is_named_with_a_way_out(tmp_path, text):
    cluster = LocalCluster(home=tmp_path)
    cluster.folder.mkdir(parents=True)
    (cluster.folder / "cluster.json").write_text(text)

    with pytest.raises(BadFile, match=r"cluster\.json is not a valid cluster state") as caught:
        cluster.status()

    assert str(cluster.folder) in (caught.value.hint or "")


def test_a_pid_that_belongs_to_somebody_else_now_counts_as_dead(tmp_path):
    stranger = spawn(["sleep", "60"], folder=tmp_path, log=tmp_path / "log")
    try:
        remembered = replace(stranger, started="long ago")

        assert process_state(remembered) is ProcessState.DEAD
        send(remembered, signal.SIGKILL)
        assert process_state(stranger) is ProcessState.RUNNING
    finally:
        end([stranger], patience_s=0)
    assert process_state(stranger) is ProcessState.DEAD


def test_a_paused_process_ends_without_being_waited_for_in_vain(tmp_path):
    process = spawn(["sleep", "60"], folder=tmp_path, log=tmp_path / "log")
    send(process, signal.SIGSTOP)
    wait_until(lambda: process_state(process) is ProcessState.PAUSED, within_s=30, every_s=0.01)

    end([process], patience_s=30)

    assert process_state(process) is ProcessState.DEAD


def test_a_process_that_does_not_listen_is_killed_in_the_end(tmp_path):
    deaf = (
        "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); signal.pause()"
    )
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", deaf], folder=tmp_path, log=log)
    wait_until(lambda: log.read_text() == "on\n", within_s=30, every_s=0.01)

    end([process], patience_s=0.2)

    assert process_state(process) is ProcessState.DEAD


def test_a_process_of_an_earlier_boot_counts_as_dead(tmp_path, monkeypatch):
    stranger = spawn(["sleep", "60"], folder=tmp_path, log=tmp_path / "log")
    try:
        monkeypatch.setattr(processes, "_boot_id", lambda: "another boot")

        assert process_state(stranger) is ProcessState.DEAD
        monkeypatch.undo()
        assert process_state(stranger) is ProcessState.RUNNING
    finally:
        monkeypatch.undo()
        end([stranger], patience_s=0)


def test_what_outlives_a_kill_is_named_and_down_keeps_the_state(tmp_path, monkeypatch):
    stuck = spawn(["sleep", "60"], folder=tmp_path, log=tmp_path / "log")
    cluster = LocalCluster(home=tmp_path)
    write_state(cluster, STATE.with_process(1, stuck))
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "kill", lambda pid, number: None)
            patched.setattr(processes, "_KILLED_WITHIN_S", 0.05)
            with pytest.raises(ConfigError, match=f"processes {stuck.pid}"):
                cluster.down()
        assert cluster.status().brokers[0].pid == stuck.pid
    finally:
        end([stuck], patience_s=0)


@pytest.mark.parametrize("verb", ["up", "down"])
def test_a_folder_that_somebody_else_made_is_never_removed(tmp_path, verb):
    cluster = LocalCluster(home=tmp_path, jars=())
    (cluster.folder / "logs").mkdir(parents=True)
    (cluster.folder / "thesis.txt").write_text("years of work")

    with pytest.raises(ConfigError, match="was not created by Trimtab") as caught:
        getattr(cluster, verb)()

    assert "TRIMTAB_HOME" in (caught.value.hint or "")
    assert (cluster.folder / "thesis.txt").read_text() == "years of work"


def test_what_a_failed_up_left_is_ours_to_remove(tmp_path, path_with):
    path_with('[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' >&2 || exit 1')
    (tmp_path / "broker.jar").touch()
    cluster = LocalCluster(home=tmp_path, cache=tmp_path, jars=[tmp_path / "broker.jar"])
    with pytest.raises(ClusterStartFailed):
        cluster.up()
    assert cluster.logs.exists()

    cluster.down()

    assert not cluster.folder.exists()


@pytest.mark.parametrize("verb", ["up", "down", "status"])
def test_a_home_that_is_no_folder_is_named_with_its_variable(tmp_path, verb):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="Not a directory") as caught:
        getattr(LocalCluster(home=tmp_path / "file"), verb)()

    assert "TRIMTAB_HOME" in (caught.value.hint or "")


@pytest.mark.parametrize("verb", ["up", "down"])
def test_a_home_that_cannot_be_made_is_named_with_its_variable(verb):
    with pytest.raises(ConfigError, match="/proc/nope") as caught:
        getattr(LocalCluster(home=Path("/proc/nope/home")), verb)()

    assert "TRIMTAB_HOME" in (caught.value.hint or "")


def test_a_cache_that_cannot_be_made_is_named_with_its_variable(tmp_path):
    cluster = LocalCluster(home=tmp_path, cache=Path("/proc/nope"))

    with pytest.raises(ConfigError, match="/proc/nope") as caught:
        cluster.up()

    assert "TRIMTAB_CACHE" in (caught.value.hint or "")


def test_status_kill_and_down_of_nothing_are_clear(tmp_path):
    cluster = LocalCluster(home=tmp_path)

    cluster.down()

    assert cluster.status().brokers == ()
    assert cluster.status().cluster_id is None
    with pytest.raises(ConfigError, match='no local cluster "default"'):
        cluster.kill(1)


def test_a_state_file_of_dead_processes_shows_them_as_dead_and_down_removes_it(tmp_path):
    cluster = LocalCluster(home=tmp_path, brokers=2)
    write_state(cluster, STATE)

    states = [broker.state for broker in cluster.status().brokers]
    cluster.down()

    assert states == [BrokerProcessState.DEAD, BrokerProcessState.ABSENT]
    assert not cluster.folder.exists()


def test_another_shape_under_the_same_name_is_refused(tmp_path):
    cluster = LocalCluster(home=tmp_path, brokers=5)
    write_state(cluster, STATE)

    with pytest.raises(ClusterStartFailed, match="brokers 2, not 5"):
        cluster.up()


def test_brokers_are_told_rack_listeners_and_the_users_own_properties(tmp_path):
    user = SaslUser("alice", "secret")

    settings = node_properties(STATE.node(2), STATE, data=tmp_path, sasl=user)

    assert settings["broker.rack"] == "b"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:21002,SASL://127.0.0.1:21004"
    assert settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:21000"
    assert settings["offsets.topic.replication.factor"] == "2"
    assert settings["num.io.threads"] == "2"
    assert "secret" not in repr(user)


@pytest.mark.parametrize("key", ["node.id", "listeners", "log.dirs"])
def test_a_property_that_is_the_clusters_own_is_refused(tmp_path, key):
    with pytest.raises(ConfigError, match="is set by the local cluster"):
        LocalCluster(home=tmp_path, properties={key: "1"})


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="Invalid cluster name"):
        LocalCluster(name, home=tmp_path)


def test_a_password_that_would_break_the_jaas_line_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        SaslUser("alice", 'open"sesame')

    assert "sesame" not in f"{caught.value.message} {caught.value.hint}"


def test_free_ports_are_distinct():
    assert len(set(free_ports(50))) == 50


def test_a_port_that_one_process_was_given_is_given_to_no_other():
    [port] = free_ports(1)
    ask = (
        "from trimtab.local import ports\n"
        f"ports._RANGE = range({port}, {port + 1})\n"
        "print(ports.is_free(ports._RANGE[0]), ports.free_ports(1))"
    )

    other = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)

    assert other.stdout.split(maxsplit=1) == ["True", "()\n"]


def write_state(cluster, state):
    cluster.folder.mkdir(parents=True)
    (cluster.folder / "cluster.json").write_text(json.dumps(state_to_json(state)))
