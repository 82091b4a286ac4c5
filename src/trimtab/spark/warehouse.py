"""The warehouse: Parquet tables in one folder, on any storage that Spark can write to.

Tables are partitioned by `date` and `run`; writing a run again replaces it, so repeating a run
after a crash is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructType

from trimtab.spark.schemas import TABLES, fitting
from trimtab.spark.session import storage_path

_TIME_OF = {
    **dict.fromkeys(("partition_rates", "hot_keys", "outcomes"), "window_start"),
    "receipts": "finished_ts",
    "violations": None,  # partitioned by the day of detection
}


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The folder of the tables."""

    root: str

    def path(self, table: str) -> str:
        """A table's folder."""
        return f"{storage_path(self.root).rstrip('/')}/{table}"

    def write(self, frame: DataFrame, table: str, *, run: str) -> None:
        """Writes the rows of one run, replacing what the run wrote before."""
        time = _TIME_OF.get(table, "ts")
        now = F.current_timestamp()
        moment = now if time is None else F.coalesce(F.col(time), now)
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

    def forget(self, session: SparkSession, table: str, *, run: str) -> None:
        """Removes all rows of one run, of any date."""
        jvm: Any = session.sparkContext._jvm
        catalog = jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
        folder = Folder(self.path(table))
        for day in folder.names(session):
            folder.delete(session, f"{day}/run={catalog.escapePathName(run)}")

    def read(self, session: SparkSession, table: str) -> DataFrame:
        """The whole table, with `date` and `run`; empty if nothing has been written."""
        from pyspark.errors import AnalysisException

        try:
            return session.read.parquet(self.path(table))
        except AnalysisException:
            empty = session.createDataFrame([], TABLES[table])
            return empty.withColumns({"date": F.lit(""), "run": F.lit("")})


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of small files on any storage that Spark can read and write."""

    root: str

    def path(self, name: str) -> str:
        """The path of an entry."""
        return f"{self.root}/{name}"

    def write(self, frame: DataFrame, name: str) -> None:
        """Writes rows as one file, replacing an existing entry."""
        frame.coalesce(1).write.mode("overwrite").parquet(self.path(name))

    def rows(self, session: SparkSession, schema: StructType) -> list[Row]:
        """All rows of all entries."""
        names = self.names(session)
        if not names:
            return []
        return session.read.schema(schema).parquet(*(self.path(name) for name in names)).collect()

    def names(self, session: SparkSession, below: str = "") -> list[str]:
        """Names in this folder or in a subfolder; empty if it does not exist."""
        place, storage = _storage(session, self.path(below) if below else self.root)
        if not storage.exists(place):
            return []
        found = (status.getPath().getName() for status in storage.listStatus(place))
        return sorted(name for name in found if not name.startswith((".", "_")))

    def mark(self, session: SparkSession, name: str) -> None:
        """Writes an empty file of this name and removes all others."""
        place, storage = _storage(session, self.path(name))
        storage.mkdirs(place.getParent())
        storage.create(place, True).close()
        for other in self.names(session):
            if other != name:
                self.delete(session, other)

    def delete(self, session: SparkSession, name: str) -> None:
        """Removes an entry; does nothing if it does not exist."""
        place, storage = _storage(session, self.path(name))
        storage.delete(place, True)


def _storage(session: SparkSession, path: str) -> tuple[Any, Any]:
    """A path and its file system as Hadoop objects; works for any storage."""
    jvm: Any = session.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place, place.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
