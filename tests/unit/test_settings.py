"""Flag > environment > trimtab.toml > default; what is wrong is named."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from trimtab.errors import ConfigError
from trimtab.model.timeouts import Timeouts
from trimtab.settings import load_settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and nothing of ours in the environment."""
    for name in list(os.environ):
        if name.startswith("TRIMTAB_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [load_settings().topic_prefix]
    (folder / "trimtab.toml").write_text('topic_prefix = "file."\n')
    seen.append(load_settings().topic_prefix)
    monkeypatch.setenv("TRIMTAB_TOPIC_PREFIX", "environment.")
    seen.append(load_settings().topic_prefix)
    seen.append(load_settings(topic_prefix="flag.").topic_prefix)

    assert seen == ["trimtab.", "file.", "environment.", "flag."]


def test_a_nested_setting_comes_from_a_table_and_from_two_underscores(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "trimtab.toml").write_text('[spark]\nmaster = "local[1]"\ndriver_memory = "2g"\n')
    monkeypatch.setenv("TRIMTAB_SPARK__MASTER", "spark://m:7077")

    settings = load_settings()

    assert (settings.spark.master, settings.spark.driver_memory) == ("spark://m:7077", "2g")


def test_a_flag_that_was_not_given_does_not_hide_the_file(folder: Path) -> None:
    (folder / "trimtab.toml").write_text('bootstrap_server = "kafka:9092"\n')

    assert load_settings(bootstrap_server=None).bootstrap_server == "kafka:9092"


def test_another_file_can_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "other.toml").write_text("[measure]\nwindow_s = 5\n")
    monkeypatch.setenv("TRIMTAB_CONFIG", str(folder / "other.toml"))

    assert load_settings().measure.window_s == 5


def test_a_named_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_CONFIG", "nowhere.toml")

    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bootstrap_sever = 'x'\n", "bootstrap_sever"),
        ("[spark]\nmasterr = 'x'\n", r"spark\.masterr"),
        ("[measure]\nwindow_s = 0\n", r"measure\.window_s"),
        ("[measure]\nwindow_s = 'soon'\n", r"measure\.window_s"),
        ("[measure\n", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_and_the_place_named(folder: Path, text: str, said: str) -> None:
    (folder / "trimtab.toml").write_text(text)

    with pytest.raises(ConfigError, match=said) as refused:
        load_settings()

    assert refused.value.exit_code == 2


def test_a_wrong_value_is_not_repeated_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_MEASURE__PERIOD_S", "hunter2")

    with pytest.raises(ConfigError) as refused:
        load_settings()

    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    assert "TRIMTAB_MEASURE__PERIOD_S" in str(refused.value.hint)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    default = load_settings()
    for name in ("HOME", "CACHE", "CONFIG", "MEASURE__WINDOW_S"):
        monkeypatch.setenv(f"TRIMTAB_{name}", "")

    assert load_settings() == default


def test_the_users_folder_may_be_written_as_a_tilde(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TRIMTAB_HOME", "~/home")
    (folder / "trimtab.toml").write_text("cache = '~/cache'\ncommand_config = '~/c.properties'\n")

    settings = load_settings()

    assert (settings.home, settings.cache) == (folder / "home", folder / "cache")
    assert settings.command_config == folder / "c.properties"


def test_the_folder_of_a_user_who_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="home"):
        load_settings(home="~no-such-user/x")


def test_everything_kept_lies_under_home(folder: Path) -> None:
    settings = load_settings(home=folder / "home")

    kept = (settings.warehouse, settings.checkpoints, settings.reports)
    assert all(path.parent == folder / "home" for path in kept)


@pytest.mark.parametrize("number", ["inf", "nan", "-inf"])
def test_a_number_that_is_not_finite_is_refused(folder: Path, number: str) -> None:
    for setting in ("[measure]\nwindow_s", "[measure]\nmin_span_s", "[keys]\nepsilon"):
        (folder / "trimtab.toml").write_text(f"{setting} = {number}\n")
        with pytest.raises(ConfigError, match=r"Setting (measure|keys)"):
            load_settings()


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "trimtab.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"trimtab\.toml cannot be read"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("period_s", '"500ms"', 0.5),
        ("window_s", '"2m"', 120.0),
        ("window_s", '" 45s "', 45.0),
        ("window_s", '"45"', 45.0),
        ("window_s", "45", 45.0),
        ("trigger_ms", '"1s"', 1000),
        ("trigger_ms", '"250ms"', 250),
        ("trigger_ms", "250", 250),
    ],
)
def test_times_may_carry_their_unit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: str, expected: float
) -> None:
    (folder / "trimtab.toml").write_text(f"[measure]\n{name} = {given}\n")
    assert getattr(load_settings().measure, name) == expected

    (folder / "trimtab.toml").unlink()
    monkeypatch.setenv(f"TRIMTAB_MEASURE__{name.upper()}", given.strip('"'))
    assert getattr(load_settings().measure, name) == expected


@pytest.mark.parametrize("given", ['"soon"', '"0s"', '"-1s"', '"nan"', '"1 fortnight"'])
def test_a_time_that_cannot_be_is_refused(folder: Path, given: str) -> None:
    (folder / "trimtab.toml").write_text(f"[measure]\nwindow_s = {given}\n")

    with pytest.raises(ConfigError, match=r"measure\.window_s"):
        load_settings()


def test_time_outs_are_settings_with_the_defaults_of_a_cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings().timeouts.value == Timeouts()

    (folder / "trimtab.toml").write_text("[timeouts]\nvisible_s = '1m'\nrequest_s = 40\n")
    monkeypatch.setenv("TRIMTAB_TIMEOUTS__REQUEST_S", "90")

    assert load_settings().timeouts.value == Timeouts(request_s=90.0, visible_s=60.0)


@pytest.mark.parametrize("wrong", ["0", "-1", "inf", "nan", "301", "10000", "soon"])
@pytest.mark.parametrize("name", [field.name for field in fields(Timeouts)])
def test_a_wrong_time_out_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: str
) -> None:
    variable = f"TRIMTAB_TIMEOUTS__{name.upper()}"
    monkeypatch.setenv(variable, wrong)

    with pytest.raises(ConfigError, match=rf"Setting timeouts\.{name}: ") as refused:
        load_settings()

    assert variable in str(refused.value.hint)


def test_the_error_of_a_bad_setting_names_it_in_plain_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRIMTAB_TIMEOUTS__REQUEST_S", "soon")

    with pytest.raises(ConfigError) as caught:
        load_settings()

    assert caught.value.message.startswith("Setting timeouts.request_s: invalid duration 'soon'")
