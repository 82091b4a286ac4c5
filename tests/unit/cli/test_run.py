"""What `trimtab run` refuses before it starts anything."""

from __future__ import annotations

import shlex

import pytest

from trimtab.cli import main


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--backend kubernetes --execute", "--workload is required"),
        ("--backend kubernetes --workload pod/x --execute", "Invalid workload"),
        ("--backend kubernetes --workload deployment/x", "need a stable index"),
        ("--workload statefulset/x", "--workload has no effect"),
        ("--mode group --keda 127.0.0.1:1 --workload deployment/x", "--workload has no effect"),
        (
            '--backend kubernetes --workload statefulset/x --consume "--handler a:b"',
            "--consume has no effect",
        ),
        ("--planner ll-ffd --sla 5s --unit bytes/s", "Leave --unit out"),
        ("--planner ll-ffd", "Give --sla"),
        ("--execute", "--consume is required"),
        ("--keda 127.0.0.1:1", "--keda needs --mode group"),
        ("--dead-after 3s", "--dead-after must be at least 10s, not 3s"),
        ("--dead-after 30s --mode group", "no effect in group mode"),
        ("--start-timeout 3s", "--start-timeout must be at least 10s, not 3s"),
        ("--planner bfd --slack 0.1", "--slack is not supported by bfd"),
        ("--capacity 0", "0 is not greater than 0"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_started(words, complaint, capsys):
    asked = ["run", "--group", "g", "--topic", "t", "--bootstrap-server", "127.0.0.1:1"]

    code = main.run([*asked, *shlex.split(words)])

    assert code == 2
    assert complaint in capsys.readouterr().err
