"""`trimtab simulate key-protocol`, from options to what is printed."""

from __future__ import annotations

import json

import pytest

from trimtab.cli.main import run


@pytest.fixture
def key_protocol(capsys):
    """Runs the verb; returns exit code, stdout, stderr."""

    def call(*options: str) -> tuple[int, str, str]:
        code = run(["simulate", "key-protocol", *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_a_small_world_is_explored(key_protocol):
    code, out, _ = key_protocol("--records", "1", "--migrations", "1")

    assert code == 0
    assert out.startswith("Explored completely: ")
    assert out.endswith("No fault was found.\n")


def test_the_result_as_json(key_protocol):
    options = ("--records", "1", "--migrations", "1", "--mode", "low-latency", "--limit", "100")
    code, out, _ = key_protocol(*options, "--json")

    found = json.loads(out)
    assert code == 0
    assert found["scenario"]["mode"] == "low_latency"
    assert (found["complete"], found["fault"]) == (False, None)
    assert 100 <= found["states"] < 120


def test_a_broken_variant_is_told_step_by_step(key_protocol):
    code, out, err = key_protocol("--variant", "queue-overtaken")

    assert code == 1
    assert "a record was applied before an earlier one (V1)" in out
    assert " 13. The task of partition 1 reads record 2 of key 0" in out
    assert "The protocol has a fault in this scenario." in err


def test_a_fault_as_json(key_protocol):
    code, out, _ = key_protocol("--variant", "queue-overtaken", "--json")

    fault = json.loads(out)["fault"]
    assert code == 1
    assert (fault["kind"], fault["steps"]) == ("gap", 13)
    assert fault["story"][2].startswith("  1. Gateway 1 starts")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--mode", "fast"), "--mode takes exactly-once or low-latency, not 'fast'."),
        (("--tasks", "big"), "--tasks takes atomic, batched, simple, not 'big'."),
        (("--task-crashes", "1"), "--task-crashes and --task-freezes need --tasks batched"),
        (("--partitions", "1"), "A key can move only between at least two partitions."),
        (("--variant", "x"), "There is no variant 'x'."),
    ],
)
def test_what_cannot_be_explored_is_refused(key_protocol, options, says):
    code, _, err = key_protocol(*options)

    assert code == 2
    assert says in " ".join(err.split())
