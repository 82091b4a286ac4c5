"""A description of the machine on which benchmarks ran; it does not identify the machine."""

from __future__ import annotations

import os
import platform

from trimtab.local.jars import KAFKA, SPARK


def machine(java: str | None) -> str:
    """Cores, memory and versions; those of Java, Spark and Kafka only if `java` is given."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}; "
        f"Python {platform.python_version()}"
        + (f", Java {java}, Spark {SPARK}, Kafka {KAFKA}" if java else "")
    )
