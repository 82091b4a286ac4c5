"""Text is printed as it is, however long; results go where -o says."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.cli.output import PIPE_CLOSED, result, say, warn, write_file

LONG = "127.0.0.1:20001,[red]" + ",".join(f"/a/long/path/{n}" for n in range(20))


def test_no_line_of_talk_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    say(LONG)
    warn([LONG])

    assert capsys.readouterr().err == f"{LONG}\nwarning: {LONG}\n"


def test_a_line_of_text_among_the_results_is_not_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    result(LONG)

    assert capsys.readouterr().out == f"{LONG}\n"


def test_an_output_that_is_thrown_away_leaves_the_device_as_it_is() -> None:
    write_file(Path("/dev/null"), "{}\n")

    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def _trimtab(folder: Path, *words: str, stdout: int) -> subprocess.CompletedProcess[str]:
    loads = folder / "loads.json"
    loads.write_text('{"v":1,"capacity":100,"steps":[{"loads":{"orders":{"0":60,"1":55}}}]}')
    return subprocess.run(
        [sys.executable, "-m", "trimtab.cli.main", *words, "--loads", str(loads)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_is_gone_is_no_fault_and_no_finding(tmp_path: Path, form: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = _trimtab(tmp_path, "plan", "consumers", *form, stdout=write)
    os.close(write)

    assert ended.returncode == PIPE_CLOSED
    assert "rror" not in ended.stderr


@pytest.mark.parametrize("form", [[], ["--json"], ["-o", "/dev/full"]])
def test_a_full_disk_is_named(tmp_path: Path, form: list[str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    ended = _trimtab(tmp_path, "plan", "consumers", *form, stdout=full)
    os.close(full)

    assert ended.returncode == 2
    where = "/dev/full" if "-o" in form else "stdout"
    assert f"error: {where}: cannot be written: No space left on device." in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_reader_of_the_talk_that_is_gone_is_no_finding(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "trimtab.cli.main", "apply", str(tmp_path / "missing")],
        stdout=subprocess.DEVNULL,
        stderr=write,
        check=False,
    )
    os.close(write)
    assert ended.returncode == PIPE_CLOSED
