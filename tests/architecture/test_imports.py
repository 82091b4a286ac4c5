"""The import contracts hold, and `import trimtab` loads no heavy library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

HEAVY = {
    *("confluent_kafka", "grpc", "kafka", "kubernetes"),
    *("matplotlib", "pandas", "py4j", "pyarrow", "pyspark"),
}


def test_the_import_contracts_hold() -> None:
    # The tool keeps its graph in globals, so it has a process of its own.
    found = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "program",
    [
        "import trimtab",
        "from trimtab import ClientProperties, LiveWeights, plan_consumers, write_plan",
        "import trimtab.cli.main",
        "from trimtab.cli.main import run; run(['--help'])",
        "from trimtab.cli.main import run; run(['plan', 'consumers', '--help'])",
    ],
)
def test_neither_spark_nor_a_kafka_client_is_loaded_by(program: str) -> None:
    tell = f"{program}\nimport sys, json; json.dump(sorted(sys.modules), sys.stderr)"

    found = subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, check=True, cwd=ROOT
    )

    loaded = {name.partition(".")[0] for name in json.loads(found.stderr)}
    assert "trimtab" in loaded
    assert not loaded & HEAVY


def test_a_loaded_client_would_be_noticed() -> None:
    tell = "import kafka, sys, json; json.dump(sorted(sys.modules), sys.stderr)"

    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", tell], capture_output=True, text=True, check=True
    )

    assert "kafka" in HEAVY & {name.partition(".")[0] for name in json.loads(found.stderr)}
