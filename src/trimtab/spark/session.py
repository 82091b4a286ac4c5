"""Builds the Spark session: the one place with Spark configuration.

The JVM's log goes to a file that errors name; `verbose` brings it back to stderr. On a master other
than `local` the executors get our package as a zip, and one small task checks at start-up that they
have the third-party packages they need.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from trimtab.errors import ConfigError, MeasurementError, TrimtabError

Session = SparkSession
"""For those who pass a session on and must not know Spark."""

EXECUTOR_PACKAGES = ("pyarrow", "pandas", "numpy", "scipy", "datasketches")
"""What executors on a real cluster must have installed, at our versions."""

MASTER_PATIENCE_S = 5.0
"""How long a connection to a standalone master may take."""

EXECUTOR_PATIENCE_S = 120.0
"""How long the first task may wait for an executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """How a session is built; `conf` wins over everything else.

    `packages` are the Python packages that executors of a real cluster get from here.
    """

    app: str = "trimtab"
    master: str | None = None
    jars: tuple[Path, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    properties_file: Path | None = None
    driver_memory: str = "1g"
    log: Path | None = None
    verbose: bool = False
    packages: tuple[str, ...] = ("trimtab",)


def configuration(options: SparkOptions) -> dict[str, str]:
    """Every Spark property we set: our defaults, the file, the master asked for, `conf`."""
    conf = {
        "spark.app.name": options.app,
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": options.driver_memory,
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Ten times the default: counting keys pays for each batch, and a batch is still small.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Checkpoints: a rename per file is enough with one driver, and three times as fast.
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution."
        "streaming.FileSystemBasedCheckpointFileManager",
        "spark.sql.streaming.minBatchesToRetain": "2",
    }
    if options.properties_file is not None:
        conf |= _read_properties(options.properties_file)
    if options.master is not None:
        conf["spark.master"] = options.master
    conf |= options.conf
    jars = [*map(str, options.jars), *filter(None, conf.get("spark.jars", "").split(","))]
    if jars:
        conf["spark.jars"] = ",".join(jars)
    if is_local(conf):
        loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        conf = loopback | conf
    return conf


def is_local(conf: Mapping[str, str]) -> bool:
    """Whether driver and executors are one process."""
    master = conf["spark.master"]
    return master.startswith("local") and not master.startswith("local-cluster")


def _read_properties(path: Path) -> dict[str, str]:
    """A `spark-defaults.conf`: name, white space or `=`, value."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    found = {}
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            name, _, value = text.replace("=", " ", 1).partition(" ")
            found[name] = value.strip()
    return found


def check_master(options: SparkOptions) -> None:
    """Refuses a standalone master of which no address can be reached; others are not checked."""
    master = configuration(options)["spark.master"]
    if not master.startswith("spark://"):
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"Invalid Spark master {master}.", hint="Write it as spark://HOST:PORT."
            )
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=MASTER_PATIENCE_S):
                return
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
    raise ConfigError(
        f"No Spark master answers at {'; '.join(failures)}.",
        hint="Check that the master runs, and --master, --conf and --properties-file.",
    )


def build(options: SparkOptions) -> SparkSession:
    """Starts Spark, or says why it does not start and which log tells more."""
    conf = configuration(options)
    # Workers take the driver's own interpreter, else another python3 may be found first.
    if "spark.pyspark.python" not in conf:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    local, master = is_local(conf), conf["spark.master"]
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    log = (options.log or Path(tempfile.mkdtemp(prefix="trimtab-spark-")) / "spark.log").absolute()
    said_before = log.stat().st_size if log.exists() else 0
    try:
        with _quiet(log, verbose=options.verbose) as popen:
            gateway = launch_gateway(_spark_conf(conf), popen)  # type: ignore[no-untyped-call]
            context = SparkContext(conf=SparkConf(_jvm=gateway.jvm), gateway=gateway)
        session = SparkSession(context)
        _hush(context)
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark did not start on {master}: {_last_words(log, said_before)}",
            hint=f"The log is {log}.",
        ) from error
    except Py4JError as error:
        raise ConfigError(
            f"Spark did not start on {master}: {said_by(error)}", hint=f"The log is {log}."
        ) from error
    atexit.register(_stop, session)
    if not local:
        _ship(context, options.packages)
        _check_executors(context, master, options.packages)
    return session


def _stop(session: SparkSession) -> None:
    """Stops Spark; harmless when its process ended before us."""
    with suppress(Py4JError, OSError):
        session.stop()


def _last_words(log: Path, skip: int) -> str:
    """The last line with an error that the JVM wrote since we started it."""
    with log.open("rb") as file:
        file.seek(skip)
        lines = file.read().decode(errors="replace").splitlines()
    errors = [line for line in lines if re.search(r"Exception|[Ee]rror\b", line)]
    return (errors or lines or ["it said nothing"])[-1].strip()


def said_by(error: BaseException) -> str:
    """The one line of an error that names the cause; traces of Java and Python are left out."""
    if isinstance(error, TrimtabError):
        return error.message
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    named = re.compile(
        r"(Caused by: )?(trimtab\.errors\.\w+|([\w.]+\.)?\w*(Error|Exception|Exit|Interrupt))\b:? ?"
    )
    causes = [line for line in lines if named.match(line)]
    if not causes:
        return lines[0] if lines else type(error).__name__
    last = causes[-1]
    return named.sub("", last, count=1).strip() or last


def _text(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString())
    return str(error)


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Turns errors of Spark into ours; `what` says what was being done."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise MeasurementError(f"Spark failed while {what}: {said_by(error)}") from error


def _hush(context: SparkContext) -> None:
    """Silences a warning per trigger, several times a second, that a trigger took its time."""
    if context._jvm is not None:
        log4j = context._jvm.org.apache.logging.log4j
        name = "org.apache.spark.sql.execution.streaming.ProcessingTimeExecutor"
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def _spark_conf(conf: Mapping[str, str]) -> SparkConf:
    made = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        made.set(name, value)
    return made


@contextmanager
def _quiet(log: Path, *, verbose: bool) -> Iterator[dict[str, object]]:
    """What `Popen` needs so that the JVM leaves terminal and working folder alone.

    Spark drops folders of its own where it is started, so it starts beside its log. A signal to
    our process group is ours to answer; the JVM ends when we do, since it reads our pipe.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    apart: dict[str, object] = {"cwd": log.parent, "start_new_session": True}
    if verbose:
        yield apart
        return
    with log.open("ab") as file:
        yield apart | {"stderr": file, "stdout": file}


def storage_path(path: str | Path) -> str:
    """A path as Spark takes it: a local one absolute, one with a scheme as it is."""
    text = str(path)
    return text if "://" in text else str(Path(text).absolute())


def _ship(context: SparkContext, packages: tuple[str, ...]) -> None:
    """Sends these packages, as they are installed here, to the executors in one zip."""
    target = Path(tempfile.mkdtemp(prefix="trimtab-")) / "trimtab.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in packages:
            root = Path(importlib.import_module(name).__path__[0])
            for path in sorted(root.rglob("*.py")):
                archive.write(path, Path(name) / path.relative_to(root))
    context.addPyFile(str(target))


def _missing(names: tuple[str, ...]) -> list[str]:
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def _check_executors(context: SparkContext, master: str, packages: tuple[str, ...]) -> None:
    """Runs one task that imports what executors need; nobody waits for ever for a free worker."""
    wanted = (*EXECUTOR_PACKAGES, *packages)
    with ThreadPoolExecutor(1, thread_name_prefix="spark-check") as thread:
        task = context.parallelize([0], 1).map(lambda _: _missing(wanted))
        running = thread.submit(task.collect)
        try:
            missing = running.result(EXECUTOR_PATIENCE_S)[0]
        except TimeoutError as error:
            context.cancelAllJobs()
            raise ConfigError(
                f"No executor of {master} took a task within {EXECUTOR_PATIENCE_S:g} s.",
                hint="Is there a worker with free cores and memory? See spark.executor.memory.",
            ) from error
        except Py4JError as error:
            raise ConfigError(
                f"The executors of {master} could not run a Python task: {said_by(error)}",
                hint="They need the driver's Python version; name it with "
                "--conf spark.pyspark.python=PATH.",
            ) from error
    if missing:
        raise ConfigError(
            f"The executors of {master} lack {', '.join(missing)}.",
            hint=f"Install {' '.join(EXECUTOR_PACKAGES)} on every worker, or ship an archive "
            "with --conf spark.archives=….",
        )


@contextmanager
def watched(
    session: SparkSession, report: Callable[[int, int], None], *, every_s: float = 0.3
) -> Iterator[None]:
    """Reports (tasks done, tasks known) of the running jobs while the block runs."""
    tracker, done = session.sparkContext.statusTracker(), threading.Event()

    def poll() -> None:
        while not done.wait(every_s):
            finished = known = 0
            for job in tracker.getActiveJobsIds():
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    stage_info = tracker.getStageInfo(stage)
                    if stage_info:
                        finished += stage_info.numCompletedTasks
                        known += stage_info.numTasks
            report(finished, known)

    thread = threading.Thread(target=poll, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
