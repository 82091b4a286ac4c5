"""Options of the verbs that run on Spark, and the Spark session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.output import say, talk
from trimtab.errors import ConfigError
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab.spark.session import Session, SparkOptions

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


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Where and how Spark runs."""

    master: Master = None
    conf: Conf = None
    properties_file: PropertiesFile = None

    def check(self, settings: Settings) -> None:
        """Rejects a Spark master that cannot be reached."""
        _check_master(
            settings, master=self.master, conf=self.conf, properties_file=self.properties_file
        )

    def start(self, settings: Settings, *, kafka: bool = True, verbose: bool = False) -> Session:
        """Starts Spark with these options and the settings."""
        return spark_session(
            settings,
            master=self.master,
            conf=self.conf,
            properties_file=self.properties_file,
            kafka=kafka,
            verbose=verbose,
        )


def spark_session(
    settings: Settings,
    *,
    master: str | None = None,
    conf: list[str] | None = None,
    properties_file: Path | None = None,
    kafka: bool = True,
    verbose: bool = False,
    packages: tuple[str, ...] = ("trimtab",),
) -> Session:
    """Starts Spark with these options and the settings; jars come from the cache."""
    from trimtab.local.jars import connector_jars
    from trimtab.local.java import find_java

    _check_master(settings, master=master, conf=conf, properties_file=properties_file)
    find_java()  # a missing file gets a better message than Spark's
    options = replace(
        _options(settings, master=master, conf=conf, properties_file=properties_file),
        jars=connector_jars(cache=settings.cache) if kafka else (),
        verbose=verbose,
        packages=packages,
    )
    from trimtab.spark.session import build

    if not talk.is_terminal:
        say("starting Spark …")
        return build(options)
    with talk.status("starting Spark …"):
        return build(options)


def _check_master(
    settings: Settings, *, master: str | None, conf: list[str] | None, properties_file: Path | None
) -> None:
    """Rejects a Spark master that cannot be reached; Spark itself would retry for a minute."""
    from trimtab.spark.session import check_master

    check_master(_options(settings, master=master, conf=conf, properties_file=properties_file))


def _options(
    settings: Settings, *, master: str | None, conf: list[str] | None, properties_file: Path | None
) -> SparkOptions:
    from trimtab.spark.session import SparkOptions

    given = {}
    for pair in conf or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--conf takes NAME=VALUE, not {pair!r}.")
        given[name] = value
    # A default value must not override a properties file.
    chosen = settings.spark.master if "master" in settings.spark.model_fields_set else None
    return SparkOptions(
        master=master or chosen,
        conf=settings.spark.conf | given,
        properties_file=properties_file or settings.spark.properties_file,
        driver_memory=settings.spark.driver_memory,
        log=settings.home / "logs" / "spark.log",
    )
