"""Sweeps on Spark: the same figures as here, and nothing is run twice."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from trimtab.cli.main import run
from trimtab.errors import MeasurementError
from trimtab_lab.cli import experiment_simulated as cli
from trimtab_lab.papers.grid import GridCell, run_here
from trimtab_lab.papers.landau import packing_runs
from trimtab_lab.papers.spark.sweep import sweep

CELLS = [
    GridCell(
        {
            "planner": planner,
            "delta": 10,
            "start": "uniform",
            "seed": seed,
            "partitions": 8,
            "iterations": 5,
        },
        "v1",
    )
    for planner in ("bfd", "mwf")
    for seed in (0, 1)
]


def _timeless(found):
    return {
        key: {name: value for name, value in done.figures.items() if name != "seconds"}
        for key, done in found.items()
    }


def test_a_sweep_finds_what_the_same_cells_find_here(spark: SparkSession, tmp_path: Path) -> None:
    heard: list[int] = []

    found = sweep(
        spark, CELLS, packing_runs.packed, into=str(tmp_path), per_task=2, on_cells=heard.append
    )

    assert _timeless(found) == _timeless(run_here(CELLS, packing_runs.packed))
    assert heard[0] == 0
    assert heard[-1] == len(CELLS)


def test_finished_cells_are_not_run_again_and_failed_ones_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    mended = tmp_path / "mended"
    ran.mkdir()

    def work(parameters):
        (ran / f"{parameters['n']}-{os.urandom(4).hex()}").touch()
        if parameters["n"] == 1 and not mended.exists():
            raise ValueError("not yet")
        return {"n": parameters["n"]}

    cells = [GridCell({"n": n}, "v1") for n in range(3)]
    into = str(tmp_path / "cells")
    first = sweep(spark, cells, work, into=into)
    mended.touch()
    second = sweep(spark, [*cells, GridCell({"n": 3}, "v1")], work, into=into)

    assert first[cells[1].key].error == "ValueError: not yet"
    assert [done.figures for done in second.values()] == [{"n": n} for n in range(4)]
    assert sorted(path.name[0] for path in ran.iterdir()) == ["0", "1", "1", "2", "3"]


def test_finished_cells_are_run_again_if_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    ran.mkdir()

    def work(parameters):
        (ran / os.urandom(4).hex()).touch()
        return {"n": parameters["n"]}

    cells, into = [GridCell({"n": 0}, "v1")], str(tmp_path / "cells")
    for again in (False, False, True):
        found = sweep(spark, cells, work, into=into, again=again)
        assert found[cells[0].key].figures == {"n": 0}

    assert len(list(ran.iterdir())) == 2


def test_another_version_of_the_code_is_another_cell(spark: SparkSession, tmp_path: Path) -> None:
    def work(version):
        return lambda _: {"version": version}

    for version in ("v1", "v2"):
        cells = [GridCell({"n": 0}, version)]
        found = sweep(spark, cells, work(version), into=str(tmp_path))
        assert found[cells[0].key].figures == {"version": version}


def test_what_an_interrupted_sweep_has_finished_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The last of three cells takes its task down, once the results of the others lie there."""
    ran, mended, into = tmp_path / "ran", tmp_path / "mended", tmp_path / "cells"
    ran.mkdir()

    def work(parameters):
        (ran / f"{parameters['n']}-{os.urandom(4).hex()}").touch()
        if parameters["n"] == 2 and not mended.exists():
            deadline = time.monotonic() + 180
            while len(list(into.glob("sweep=*/*.parquet"))) < 2 and time.monotonic() < deadline:
                pass
            raise SystemExit(1)
        return {"n": parameters["n"]}

    cells = [GridCell({"n": n}, "v1") for n in range(3)]
    with pytest.raises(MeasurementError, match="running a sweep"):
        sweep(spark, cells, work, into=str(into))
    mended.touch()
    found = sweep(spark, cells, work, into=str(into))

    assert [done.figures for done in found.values()] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert sorted(path.name[0] for path in ran.iterdir()) == ["0", "1", "2", "2"]


def test_an_experiment_is_run_kept_and_gone_on_with(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(cli, "spark_session", lambda *_, **__: spark)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    small = ["--iterations", "3", "--partitions", "6", "--seeds", "1", "--json"]
    asked = ["experiment", "landau", "--what", "headline", *small, "--into", str(tmp_path / "out")]

    codes, documents, cells = [], [], []
    for _ in range(2):
        codes.append(run(asked))
        documents.append(json.loads(capsys.readouterr().out))
        cells.append(len(list((tmp_path / "home").rglob("*.parquet"))))

    assert codes == [0, 0]
    assert documents[0] == documents[1]
    assert documents[0]["experiment"] == "landau"
    assert set(documents[0]["rows"][0]) == {
        *("what", "paper", "model", "bar", "ours", "tolerance", "verdict")
    }
    assert cells[0] == cells[1] > 0
    kept = json.loads((tmp_path / "out" / "results" / "landau.json").read_text(encoding="utf-8"))
    assert kept["parts"]["headline"]["rows"] == documents[0]["rows"]
    assert (tmp_path / "out" / "landau.md").exists()


def test_simulations_of_hot_keys_run_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(cli, "spark_session", lambda *_, **__: spark)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    asked = ["--what", "delays", "--seeds", "1", "--duration", "20s", "--json"]

    code = run(["experiment", "smalops", *asked, "--into", str(tmp_path / "out")])

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert code == 0
    assert {row["verdict"] for row in rows} == {"not comparable"}  # too short to be judged
    assert rows[0]["ours"] == pytest.approx(0.72, abs=0.1)
    assert (tmp_path / "out" / "plots" / "smalops-delays-curves.svg").exists()
