"""Options of the verbs that run on Spark, and the session they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.output import say, talk
from trimtab.errors import ConfigError
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab.measure.spark.session import Session
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark master. Default: the setting, local[*]."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="K=V", help="A Spark property; may be repeated."),
]
PropertiesFile = Annotated[
    Path | None,
    typer.Option("--properties-file", metavar="FILE", help="A file of Spark properties."),
]


def spark_session(
    settings: Settings,
    *,
    master: str | None = None,
    conf: list[str] | None = None,
    properties_file: Path | None = None,
    kafka: bool = True,
    verbose: bool = False,
) -> Session:
    """Starts Spark as flags and settings say; the connector's jars come from the cache."""
    from trimtab.testing.jars import connector_jars
    from trimtab.testing.java import find_java

    find_java()  # its absence has a better message than Spark's

    given = {}
    for pair in conf or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--conf takes NAME=VALUE, not {pair!r}.")
        given[name] = value
    jars = connector_jars(cache=settings.cache) if kafka else ()
    from trimtab.measure.spark.session import SparkOptions, build

    # A default is not a choice: it gives way to what a properties file says.
    chosen = settings.spark.master if "master" in settings.spark.model_fields_set else None
    options = SparkOptions(
        master=master or chosen,
        jars=jars,
        conf=settings.spark.conf | given,
        properties_file=properties_file or settings.spark.properties_file,
        driver_memory=settings.spark.driver_memory,
        log=settings.home / "logs" / "spark.log",
        verbose=verbose,
    )
    if not talk.is_terminal:
        say("starting Spark …")
        return build(options)
    with talk.status("starting Spark …"):
        return build(options)
