"""Which Java Spark runs on."""

from __future__ import annotations

from pyspark.sql import SparkSession


def java_version(session: SparkSession) -> str:
    """The version as Java gives it."""
    jvm = session.sparkContext._jvm
    return str(jvm.java.lang.System.getProperty("java.version")) if jvm else "unknown"
