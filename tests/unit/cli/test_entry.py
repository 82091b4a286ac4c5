"""Ctrl-C in the first second, while Python still loads modules."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests import ROOT

INTERRUPTED = """
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "trimtab.cli.load":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from trimtab.cli.entry import main
main()
"""


def test_ctrl_c_while_modules_are_loaded_is_an_interrupt_without_a_traceback() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_the_command_begins_there() -> None:
    project = ROOT / "pyproject.toml"
    scripts = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"trimtab": "trimtab.cli.entry:main"}

    out = subprocess.run(
        [sys.executable, "-c", "from trimtab.cli.entry import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.startswith("trimtab ")
