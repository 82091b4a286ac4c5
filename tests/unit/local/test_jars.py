"""The jar cache, against a spark-submit made of a few lines of shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from trimtab.errors import ConfigError
from trimtab.local.jars import (
    BROKER,
    CONNECTOR,
    KAFKA,
    SPARK,
    FetchProgress,
    after_line,
    broker_jars,
    complete_jars,
    connector_jars,
    pyspark_home,
)
from trimtab.observe.clock import wait_until

BROKER_JARS = (
    f"org.apache.kafka_kafka_2.13-{KAFKA}.jar",
    f"org.apache.kafka_kafka-clients-{KAFKA}.jar",
    "org.apache.logging.log4j_log4j-slf4j-impl-2.25.4.jar",
    "org.apache.logging.log4j_log4j-core-2.25.4.jar",
)
SCALA_JAR = "scala-library-2.13.16.jar"
CONNECTOR_JARS = (
    f"org.apache.spark_spark-sql-kafka-0-10_2.13-{SPARK}.jar",
    f"org.apache.spark_spark-token-provider-kafka-0-10_2.13-{SPARK}.jar",
    "org.apache.kafka_kafka-clients-3.9.0.jar",
    "org.apache.commons_commons-pool2-2.12.0.jar",
)


class FakeSpark:
    """A PySpark folder whose spark-submit writes given jars, and counts how often it was asked."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "bin").mkdir(parents=True)
        (home / "jars").mkdir()
        (home / "jars" / SCALA_JAR).write_bytes(b"scala")

    def delivers(self, *jars: str, then: str = "exit 0") -> None:
        writes = "\n".join(f'echo "{jar}" > "$ivy/jars/{jar}"' for jar in jars)
        submit = self.home / "bin" / "spark-submit"
        submit.write_text(
            "#!/bin/sh\n"
            f'echo asked >> "{self.home}/asked"\n'
            'for word in "$@"; do case "$word" in spark.jars.ivy=*) ivy=${word#*=};; esac; done\n'
            f'mkdir -p "$ivy/jars"\n{writes}\n{then}\n'
        )
        submit.chmod(0o755)

    @property
    def asked(self) -> int:
        path = self.home / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0


@contextmanager
def quiet(title):
    yield lambda _: None


@pytest.fixture
def spark(tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    return FakeSpark(tmp_path / "spark")


def fetch_broker(tmp_path, spark):
    return broker_jars(cache=tmp_path / "cache", progress=quiet, spark_home=spark.home)


def folder(tmp_path, jar_set=BROKER):
    return tmp_path / "cache" / "jars" / jar_set.name


def test_jars_are_fetched_once_and_then_taken_from_the_cache(tmp_path, spark):
    spark.delivers(*BROKER_JARS)

    first = fetch_broker(tmp_path, spark)
    second = fetch_broker(tmp_path, spark)

    assert first == second
    assert spark.asked == 1
    assert all(jar.is_file() for jar in first)


def test_the_class_path_of_a_broker_has_pysparks_scala_library(tmp_path, spark):
    spark.delivers(*BROKER_JARS)

    names = {jar.name for jar in fetch_broker(tmp_path, spark)}

    assert names == {*BROKER_JARS, SCALA_JAR}


def test_the_connector_is_exactly_four_jars_whatever_else_came_along(tmp_path, spark):
    spark.delivers(*CONNECTOR_JARS, "org.lz4_lz4-java-1.8.0.jar", "org.slf4j_slf4j-api-2.0.16.jar")

    jars = connector_jars(cache=tmp_path / "cache", progress=quiet, spark_home=spark.home)

    assert {jar.name for jar in jars} == set(CONNECTOR_JARS)


DAMAGES = {
    "jar removed": lambda jar, _: jar.unlink(),
    "jar shortened": lambda jar, _: jar.write_bytes(jar.read_bytes()[:-1]),
    "jar altered": lambda jar, _: jar.write_bytes(jar.read_bytes()[:-1] + b"?"),
    "no manifest": lambda _, manifest: manifest.unlink(),
    "half a manifest": lambda _, manifest: manifest.write_text(manifest.read_text()[:40]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_not_taken_as_complete_but_fetched_again(tmp_path, spark, damage):
    spark.delivers(*BROKER_JARS)
    jar = fetch_broker(tmp_path, spark)[0]
    manifest = folder(tmp_path) / "manifest.json"
    whole = jar.read_bytes()
    DAMAGES[damage](jar, manifest)

    assert complete_jars(folder(tmp_path)) is None
    again = fetch_broker(tmp_path, spark)

    assert spark.asked == 2
    assert again[0].read_bytes() == whole


def test_a_fetch_that_dies_midway_leaves_nothing_and_says_what_was_wanted(tmp_path, spark):
    spark.delivers(BROKER_JARS[0], then="echo 'Host repo not found. url=x'; exit 1")

    with pytest.raises(ConfigError) as caught:
        fetch_broker(tmp_path, spark)

    assert f"org.apache.kafka:kafka_2.13:{KAFKA}" in caught.value.message
    assert "Host repo not found" in caught.value.message
    assert not folder(tmp_path).exists()
    log = folder(tmp_path).with_name(f"{BROKER.name}.log")
    assert str(log) in (caught.value.hint or "")
    assert "Host repo not found" in log.read_text()


def test_after_a_failed_fetch_the_next_one_succeeds(tmp_path, spark):
    spark.delivers(BROKER_JARS[0], then="exit 1")
    with pytest.raises(ConfigError):
        fetch_broker(tmp_path, spark)
    spark.delivers(*BROKER_JARS)

    jars = fetch_broker(tmp_path, spark)

    assert len(jars) == len(BROKER_JARS) + 1


def test_a_fetch_that_ends_well_without_a_required_jar_is_refused(tmp_path, spark):
    spark.delivers(*BROKER_JARS[1:])

    with pytest.raises(ConfigError, match=r"kafka_2\.13 missing"):
        fetch_broker(tmp_path, spark)

    assert not folder(tmp_path).exists()


def test_a_fetch_killed_with_9_is_not_taken_for_a_complete_one(tmp_path, spark):
    spark.delivers(*BROKER_JARS, then=f'echo $$ > "{tmp_path}/submit"; exec sleep 60')
    program = (
        "import sys; from pathlib import Path; from trimtab.local.jars import broker_jars; "
        "broker_jars(cache=Path(sys.argv[1]), spark_home=Path(sys.argv[2]))"
    )
    cache = tmp_path / "cache"
    with subprocess.Popen([sys.executable, "-c", program, str(cache), str(spark.home)]) as child:
        submit = int(wait_for_text(tmp_path / "submit"))
        child.kill()
    os.killpg(submit, signal.SIGKILL)
    assert not folder(tmp_path).exists()
    spark.delivers(*BROKER_JARS)

    fetch_broker(tmp_path, spark)

    assert complete_jars(folder(tmp_path)) is not None
    assert not list((cache / "jars").glob("*.fetching"))
    assert not list((cache / "jars").glob(".*.fetching"))


def test_ctrl_c_during_a_fetch_ends_spark_submit_too(tmp_path, spark):
    spark.delivers(then=f'echo $$ > "{tmp_path}/submit"; echo started; exec sleep 60')

    @contextmanager
    def interrupting(title):
        def report(_):
            raise KeyboardInterrupt

        yield report

    with pytest.raises(KeyboardInterrupt):
        broker_jars(cache=tmp_path / "cache", progress=interrupting, spark_home=spark.home)

    with pytest.raises(ProcessLookupError):
        os.kill(int(wait_for_text(tmp_path / "submit")), 0)
    assert not folder(tmp_path).exists()


def test_two_processes_at_once_fetch_once(tmp_path, spark):
    spark.delivers(*BROKER_JARS, then="sleep 1")
    program = (
        "import sys; from pathlib import Path; from trimtab.local.jars import broker_jars; "
        "print(len(broker_jars(cache=Path(sys.argv[1]), spark_home=Path(sys.argv[2]))))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "cache"), str(spark.home)]

    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [process.communicate(timeout=60)[0].strip() for process in both]

    assert counts == ["5", "5"]
    assert spark.asked == 1


def test_the_manifest_names_every_jar_with_size_and_hash(tmp_path, spark):
    spark.delivers(*BROKER_JARS)
    fetch_broker(tmp_path, spark)

    manifest = json.loads((folder(tmp_path) / "manifest.json").read_text())

    assert manifest["v"] == 1
    assert {entry["name"] for entry in manifest["jars"]} == {*BROKER_JARS, SCALA_JAR}
    assert all(entry["size"] > 0 and len(entry["sha256"]) == 64 for entry in manifest["jars"])


def test_progress_follows_what_ivy_says():
    progress = FetchProgress()
    for line in (
        "\tfound org.apache.kafka#kafka_2.13;4.3.1 in central\n",
        "You probably access the destination server through a proxy server.\n",
        "\tfound com.google.re2j#re2j;1.8 in central\n",
        "downloading https://host/maven2/com/google/re2j/re2j/1.8/re2j-1.8.jar ...\n",
        "\t[SUCCESSFUL ] com.google.re2j#re2j;1.8!re2j.jar (50ms)\n",
    ):
        progress = after_line(progress, line)

    assert progress == FetchProgress(found=2, fetched=1, current="re2j-1.8.jar")


def test_versions_and_folder_of_pyspark_are_known_without_loading_it():
    program = (
        "import sys; from trimtab.local import jars; jars.pyspark_home(); "
        "sys.exit('pyspark' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert (pyspark_home() / "bin" / "spark-submit").is_file()
    assert SPARK in CONNECTOR.packages[0]


def wait_for_text(path: Path) -> str:
    return wait_until(
        lambda: path.read_text().strip() if path.exists() else "",
        within_s=30,
        every_s=0.01,
        what=f"text in {path}",
    )
