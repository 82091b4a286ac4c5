"""Finds Java for brokers and Spark; if there is none, says how to install it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from trimtab.errors import ConfigError
from trimtab.settings import java_home

OLDEST_JAVA = 17
"""The oldest version that Kafka 4 brokers and Spark 4 support."""

_INSTALL = (
    f"Install Java {OLDEST_JAVA} or newer and put it on the PATH. "
    f"Debian, Ubuntu: apt-get install openjdk-{OLDEST_JAVA}-jre-headless. "
    f"macOS: brew install openjdk@{OLDEST_JAVA}."
)


def find_java() -> Path:
    """Returns `java` from JAVA_HOME, else from the PATH; raises ConfigError if unusable."""
    home = java_home()
    found = shutil.which("java") if home is None else shutil.which("java", path=str(home / "bin"))
    if found is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME ({home})"
        raise ConfigError(f"There is no Java {where}.", hint=_INSTALL)
    ran = subprocess.run(
        [found, "-version"], capture_output=True, text=True, check=False, timeout=60
    )
    output = ran.stderr + ran.stdout
    version = java_version(output)
    # macOS has a `java` that only prints where to download Java
    if ran.returncode != 0 or version is None:
        raise ConfigError(f"{found} does not run: {output.strip() or 'no output'}", hint=_INSTALL)
    if version < OLDEST_JAVA:
        raise ConfigError(
            f"{found} is Java {version}; Kafka and Spark need {OLDEST_JAVA} or newer.",
            hint=_INSTALL,
        )
    return Path(found)


def java_version(output: str) -> int | None:
    """Returns the major version in the output of `java -version`, None if there is none.

    >>> java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> java_version('java version "1.8.0_292"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None
