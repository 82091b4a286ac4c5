"""A class-data archive of a broker's classes, so that its JVM starts faster.

Why      Half of the time and CPU of a broker's start goes into loading classes.
Promise  It only affects speed: without an archive, or with one that does not match, the JVM reads
         the jars. It is built in a temporary folder and renamed, once per Java and class path.
Cost     About 12 s and 50 MB once; afterwards a node starts in about half the time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from trimtab.local.ports import HOST, free_ports, is_free
from trimtab.local.processes import ProcessState, end, process_state, spawn
from trimtab.observe.clock import TimedOut, wait_until

_PATIENCE_S = 60.0


def class_archive(
    java: Path, jars: Sequence[Path], *, folder: Path, say: Callable[[str], None]
) -> Path | None:
    """Returns the archive for this Java and class path, built if necessary; None on failure."""
    key = "\n".join(f"{file} {file.stat().st_mtime_ns}" for file in (java.resolve(), *jars))
    archive = folder / f"classes-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsa"
    failed = archive.with_suffix(".failed")
    if archive.exists() or failed.exists():
        return archive if archive.exists() else None
    folder.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            say("Building the class-data archive of the brokers (once).")
            work = archive.with_suffix(".making")
            shutil.rmtree(work, ignore_errors=True)  # left by an interrupted build
            work.mkdir()
            try:
                _make(java, jars, work=work, archive=archive)
                if not archive.exists():
                    failed.touch()  # do not try again with a JVM that does not support it
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return archive if archive.exists() else None


def class_path(jars: Sequence[Path]) -> str:
    """Returns the jars in the form of Java's `-cp` option."""
    return os.pathsep.join(map(str, jars))


def _make(java: Path, jars: Sequence[Path], *, work: Path, archive: Path) -> None:
    """Runs a combined broker and controller; the JVM writes the archive when it exits."""
    port, quorum_port = free_ports(2)
    listeners = f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{quorum_port}"
    settings = work / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"listeners={listeners}\nadvertised.listeners={listeners}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers={HOST}:{quorum_port}\n"
        f"log.dirs={work / 'data'}\n"
    )
    plain = [str(java), "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    storage_tool = [
        *(*plain, "-cp", class_path(jars), "kafka.tools.StorageTool", "format"),
        *("-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings), "--standalone"),
    ]
    if subprocess.run(storage_tool, capture_output=True, check=False).returncode != 0:
        return
    made = work / "made.jsa"
    node = spawn(
        [
            *(*plain, f"-XX:ArchiveClassesAtExit={made}"),
            *("-cp", class_path(jars), "kafka.Kafka", str(settings)),
        ],
        folder=work,
        log=work / "log",
    )
    try:
        wait_until(
            lambda: not is_free(port) or process_state(node) is not ProcessState.RUNNING,
            within_s=_PATIENCE_S,
        )
        end([node], patience_s=_PATIENCE_S)
    except TimedOut:
        return
    finally:
        end([node], patience_s=0)
    if made.exists():
        made.rename(archive)
