"""What `trimtab run` refuses before it starts anything, and what it does at its end."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from trimtab.cli import main, run
from trimtab.cli.consume import ConsumeMode
from trimtab.errors import ApplyError


class Unreachable:
    """An orchestrator that does not answer."""

    def living(self) -> Any:
        raise ApplyError("Kubernetes did not answer.")


def leave(**more: Any) -> None:
    who = run._Scaling(
        mode=ConsumeMode.DIRECTED,
        backend=run.BackendName.KUBERNETES,
        workload="statefulset/x",
        consume=None,
        keda=None,
        listen="127.0.0.1:0",
        cooldown_s=0.0,
    )
    run._leave(Unreachable(), who, **more)  # type: ignore[arg-type]


def test_an_orchestrator_that_does_not_answer_is_no_error_when_consumers_go_on(capsys):
    leave(stop_consumers=False)

    assert "Kubernetes did not answer." in capsys.readouterr().err


def test_it_is_one_when_the_consumers_were_to_be_stopped():
    with pytest.raises(ApplyError):
        leave(stop_consumers=True)


# ------------------------------------------------------------ options that do not go together


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--backend kubernetes --execute", "It is not said which consumers to scale"),
        ("--backend kubernetes --workload pod/x --execute", "names no workload"),
        ("--backend kubernetes --workload deployment/x", "numbers that stay"),
        ("--workload statefulset/x", "--workload has no effect"),
        ("--mode group --keda 127.0.0.1:1 --workload deployment/x", "--workload has no effect"),
        (
            '--backend kubernetes --workload statefulset/x --consume "--handler a:b"',
            "--consume has no effect",
        ),
        ("--planner ll-ffd --sla 5s --unit bytes/s", "Leave --unit out"),
        ("--planner ll-ffd", "Give --sla"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_started(words, complaint, capsys):
    asked = ["run", "--group", "g", "--topic", "t", "--bootstrap-server", "127.0.0.1:1"]

    code = main.run([*asked, *shlex.split(words)])

    assert code == 2
    assert complaint in capsys.readouterr().err
