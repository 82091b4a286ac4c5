"""Files appear whole; what is no plain file is written into, never replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.errors import BadFile
from trimtab.model.files import replacing, write_atomically

TO_STDOUT = (
    "from pathlib import Path; from trimtab.model.files import write_atomically; "
    "write_atomically(Path('/dev/stdout'), 'written\\n'); print('said')"
)


def test_a_file_is_written_where_its_folder_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.json"

    write_atomically(path, "é\n")

    assert path.read_bytes() == "é\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_an_old_file_stays_as_it_was_when_the_new_one_breaks_off(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def break_off() -> None:
        with replacing(path) as out:
            out.write(b"ne")
            assert path.read_text() == "old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    if there:
        target.write_text("old")
    link.symlink_to(target)

    write_atomically(link, "new")

    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    link = tmp_path / "nothing"
    link.symlink_to("/dev/null")

    write_atomically(link, "gone")

    assert link.is_symlink()
    assert stat.S_ISCHR(link.stat().st_mode)


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_is_written_into_wherever_it_goes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")

    with log.open("a") as out:
        subprocess.run([sys.executable, "-c", TO_STDOUT], stdout=out, check=True)
    piped = subprocess.run(
        [sys.executable, "-c", TO_STDOUT], capture_output=True, text=True, check=True
    )

    assert log.read_text() == "before\nwritten\nsaid\n"
    assert piped.stdout == "written\nsaid\n"


@pytest.mark.parametrize("name", ["file/plan.json", "."])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BadFile, match="cannot be written"):
        write_atomically(tmp_path / name, "x")
