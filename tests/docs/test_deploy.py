"""The manifests, the chart and the image agree with one another and with the command line.

Helm is not needed: `helm_subset` renders the chart. `tests/kafka/test_deployed.py` runs what the
manifests say.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.docs.helm_subset import (
    CHART,
    Documents,
    Refused,
    chart,
    default_values,
    documents,
    merged,
    refusals,
    rendered,
)
from trimtab.cli.durations import seconds
from trimtab.cli.reference import commands
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import PlannerKind
from trimtab.plan.registry import PLANNERS
from trimtab.settings import Settings

DEPLOY = ROOT / "deploy"
PLAIN = DEPLOY / "kubernetes"
MODES = ["directed", "group"]
COMMANDS = {path: command for path, command, _ in commands()}
EVERYTHING: dict[str, Any] = {
    "capacity": 100,
    "headroom": 0,
    "cooldown": "60s",
    "startTimeout": "10m",
    "imagePullSecrets": [{"name": "registry"}],
}
TOKEN = "trimtab-controller-token"


def _plain(mode: str, *, execute: bool = True) -> Documents:
    folders = ("common", f"{mode}/execute" if execute else f"{mode}/watch")
    files = [path for folder in folders for path in sorted((PLAIN / folder).glob("*.yaml"))]
    return documents([path.read_text() for path in files])


def _chart(mode: str, *, execute: bool = True, release: str = "trimtab", **more: Any) -> Documents:
    return chart({"mode": mode, "execute": execute} | more, release=release)


def _containers(objects: Documents) -> dict[str, dict[str, Any]]:
    return {
        container["name"]: container
        for part in objects.values()
        if "template" in part.get("spec", {})
        for container in part["spec"]["template"]["spec"]["containers"]
    }


def _args(objects: Documents, name: str) -> list[str]:
    args: list[str] = _containers(objects)[name]["args"]
    return args


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("execute", [False, True])
def test_the_chart_with_its_own_values_is_the_plain_manifests(mode, execute):
    assert _chart(mode, execute=execute, tokenSecret=TOKEN) == _plain(mode, execute=execute)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["watch", "execute"])
def test_what_the_chart_can_set_stands_in_the_plain_manifests_as_comments(mode, what):
    text = (PLAIN / mode / what / "controller.yaml").read_text()
    used = documents([re.sub(r"# (- --)", r"\1", text)])
    set_here: dict[str, Any] = {
        "capacity": 800,
        "headroom": 0.1,
        "cooldown": "60s",
        "startTimeout": "10m",
    }
    theirs = _chart(mode, execute=what == "execute", tokenSecret=TOKEN, **set_here)

    assert _args(used, "controller") == _args(theirs, "controller")
    assert re.findall(r"# - --([\w-]+)=", text) == [
        *("capacity", "headroom", "cooldown", "start-timeout"),
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["consumer", "controller", "measure", "monitor"])
def test_a_container_is_called_as_the_command_line_wants_it(mode, name):
    containers = _containers(_chart(mode, **EVERYTHING))
    verb, *options = containers[name]["args"]

    assert len(containers) == 4
    known = {word for p in COMMANDS[(verb,)].params for word in (*p.opts, *p.secondary_opts)}
    assert {option.partition("=")[0] for option in options} <= known


@pytest.mark.parametrize("mode", MODES)
def test_the_environment_names_settings_that_exist(mode):
    data = _plain(mode)["ConfigMap", "trimtab"]["data"]

    assert {name.removeprefix("TRIMTAB_").lower() for name in data} <= set(Settings.model_fields)


def test_all_values_of_the_chart_reach_the_manifests():
    values = default_values()
    templates = "".join(path.read_text() for path in (CHART / "templates").glob("*.yaml"))
    used = {match.split(".")[0] for match in re.findall(r"\.Values\.([\w.]+)", templates)}

    assert used == set(values)


def test_another_release_shares_no_name_with_the_first():
    assert not _chart("group", release="pay").keys() & _chart("group").keys()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("release", ["no", "o" * 42])
def test_names_are_text_and_short_enough_for_kubernetes(mode, release):
    objects = _chart(mode, release=release, clientSecret="123", tokenSecret="456")

    for kind, name in objects:
        assert isinstance(name, str)
        # The pods of a StatefulSet have a label of its name and 11 more characters.
        assert len(name) <= {"Service": 63, "StatefulSet": 52}.get(kind, 253)
    for part in objects.values():
        labels = part.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
        assert all(len(value) <= 63 for value in labels.values())
    for container in _containers(objects).values():
        assert container["envFrom"] == [{"configMapRef": {"name": release}}]
        assert all(type(v) is str for e in container.get("env", ()) for v in _texts(e))
    [client] = {
        volume["secret"]["secretName"]
        for part in objects.values()
        for volume in part.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", ())
        if "secret" in volume
    }
    assert client == "123"


def _texts(value: Any) -> list[Any]:
    return [x for v in value.values() for x in _texts(v)] if isinstance(value, dict) else [value]


@pytest.mark.parametrize("release", ["o" * 43, "1st", "a.b"])
def test_a_release_name_that_kubernetes_would_refuse_in_part_is_refused_at_once(release):
    with pytest.raises(Refused, match=f"The release name {release} cannot be used"):
        _chart("directed", release=release)


# ---------------------------------------------------------------- what the values do


@pytest.mark.parametrize("mode", MODES)
def test_by_default_nothing_is_executed_and_no_consumer_is_deployed(mode):
    objects = chart({"mode": mode})

    assert "--execute" not in _args(objects, "controller")
    assert set(_containers(objects)) == {"monitor", "measure", "controller"}
    assert {kind for kind, _ in objects} == {"ConfigMap", "Deployment", "PersistentVolumeClaim"}


@pytest.mark.parametrize("mode", MODES)
def test_how_the_controller_decides_is_set_by_values(mode):
    plain, full = _args(_chart(mode), "controller"), _args(_chart(mode, **EVERYTHING), "controller")

    assert [arg for arg in full if arg not in plain] == [
        "--capacity=100",
        "--headroom=0",
        "--cooldown=60s",
        "--start-timeout=10m",
    ]
    assert "--max-consumers=64" in plain
    assert "--no-measure" in plain  # Spark has a pod of its own


def test_every_part_takes_further_arguments_and_resources():
    more = {"extraArgs": ["--verbose"], "resources": {"limits": {"memory": "1Gi"}}}
    changed: dict[str, Any] = dict.fromkeys(("monitor", "measure", "controller", "consumers"), more)

    for container in _containers(_chart("group", **changed)).values():
        assert container["args"][-1] == "--verbose"
        assert container["resources"]["limits"] == {"memory": "1Gi"}


def test_every_topic_is_read_by_every_part():
    containers = _containers(_chart("directed", topics=["a", "b"]))

    for container in containers.values():
        assert [a for a in container["args"] if "topic" in a] == ["--topic=a", "--topic=b"]


def test_one_release_can_measure_for_others():
    first = _chart("directed", measure={"topics": ["pay"], "groups": ["tills"]})
    second = _chart("directed", release="pay", measure={"enabled": False})

    for name in ("monitor", "measure"):
        args = _args(first, name)
        assert {"--topic=pay", "--group=tills", "--group=orders"} <= set(args)
    assert set(_containers(second)) == {"controller", "consumer"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "swarm"},
        {"group": ""},
        {"topics": []},
        {"topics": [""]},
        {"topics": ["orders, payments"]},
        {"measure": {"topics": ["a b"]}},
        {"planner": "trimm"},
        {"planner": "ll-ffd", "sla": ""},
        {"planner": "ll-ffd", "sla": None},
        {"sla": "0s"},
        {"startTimeout": "0.0m"},
        {"startTimeout": "9.9s"},
        {"settings": {"TRIMTAB_BOOTSTRAP_SERVER": ""}},
        {"settings": {"TRIMTAB_BOOTSTRAP_SERVER": " "}},
        {"execute": "yes"},
        {"capacity": 0},
        {"capacity": "100"},
        {"headroom": 1},
        {"cooldown": "soon"},
        {"startTimeout": "5 minutes"},
        {"maxConsumers": 0},
        {"maxConsumers": 2.5},
        {"consumers": {"handler": "shop.orders"}},
        {"consumers": {"extraArgs": "--verbose"}},
        {"settings": {"TRIMTAB_MEASURE__PERIOD_S": 2}},
        {"settings": {"BOOTSTRAP": "kafka:9092"}},
        {"consumer": {}},
        {"keda": {"max": 4}},
        {"keda": {"min": 0}},
    ],
)
def test_values_that_make_no_sense_are_refused_by_the_schema(wrong):
    assert refusals(default_values()) == []
    assert refusals(merged(default_values(), EVERYTHING)) == []
    assert refusals(merged(default_values(), wrong)) != []


def test_a_planner_that_holds_a_latency_needs_one():
    schema = json.loads((CHART / "values.schema.json").read_text())
    latency = {n for n, p in PLANNERS[Layer.CONSUMERS].items() if p.kind is PlannerKind.LATENCY}

    assert set(schema["if"]["properties"]["planner"]["enum"]) == latency
    assert refusals(merged(default_values(), {"planner": "trim", "sla": ""})) == []
    assert refusals(merged(default_values(), {"planner": "ll-ffd"})) == []


def test_fewer_consumers_than_keda_keeps_are_refused():
    with pytest.raises(Refused, match=r"keda\.min is 8 and maxConsumers 6"):
        _chart("group", keda={"min": 8}, maxConsumers=6)
    assert _chart("group", keda={"min": 6}, maxConsumers=6)
    assert _chart("directed", keda={"min": 8}, maxConsumers=6)  # KEDA has no part in it


def test_every_planner_of_the_command_line_can_be_chosen():
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert set(schema["properties"]["planner"]["enum"]) == set(PLANNERS[Layer.CONSUMERS])


@pytest.mark.parametrize("given", ["500ms", "5s", "0.5s", "1.50h", "10m", "05s", None, ""])
def test_durations_of_the_command_line_are_taken(given):
    assert refusals(merged(default_values(), {"sla": given})) == []
    if given:
        assert seconds(given) > 0


@pytest.mark.parametrize(
    "given",
    [
        *("9s", "9.99s", "10s", "010.5s", "9999ms", "10000ms", "9999999us", "10000000us", "1m"),
        *("0.1m", "0.16m", "0.167m", "0.2m", "0.002h", "0.003h", "0.01h", "1.5h", "0.001d", "1d"),
    ],
)
def test_a_start_timeout_is_refused_below_what_the_command_line_takes(given):
    taken = refusals(merged(default_values(), {"startTimeout": given})) == []

    assert taken is (seconds(given) >= 10)


# ---------------------------------------------------------------- what must meet


def test_metrics_can_be_scraped_from_outside_the_pod():
    for name in ("monitor", "measure", "controller"):
        container = _containers(_plain("directed"))[name]
        assert {"--metrics-port=9100", "--metrics-host=0.0.0.0"} <= set(container["args"])
        assert {"name": "metrics", "containerPort": 9100} in container["ports"]


def test_controller_and_consumers_of_group_mode_have_the_same_token():
    ours, theirs = (_chart("group", tokenSecret=secret) for secret in ("", "mine"))

    for objects, name in ((ours, TOKEN), (theirs, "mine")):
        for container in ("controller", "consumer"):
            [token] = [
                e["valueFrom"]["secretKeyRef"]
                for e in _containers(objects)[container]["env"]
                if e["name"] == "TRIMTAB_CONTROLLER__TOKEN"
            ]
            assert token == {"name": name, "key": "token"}
    assert "token" in ours["Secret", TOKEN]["data"]
    assert not any(kind == "Secret" for kind, _ in theirs)


def test_the_controller_may_do_what_its_backend_does_and_no_more():
    rules = _plain("directed")["Role", "trimtab-controller"]["rules"]
    allowed = {(kind, verb) for r in rules for kind in r["resources"] for verb in r["verbs"]}

    scales = {("statefulsets/scale", verb) for verb in ("get", "update")}
    assert allowed == {("pods", "list"), ("pods", "delete"), *scales}
    for objects in (_plain("group"), _plain("directed", execute=False)):
        assert not any(kind in ("Role", "ServiceAccount") for kind, _ in objects)


def test_names_that_must_meet_do_meet():
    directed, group = _plain("directed"), _plain("group")
    backend = _args(directed, "controller")
    [rule] = [r for r in directed["Role", "trimtab-controller"]["rules"] if "resourceNames" in r]
    [trigger] = group["ScaledObject", "trimtab-consumers"]["spec"]["triggers"]
    [ours] = [a for a in _args(group, "controller") if a.startswith("--group=")]

    assert "--workload=statefulset/trimtab-consumers" in backend
    assert ("StatefulSet", "trimtab-consumers") in directed
    assert rule["resourceNames"] == ["trimtab-consumers"]
    assert ("Deployment", "trimtab-consumers") in group
    assert trigger["metadata"]["group"] == ours.removeprefix("--group=")
    host, port = trigger["metadata"]["scalerAddress"].split(":")
    name, namespace, kind = host.split(".")
    assert (namespace, kind) == ("trimtab", "svc")
    ports = {p["port"] for p in group["Service", name]["spec"]["ports"]}
    [url] = [a for a in _args(group, "consumer") if a.startswith("--controller-url=")]
    assert url == f"--controller-url=http://{name}:8765"
    assert {int(port), 8765} <= ports
    assert group["Service", name]["spec"]["clusterIP"] == "None"  # the address of every replica


@pytest.mark.parametrize("name", ["trimtab-monitor", "trimtab-measure"])
def test_a_part_that_must_be_alone_ends_before_the_next_one_starts(name):
    spec = _plain("directed")["Deployment", name]["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_keda_takes_no_consumer_away_while_nothing_is_known():
    # With a fallback it would go to that number, however many there are; KEDA before 2.17 at the
    # first failure, such as the start of a controller.
    [scaled] = [p for (kind, _), p in _plain("group").items() if kind == "ScaledObject"]

    assert "fallback" not in scaled["spec"]
    assert scaled["spec"]["minReplicaCount"] >= 1  # nor to none


def test_the_notes_say_how_to_check_what_keda_made_of_it():
    # An autoscaler that KEDA makes before a controller answers goes by CPU for ever.
    text = (CHART / "templates" / "NOTES.txt").read_text()
    scope = {"Release": {"Name": "pay", "Namespace": "shop"}}
    notes = {
        mode: rendered(text, scope | {"Values": {"execute": True, "mode": mode, "group": "g"}})
        for mode in MODES
    }

    check = "kubectl --namespace shop get hpa keda-hpa-pay-consumers"
    assert {mode: check in said for mode, said in notes.items()} == {
        "directed": False,
        "group": True,
    }


@pytest.mark.parametrize("mode", MODES)
def test_the_record_in_hand_outlives_a_container_that_dies_of_it(mode):
    [spec] = [
        part["spec"]["template"]["spec"]
        for (_, name), part in _plain(mode).items()
        if name == "trimtab-consumers" and "template" in part["spec"]
    ]
    [noted] = [a for a in _args(_plain(mode), "consumer") if a.startswith("--in-hand=")]
    [mount] = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "state"]

    assert noted.removeprefix("--in-hand=").rpartition("/")[0] == mount["mountPath"]
    assert {"name": "state", "emptyDir": {}} in spec["volumes"]


def test_the_scale_is_nowhere_written_down():
    for kind, mode in (("StatefulSet", "directed"), ("Deployment", "group")):
        assert "replicas" not in _plain(mode)[kind, "trimtab-consumers"]["spec"]


def test_image_and_chart_have_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    images = {c["image"] for mode in MODES for c in _containers(_plain(mode)).values()}

    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert images == {f"trimtab:{version}"}
    assert f"trimtab:{version}" in (DEPLOY / "Dockerfile").read_text()
