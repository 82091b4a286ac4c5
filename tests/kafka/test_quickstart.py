"""The quickstart, run as it is written: what it measures is what its load sent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs.test_tour import commands_of
from trimtab.settings import load_settings

PAGE = ROOT / "docs" / "quickstart.md"


def test_the_quickstart_measures_what_its_load_sent(tmp_path: Path) -> None:
    commands = commands_of(PAGE, after="## 2. ")
    assert commands[0] == "trimtab cluster up"
    assert commands[-1] == "trimtab cluster down"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    world = {**os.environ, "PATH": path, "TRIMTAB_HOME": str(tmp_path / "home")}
    world["TRIMTAB_CACHE"] = str(load_settings().cache)

    ran = subprocess.run(
        ["bash", "-eu", "-c", "trap 'trimtab cluster down' ERR\n" + "\n".join(commands)],
        cwd=tmp_path,
        env=world,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout
    acknowledged = re.search(r"acknowledged\s+([\d,. ]+\d)", ran.stdout)
    assert acknowledged, ran.stdout
    sent_s = float(re.sub(r"[, ]", "", acknowledged[1])) / 60
    assert sent_s == pytest.approx(500, rel=0.05)
    watched, recent, plan = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("measured", "recent", "plan")
    )
    for found, source in ((watched, "log_dirs"), (recent, "events")):
        measured_s = sum(p["records_s"] for p in found["partitions"])
        assert measured_s == pytest.approx(sent_s, rel=0.05), (source, ran.stdout)
        assert [p["source"] for p in found["partitions"]] == [source] * 8
        assert found["keys"]
    assert not any(p["complete"] for p in recent["partitions"])  # a topic younger than the span
    assert plan["after"]["max_load"] > 0
    imbalance = re.search(r"imbalance\s+([\d.]+) → ([\d.]+)", ran.stdout)
    assert imbalance, ran.stdout
    assert float(imbalance[2]) < float(imbalance[1])
    assert "not over the requested 600 s" in ran.stdout
    assert "all loads are 0" not in ran.stdout
