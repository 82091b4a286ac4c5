"""The manifests, the chart and the image agree with one another and with the command line.

Helm is not needed: the chart keeps to the few forms of its templates that `_rendered` knows. That
is no proof that Helm itself takes it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.cli.reference import commands
from trimtab.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PLAIN = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "trimtab"
MODES = ["directed", "group"]
SCALE = ["get", "update"]
COMMANDS = {path: command for path, command, _ in commands()}

Documents = dict[tuple[str, str], dict[str, Any]]


def _documents(texts: Iterator[str]) -> Documents:
    """All objects by kind and name."""
    found = [part for text in texts for part in yaml.safe_load_all(text) if part]
    named = {(part["kind"], part["metadata"]["name"]): part for part in found}
    assert len(named) == len(found), "two objects of one name"
    return named


def _plain(mode: str) -> Documents:
    return _documents(
        path.read_text() for folder in ("common", mode) for path in (PLAIN / folder).glob("*.yaml")
    )


def _chart(mode: str, release: str = "trimtab", **changed: Any) -> Documents:
    values = yaml.safe_load((CHART / "values.yaml").read_text()) | {"mode": mode} | changed
    scope = {"Values": values, "Release": {"Name": release}}
    return _documents(
        _rendered(path.read_text(), scope) for path in (CHART / "templates").glob("*.yaml")
    )


def _rendered(text: str, scope: Mapping[str, Any]) -> str:
    """A template with its values: if, if eq, range, toYaml … | nindent, … | quote, plain values."""
    parts = re.split(r"(\s*\{\{- .*? \}\}|\{\{ .*? \}\})", text)
    out, rest = _block(parts, scope, scope)
    assert not rest, f"an end too many before {rest[:3]}"
    return out


def _block(parts: list[str], root: Any, dot: Any) -> tuple[str, list[str]]:
    """Renders up to the `end` of this block; returns the text and what comes after it."""
    out = ""
    while parts:
        part, *parts = parts
        words = part.strip().strip("{}- ").split() if "{{" in part else []
        match words:
            case []:
                out += part
            case ["end"]:
                return out, parts
            case ["if", "eq", path, wanted]:
                inner, parts = _block(parts, root, dot)
                out += inner if _value(path, root, dot) == wanted.strip('"') else ""
            case ["if", path]:
                inner, parts = _block(parts, root, dot)
                out += inner if _value(path, root, dot) else ""
            case ["range", path]:
                after = parts
                for item in _value(path, root, dot):
                    inner, after = _block(parts, root, item)
                    out += inner
                parts = after
            case _:
                out += _expression(words, root, dot)
    return out, []


def _expression(words: list[str], root: Any, dot: Any) -> str:
    match words:
        case ["toYaml", path, "|", "nindent", depth]:
            lines = yaml.safe_dump(_value(path, root, dot)).splitlines()
            return "".join(f"\n{' ' * int(depth)}{line}" for line in lines)
        case [path, "|", "quote"]:
            return f'"{_value(path, root, dot)}"'
        case [path]:
            return str(_value(path, root, dot))
        case _:
            raise AssertionError(f"a form that this test does not know: {words}")


def _value(path: str, root: Any, dot: Any) -> Any:
    if path == ".":
        return dot
    found = root
    for name in path.strip(".").split("."):
        found = found[name]
    return found


def _containers(documents: Documents) -> dict[str, dict[str, Any]]:
    return {
        container["name"]: container
        for part in documents.values()
        if "template" in part.get("spec", {})
        for container in part["spec"]["template"]["spec"]["containers"]
    }


@pytest.mark.parametrize("mode", MODES)
def test_the_chart_with_its_own_values_is_the_plain_manifests(mode):
    assert _chart(mode) == _plain(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["consumer", "controller", "measure", "monitor"])
def test_a_container_is_called_as_the_command_line_wants_it(mode, name):
    containers = _containers(_plain(mode))
    verb, *options = containers[name]["args"]

    assert len(containers) == 4
    known = {word for p in COMMANDS[(verb,)].params for word in (*p.opts, *p.secondary_opts)}
    assert {option.partition("=")[0] for option in options} <= known


@pytest.mark.parametrize("mode", MODES)
def test_the_environment_names_settings_that_exist(mode):
    data = _plain(mode)["ConfigMap", "trimtab"]["data"]

    assert {name.removeprefix("TRIMTAB_").lower() for name in data} <= set(Settings.model_fields)


def test_all_values_of_the_chart_reach_the_manifests():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = "".join(path.read_text() for path in (CHART / "templates").glob("*.yaml"))
    used = {match.split(".")[0] for match in re.findall(r"\.Values\.([\w.]+)", templates)}

    assert used == set(values)


def test_another_release_shares_no_name_with_the_first():
    assert not _chart("group", "pay").keys() & _chart("group").keys()


def test_every_topic_is_read_and_nothing_is_executed_unless_asked_for():
    containers = _containers(_chart("directed", topics=["a", "b"], execute=False))

    for container in containers.values():
        assert [a for a in container["args"] if "topic" in a] == ["--topic=a", "--topic=b"]
    assert "--execute" not in containers["controller"]["args"]


def test_the_controller_may_do_what_its_backend_does_and_no_more():
    rules = _plain("directed")["Role", "trimtab-controller"]["rules"]
    allowed = {(kind, verb) for r in rules for kind in r["resources"] for verb in r["verbs"]}

    scales = {(f"{kind}/scale", v) for kind in ("statefulsets", "deployments") for v in SCALE}
    assert allowed == {("pods", "list"), ("pods", "delete"), *scales}


def test_names_that_must_meet_do_meet():
    directed, group = _plain("directed"), _plain("group")
    backend = _containers(directed)["controller"]["args"]
    [rule] = [r for r in directed["Role", "trimtab-controller"]["rules"] if "resourceNames" in r]
    [trigger] = group["ScaledObject", "trimtab-consumers"]["spec"]["triggers"]
    [ours] = [a for a in _containers(group)["controller"]["args"] if a.startswith("--group=")]

    assert "--workload=statefulset/trimtab-consumers" in backend
    assert ("StatefulSet", "trimtab-consumers") in directed
    assert rule["resourceNames"] == ["trimtab-consumers"]
    assert ("Deployment", "trimtab-consumers") in group
    assert trigger["metadata"]["group"] == ours.removeprefix("--group=")
    host, port = trigger["metadata"]["scalerAddress"].split(":")
    assert int(port) in {p["port"] for p in group["Service", host]["spec"]["ports"]}


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
