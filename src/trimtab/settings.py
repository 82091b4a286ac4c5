"""Settings, read once: flag > environment (`TRIMTAB_…`) > `trimtab.toml` > default.

Nested settings take `__` in the environment (`TRIMTAB_SPARK__MASTER`) and a table in the file
(`[spark]` `master = …`). Inner code receives values, never this module.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

from platformdirs import user_cache_path, user_data_path
from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from trimtab.errors import ConfigError
from trimtab.model.durations import duration_s
from trimtab.model.rates_place import ON_EXECUTORS_FROM, RatesPlace
from trimtab.model.timeouts import LONGEST_S, Timeouts

FILE = "trimtab.toml"


def _seconds(value: object) -> object:
    """Converts text with a unit, such as 500ms, to seconds; returns anything else unchanged."""
    has_unit = isinstance(value, str) and value.strip()[-1:].isalpha()
    return duration_s(value) if has_unit and isinstance(value, str) else value


def _milliseconds(value: object) -> object:
    found = _seconds(value)
    return found if found is value or not isinstance(found, float) else round(found * 1000, 6)


Seconds = Annotated[float, BeforeValidator(_seconds)]
Milliseconds = Annotated[int, BeforeValidator(_milliseconds)]


class SparkSettings(BaseModel, extra="forbid"):
    """Where and how Spark runs."""

    master: str = Field(default="local[*]", description="Spark master, as spark-submit takes it")
    conf: dict[str, str] = Field(default_factory=dict, description="further Spark properties")
    properties_file: Path | None = Field(
        default=None, description="a spark-defaults.conf to read first"
    )
    driver_memory: str = Field(default="1g", description="heap of the driver in local mode")


class MeasureSettings(BaseModel, extra="forbid", allow_inf_nan=False):
    """How rates are measured."""

    period_s: Seconds = Field(
        default=1.0, gt=0, description="seconds between two samples of the monitor"
    )
    window_s: Seconds = Field(
        default=30.0, gt=0, description="seconds of samples that a rate is computed from"
    )
    min_span_s: Seconds = Field(
        default=3.0, ge=0, description="no rate is computed from a shorter span"
    )
    trigger_ms: Milliseconds = Field(
        default=200, gt=0, description="trigger interval of the continuous rates query"
    )
    rates_on: RatesPlace = Field(
        default=RatesPlace.AUTO,
        description="where continuous rates are computed: driver, executors, or auto, "
        f"which takes executors from {ON_EXECUTORS_FROM} partitions on",
    )
    stale_after_s: Seconds = Field(
        default=10.0, gt=0, description="older rates are reported as stale"
    )
    outcome_window_s: Seconds = Field(
        default=10.0, gt=0, description="window length of the continuous outcomes, in seconds"
    )


class KeySettings(BaseModel, extra="forbid", allow_inf_nan=False):
    """How hot keys are found."""

    window_s: Seconds = Field(
        default=10.0, gt=0, description="length of a counting window, in seconds"
    )
    threshold: str = Field(
        default="share:0.001", description="count:N records, share:F of all, or coverage:F of all"
    )
    epsilon: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="error bound of the lossy counter; default threshold / 10",
    )


class ControllerSettings(BaseModel, extra="forbid"):
    """How the controller and its consumers authenticate each other in group mode."""

    token: SecretStr | None = Field(
        default=None,
        description="in group mode: the secret that consumers send to the controller",
    )
    token_file: Path | None = Field(default=None, description="file that contains the token")

    @field_validator("token_file")
    @classmethod
    def _in_the_users_folder(cls, path: Path | None) -> Path | None:
        return _expanded(path)


_TIMEOUTS = Timeouts()


class TimeoutSettings(BaseModel, extra="forbid", allow_inf_nan=False):
    """How long to wait for brokers."""

    connect_s: Seconds = Field(
        default=_TIMEOUTS.connect_s,
        gt=0,
        le=LONGEST_S,
        description="seconds until an admin client is connected",
    )
    request_s: Seconds = Field(
        default=_TIMEOUTS.request_s,
        gt=0,
        le=LONGEST_S,
        description="seconds until a request that is sent once is answered",
    )
    attempt_s: Seconds = Field(
        default=_TIMEOUTS.attempt_s,
        gt=0,
        le=LONGEST_S,
        description="seconds until a request is repeated, or sent to another broker; "
        "a stop may wait for it",
    )
    delivery_s: Seconds = Field(
        default=_TIMEOUTS.delivery_s,
        gt=0,
        le=LONGEST_S,
        description="seconds until a record that is not acknowledged counts as failed",
    )
    transaction_s: Seconds = Field(
        default=_TIMEOUTS.transaction_s,
        gt=0,
        le=LONGEST_S,
        description="seconds until a transaction of the controller is committed",
    )
    visible_s: Seconds = Field(
        default=_TIMEOUTS.visible_s,
        gt=0,
        le=LONGEST_S,
        description="seconds until all brokers know a change, such as a new topic",
    )
    close_s: Seconds = Field(
        default=_TIMEOUTS.close_s,
        gt=0,
        le=LONGEST_S,
        description="seconds for the last records or commits of a client that is closed",
    )

    @property
    def value(self) -> Timeouts:
        """The time-outs as clients take them."""
        return Timeouts(**self.model_dump())


class Settings(BaseSettings):
    """Everything a user can set."""

    model_config = SettingsConfigDict(
        env_prefix="TRIMTAB_",
        env_nested_delimiter="__",
        env_ignore_empty=True,  # an empty TRIMTAB_HOME must not mean the working folder
        extra="forbid",
    )

    bootstrap_server: str | None = Field(default=None, description="bootstrap servers: host:port,…")
    command_config: Path | None = Field(default=None, description="file of Kafka client properties")
    topic_prefix: str = Field(default="trimtab.", description="prefix of the topics Trimtab owns")
    home: Path = Field(
        default_factory=lambda: user_data_path("trimtab"),
        description="clusters, warehouse, checkpoints, reports",
    )
    cache: Path = Field(
        default_factory=lambda: user_cache_path("trimtab"), description="jars, keyed by version"
    )
    spark: SparkSettings = SparkSettings()
    measure: MeasureSettings = MeasureSettings()
    keys: KeySettings = KeySettings()
    controller: ControllerSettings = ControllerSettings()
    timeouts: TimeoutSettings = TimeoutSettings()

    @field_validator("home", "cache", "command_config")
    @classmethod
    def _in_the_users_folder(cls, path: Path | None) -> Path | None:
        return _expanded(path)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ranks the file below the environment; no other source is read."""
        del dotenv_settings, file_secret_settings
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, _file()))

    @property
    def warehouse(self) -> Path:
        """Folder of the tables."""
        return self.home / "warehouse"

    @property
    def checkpoints(self) -> Path:
        """Folder of the streaming queries' checkpoints."""
        return self.home / "checkpoints"

    @property
    def reports(self) -> Path:
        """Folder of the HTML reports."""
        return self.home / "reports"


def _expanded(path: Path | None) -> Path | None:
    """Expands `~` as the shell does."""
    try:
        return None if path is None else path.expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _file() -> Path:
    """The settings file: `TRIMTAB_CONFIG`, else `trimtab.toml` in the working folder."""
    return Path(os.environ.get("TRIMTAB_CONFIG") or FILE)


def load_settings(**flags: Any) -> Settings:
    """Reads all sources; a flag with the value None counts as not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    if os.environ.get("TRIMTAB_CONFIG") and not _file().is_file():
        raise ConfigError(
            f"TRIMTAB_CONFIG names {_file()}, which does not exist.",
            hint="Correct the path, or unset the variable.",
        )
    try:
        return Settings(**given)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{_file()} is not valid TOML: {error}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{_file()} cannot be read: {error}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        variable = f"TRIMTAB_{place.upper().replace('.', '__')}"
        raise ConfigError(
            f"Setting {place}: {first['msg'].removeprefix('Value error, ')}.",
            hint=f"Check the option, the variable {variable} and the file {_file()}.",
        ) from error


def pod_name() -> str | None:
    """The name of this process's pod: `POD_NAME`, else the host name if it runs in a pod."""
    in_a_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    return os.environ.get("POD_NAME") or (os.environ.get("HOSTNAME") if in_a_pod else None) or None


def java_home() -> Path | None:
    """The value of `JAVA_HOME`; Spark looks there first, so all of Trimtab does."""
    named = os.environ.get("JAVA_HOME")
    return Path(named) if named else None
