"""Builds the Spark session; all Spark configuration is set here.

The JVM's log goes to a file, which error messages name; `verbose` sends it to stderr. On a master
other than `local` the executors get our package as a zip, and a small task checks at start-up that
they have the third-party packages they need.
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
"""Type of a session for modules that may not import Spark."""

EXECUTOR_PACKAGES = ("pyarrow", "pandas", "numpy", "scipy", "datasketches", "confluent_kafka")
"""Packages that executors on a real cluster must have installed, in our versions."""

MASTER_PATIENCE_S = 5.0
"""How long a connection to a standalone master may take."""

EXECUTOR_PATIENCE_S = 120.0
"""How long the first task may wait for an executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """How a session is built; `conf` overrides everything else.

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
    """All Spark properties: our defaults, then the properties file, the master and `conf`."""
    conf = {
        "spark.app.name": options.app,
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": options.driver_memory,
        "spark.log.level": "WARN",
        # Tables are written in a pool of their own, so that they do not delay rates.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Ten times the default: counting keys has a cost per batch, and batches stay small.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Checkpoints: with one driver a rename per file is safe, and three times as fast.
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
    """Whether driver and executors run in one process."""
    master = conf["spark.master"]
    return master.startswith("local") and not master.startswith("local-cluster")


def _read_properties(path: Path) -> dict[str, str]:
    """Parses a `spark-defaults.conf`: name, white space or `=`, value."""
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
    """Raises an error if no address of a standalone master can be reached; skips other masters."""
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
        f"No Spark master could be reached: {'; '.join(failures)}.",
        hint="Check that the master is running, and check --master, --conf and --properties-file.",
    )


def build(options: SparkOptions) -> SparkSession:
    """Starts Spark; on failure, raises an error with the cause and the path of the log."""
    conf = configuration(options)
    # Workers use the driver's interpreter; another python3 may come first on their PATH.
    if "spark.pyspark.python" not in conf:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    local, master = is_local(conf), conf["spark.master"]
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    log = (options.log or Path(tempfile.mkdtemp(prefix="trimtab-spark-")) / "spark.log").absolute()
    size_before = log.stat().st_size if log.exists() else 0
    try:
        with _quiet(log, verbose=options.verbose) as popen:
            gateway = launch_gateway(_spark_conf(conf), popen)  # type: ignore[no-untyped-call]
            context = SparkContext(conf=SparkConf(_jvm=gateway.jvm), gateway=gateway)
        session = SparkSession(context)
        _silence_trigger_warnings(context)
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark did not start on {master}: {_last_error(log, size_before)}",
            hint=f"See the log {log}.",
        ) from error
    except Py4JError as error:
        raise ConfigError(
            f"Spark did not start on {master}: {cause_of(error)}", hint=f"See the log {log}."
        ) from error
    atexit.register(_stop, session)
    if not local:
        _ship(context, options.packages)
        _check_executors(context, master, options.packages)
    return session


def _stop(session: SparkSession) -> None:
    """Stops Spark; does nothing if its process has already ended."""
    with suppress(Py4JError, OSError):
        session.stop()


def _last_error(log: Path, skip: int) -> str:
    """The last error line that the JVM has logged since it was started."""
    with log.open("rb") as file:
        file.seek(skip)
        lines = file.read().decode(errors="replace").splitlines()
    errors = [line for line in lines if re.search(r"Exception|[Ee]rror\b", line)]
    return (errors or lines or ["the log is empty"])[-1].strip()


def cause_of(error: BaseException) -> str:
    """The line of an error that names the cause, without Java and Python stack traces."""
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
    """Raises errors of Spark as Trimtab's; `what` names the operation."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise MeasurementError(f"Spark failed while {what}: {cause_of(error)}") from error


def _silence_trigger_warnings(context: SparkContext) -> None:
    """Silences a warning, several times a second, that a trigger took longer than its interval."""
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
    """`Popen` arguments that keep the JVM away from the terminal and the working folder.

    Spark creates folders in its working folder, so it is started in the folder of its log. Signals
    to our process group do not reach the JVM; it ends with us, since it reads our pipe.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    popen_arguments: dict[str, object] = {"cwd": log.parent, "start_new_session": True}
    if verbose:
        yield popen_arguments
        return
    with log.open("ab") as file:
        yield popen_arguments | {"stderr": file, "stdout": file}


def storage_path(path: str | Path) -> str:
    """A path for Spark: a local path made absolute, a path with a scheme unchanged."""
    text = str(path)
    return text if "://" in text else str(Path(text).absolute())


def _ship(context: SparkContext, packages: tuple[str, ...]) -> None:
    """Sends the installed versions of these packages to the executors in one zip."""
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
    """Runs a task that imports what executors need; fails if no executor is free in time."""
    wanted = (*EXECUTOR_PACKAGES, *packages)
    with ThreadPoolExecutor(1, thread_name_prefix="spark-check") as thread:
        task = context.parallelize([0], 1).map(lambda _: _missing(wanted))
        running = thread.submit(task.collect)
        try:
            missing = running.result(EXECUTOR_PATIENCE_S)[0]
        except TimeoutError as error:
            context.cancelAllJobs()
            raise ConfigError(
                f"No executor of {master} accepted a task within {EXECUTOR_PATIENCE_S:g} s.",
                hint="Check that a worker has free cores and memory (spark.executor.memory).",
            ) from error
        except Py4JError as error:
            raise ConfigError(
                f"The executors of {master} could not run a Python task: {cause_of(error)}",
                hint="They need the driver's Python version; set it with "
                "--conf spark.pyspark.python=PATH.",
            ) from error
    if missing:
        raise ConfigError(
            f"The executors of {master} lack {', '.join(missing)}.",
            hint=f"Install {' '.join(EXECUTOR_PACKAGES).replace('_', '-')} on every worker, or "
            "ship an archive with --conf spark.archives=….",
        )


@contextmanager
def watched(
    session: SparkSession, report: Callable[[int, int], None], *, every_s: float = 0.3
) -> Iterator[None]:
    """Reports (finished tasks, total tasks) of the running jobs while the block runs."""
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
