"""The jars of the brokers and of Spark's Kafka connector, downloaded once into a cache.

Why      No Python package contains a broker. PySpark contains Ivy, so no other tool is needed.
Promise  A folder is complete only if its manifest lists every jar with its size and SHA-256, and
         all of them match. It is built in a temporary folder and renamed, so an interrupted
         download is never mistaken for a complete one.
Cost     About 40 MB and half a minute once; later, 45 MB are read to check them.

Broker and connector are resolved separately: together, the broker's kafka-clients would replace
the connector's, and Spark's streaming source would fail at run time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from trimtab.errors import ConfigError
from trimtab.local.java import find_java

KAFKA = "4.3.1"
LOG4J = "2.25.4"
SCALA = "2.13"
SPARK = importlib.metadata.version("pyspark")  # read, not imported: that would load Spark

_MANIFEST = "manifest.json"
_FETCH_LIMIT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are resolved together: packages, exclusions and required artifacts."""

    name: str
    packages: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    required: tuple[str, ...]
    """Artifact names without version; with `only_required`, all others are dropped."""
    only_required: bool = False
    from_spark: str | None = None
    """Pattern of the jar to take from PySpark: Ivy leaves out jars that Spark has."""


BROKER = JarSet(
    name=f"broker-{KAFKA}-log4j-{LOG4J}-scala-{SCALA}",
    packages=(
        f"org.apache.kafka:kafka_{SCALA}:{KAFKA}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",  # brokers need it for logging
    ),
    required=(f"kafka_{SCALA}", "kafka-clients", "log4j-slf4j-impl", "log4j-core"),
    from_spark=f"scala-library-{SCALA}.*.jar",
)
CONNECTOR = JarSet(
    name=f"connector-{SPARK}-scala-{SCALA}",
    packages=(f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{SPARK}",),
    excluded=("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime"),
    required=(
        f"spark-sql-kafka-0-10_{SCALA}",
        f"spark-token-provider-kafka-0-10_{SCALA}",
        "kafka-clients",
        "commons-pool2",
    ),
    only_required=True,  # PySpark has the others
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchProgress:
    """Progress of a download."""

    found: int = 0
    fetched: int = 0
    current: str = ""


Report = Callable[[FetchProgress], None]
ProgressBar = Callable[[str], AbstractContextManager[Report]]


@contextlib.contextmanager
def progress_on_stderr(title: str) -> Iterator[Report]:
    """Shows a download as a progress bar on a terminal, otherwise as one line."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"{title} …", highlight=False)
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[current]}", style="dim"),
    )
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(title, total=None, current="")

        def report(progress: FetchProgress) -> None:
            total = progress.found if progress.fetched else None
            bar.update(task, total=total, completed=progress.fetched, current=progress.current)

        yield report


def broker_jars(
    *,
    cache: Path | None = None,
    progress: ProgressBar = progress_on_stderr,
    spark_home: Path | None = None,
) -> tuple[Path, ...]:
    """Returns a broker's class path, downloaded if necessary."""
    home = spark_home or pyspark_home()
    return _jars(BROKER, cache=cache, progress=progress, spark_home=home)


def connector_jars(
    *,
    cache: Path | None = None,
    progress: ProgressBar = progress_on_stderr,
    spark_home: Path | None = None,
) -> tuple[Path, ...]:
    """Returns the four jars that Spark's Kafka source and sink need in `spark.jars`."""
    home = spark_home or pyspark_home()
    return _jars(CONNECTOR, cache=cache, progress=progress, spark_home=home)


def jars_folder(cache: Path | None) -> Path:
    """Returns the folder of jars and of files built from them."""
    return (cache or platformdirs.user_cache_path("trimtab")) / "jars"


def pyspark_home() -> Path:
    """Returns the folder of the installed PySpark (a complete Spark), without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("PySpark is not installed.", hint=f"pip install pyspark=={SPARK}")
    return Path(spec.submodule_search_locations[0])


def _jars(
    jar_set: JarSet, *, cache: Path | None, progress: ProgressBar, spark_home: Path
) -> tuple[Path, ...]:
    root = jars_folder(cache)
    complete = complete_jars(root / jar_set.name)
    if complete is None:
        root.mkdir(parents=True, exist_ok=True)
        with (root / f".{jar_set.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            complete = complete_jars(root / jar_set.name)  # perhaps fetched by another process
            if complete is None:
                complete = _fetch(jar_set, root=root, progress=progress, spark_home=spark_home)
    return complete


def complete_jars(folder: Path) -> tuple[Path, ...] | None:
    """Returns the jars of a folder if they match its manifest, else None."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        if manifest["v"] != 1:
            return None
        jars = tuple(folder / entry["name"] for entry in manifest["jars"])
        agree = all(
            jar.stat().st_size == entry["size"] and _sha256(jar) == entry["sha256"]
            for jar, entry in zip(jars, manifest["jars"], strict=True)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return jars if agree and jars else None


def _fetch(
    jar_set: JarSet, *, root: Path, progress: ProgressBar, spark_home: Path
) -> tuple[Path, ...]:
    find_java()  # a better error than Spark's if Java is missing
    place = root / jar_set.name
    work = root / f".{jar_set.name}.fetching"
    shutil.rmtree(work, ignore_errors=True)  # left by an interrupted download
    (work / "ready").mkdir(parents=True)
    try:
        with progress(f"Fetching {jar_set.name}") as report:
            _resolve(
                jar_set,
                work=work,
                log=root / f"{jar_set.name}.log",
                report=report,
                spark_home=spark_home,
            )
        fetched = sorted((work / "ivy" / "jars").glob("*.jar"))
        kept = [jar for jar in fetched if not jar_set.only_required or _is_required(jar, jar_set)]
        missing = [name for name in jar_set.required if not any(_is(jar, name) for jar in kept)]
        if missing:
            raise _fetch_failed(jar_set, f"{', '.join(missing)} missing from the download", root)
        for jar in kept:
            jar.rename(work / "ready" / jar.name)
        if jar_set.from_spark is not None:
            shutil.copy(_jar_of_spark(spark_home, jar_set.from_spark), work / "ready")
        _write_manifest(work / "ready", jar_set)
        shutil.rmtree(place, ignore_errors=True)  # it exists, but is not complete
        (work / "ready").rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    jars = complete_jars(place)
    if jars is None:
        raise _fetch_failed(jar_set, f"{place} changed while it was written", root)
    return jars


def _jar_of_spark(spark_home: Path, pattern: str) -> Path:
    found = sorted((spark_home / "jars").glob(pattern))
    if not found:
        raise ConfigError(
            f"There is no {pattern} in {spark_home / 'jars'}.",
            hint=f"Install PySpark again: pip install --force-reinstall pyspark=={SPARK}",
        )
    return found[-1]


def _resolve(jar_set: JarSet, *, work: Path, log: Path, report: Report, spark_home: Path) -> None:
    """Resolves the packages into `work`/ivy with PySpark's Ivy; its output goes to `log`."""
    program = work / "nothing.py"
    program.write_text("")
    command = [
        "env",
        f"SPARK_HOME={spark_home}",
        f"PYSPARK_PYTHON={sys.executable}",
        f"PYSPARK_DRIVER_PYTHON={sys.executable}",
        "SPARK_LOCAL_IP=127.0.0.1",
        str(spark_home / "bin" / "spark-submit"),
        "--packages",
        ",".join(jar_set.packages),
        *(("--exclude-packages", ",".join(jar_set.excluded)) if jar_set.excluded else ()),
        "--conf",
        f"spark.jars.ivy={work / 'ivy'}",
        str(program),
    ]
    errors: deque[str] = deque(maxlen=4)
    so_far = FetchProgress()
    with (
        log.open("w") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as submit,
    ):
        watchdog = threading.Timer(_FETCH_LIMIT_S, _kill_group, (submit.pid,))
        watchdog.start()
        try:
            assert submit.stdout is not None  # noqa: S101 - stdout is a pipe
            for line in submit.stdout:
                out.write(line)
                so_far = after_line(so_far, line)
                report(so_far)
                if is_failure(line) and line.strip() not in errors:
                    errors.append(line.strip())
            code = submit.wait()
        except BaseException:
            _kill_group(submit.pid)
            raise
        finally:
            watchdog.cancel()
    if code != 0:
        raise _fetch_failed(jar_set, " | ".join(errors) or f"exit code {code}", log.parent)


def after_line(so_far: FetchProgress, line: str) -> FetchProgress:
    """Returns the progress after another line of Ivy's output."""
    if match := re.match(r"\s+found \S+#(\S+);(\S+) in ", line):
        return replace(so_far, found=so_far.found + 1, current=f"{match[1]} {match[2]}")
    if match := re.match(r"downloading \S*/(\S+) \.\.\.", line):
        return replace(so_far, current=match[1])
    if re.match(r"\s+\[SUCCESSFUL \]", line):
        return replace(so_far, fetched=so_far.fetched + 1)
    return so_far


def is_failure(line: str) -> bool:
    """Whether a line of Ivy's output says why a download failed."""
    return bool(
        re.search(
            r"not found|FAILED|SERVER ERROR|unresolved|Exception|Error\b|error:|timed out", line
        )
    )


def _fetch_failed(jar_set: JarSet, why: str, root: Path) -> ConfigError:
    return ConfigError(
        f"Could not fetch {' and '.join(jar_set.packages)}: {why}",
        hint=(
            "Check the network (proxy, registry) and run the command again; incomplete downloads "
            f"are not kept. See the log {root / (jar_set.name + '.log')}"
        ),
    )


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _write_manifest(folder: Path, jar_set: JarSet) -> None:
    jars = [
        {"name": jar.name, "size": jar.stat().st_size, "sha256": _sha256(jar)}
        for jar in sorted(folder.glob("*.jar"))
    ]
    manifest = {"v": 1, "packages": list(jar_set.packages), "jars": jars}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))


def _is_required(jar: Path, jar_set: JarSet) -> bool:
    return any(_is(jar, name) for name in jar_set.required)


def _is(jar: Path, artifact: str) -> bool:
    """Whether a jar is Ivy's `group_artifact-version.jar` of the artifact."""
    return re.search(rf"_{re.escape(artifact)}-\d[^/]*\.jar$", jar.name) is not None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
