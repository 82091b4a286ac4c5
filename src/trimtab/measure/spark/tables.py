"""The warehouse: Parquet tables under one folder, on any storage that Spark writes.

Tables are partitioned by `date` and `run`; writing a run again replaces it, so a repeat after a
crash changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.measure.spark.schemas import TABLES, fitting
from trimtab.measure.spark.session import storage_path

_TIME_OF = {"partition_rates": "window_start", "hot_keys": "window_start"}


@dataclass(frozen=True, slots=True)
class Warehouse:
    """Where tables are kept."""

    root: str

    def path(self, table: str) -> str:
        """A table's folder."""
        return f"{storage_path(self.root).rstrip('/')}/{table}"

    def write(self, frame: DataFrame, table: str, *, run: str) -> None:
        """Writes what one run found, in place of what it wrote before."""
        moment = F.coalesce(F.col(_TIME_OF.get(table, "ts")), F.current_timestamp())
        dated = fitting(frame, table, source=f"result {table}").withColumns(
            {"date": F.date_format(moment, "yyyy-MM-dd"), "run": F.lit(run)}
        )
        (
            dated.coalesce(1)
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy("date", "run")
            .parquet(self.path(table))
        )

    def read(self, session: SparkSession, table: str) -> DataFrame:
        """The whole table, with `date` and `run`; empty when nothing was written yet."""
        from pyspark.errors import AnalysisException

        try:
            return session.read.parquet(self.path(table))
        except AnalysisException:
            empty = session.createDataFrame([], TABLES[table])
            return empty.withColumns({"date": F.lit(""), "run": F.lit("")})


def delete_folder(session: SparkSession, path: str) -> None:
    """Deletes a folder on whatever storage it lies; harmless when it is gone."""
    jvm = session.sparkContext._jvm
    if jvm is not None:
        place = jvm.org.apache.hadoop.fs.Path(path)
        place.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).delete(
            place, True
        )
