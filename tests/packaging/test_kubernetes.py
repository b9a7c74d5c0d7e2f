"""The Helm chart and the manifests of `examples/deployment`, by Helm's library and Kubernetes' schemas.

`UPDATE_DOCS=1 pytest tests/packaging/test_kubernetes.py` writes the manifests anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.control.api import health
from tailrace.control.front import Front
from tailrace.control.policy import Policy
from tailrace.control.policy_options import policy_of
from tailrace.control.runner import GRACE_S
from tailrace.control.serve_command import serve
from tests.support import kubernetes

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "examples" / "deployment"
CHART = DEPLOYMENT / "helm" / "tailrace"
PLAIN = DEPLOYMENT / "kubernetes" / "tailrace.yaml"
#: The oldest Kubernetes that the chart is for, and the newest whose schema there is.
VERSIONS = ("1.27", "1.37")
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "object-store": {
        "storage": {"kind": "none"},
        "allow": {"hosts": ["*.example.com"], "paths": ["s3://lake/cdc"], "env": ["AWS_*"]},
        "serviceAccount": {"annotations": {"example.com/role": "lake"}},
    },
    "spark": {"spark": {"enabled": True}, "allow": {"spark": ["spark.kubernetes.executor.limit.cores"]}},
    "tls": {
        "tlsSecret": "certificate",
        "capacity": 3,
        "image": {"tag": "1.2", "pullSecrets": [{"name": "registry"}]},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "cdc", "operator": "Exists", "effect": "NoSchedule"}],
        "podLabels": {"team": "data"},
        "podAnnotations": {"example.com/a": "b"},
        "publicUrl": "https://tailrace.example",
        "publicHosts": ["*.internal"],
        "trustedProxies": ["10.0.0.0/8"],
    },
    "outside": {
        "storage": {"existingClaim": "lake"},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {
            "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        },
    },
}
_HEADER = """\
# Written from the Helm chart with its default values: UPDATE_DOCS=1 pytest tests/packaging/test_kubernetes.py
# Change the image, the database's URL, the storage and --allow-...: docs/guides/deployment.md
"""


def _objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    texts = kubernetes.rendered(CHART, values)
    return [item for name, text in texts.items() if name != "NOTES.txt" for item in yaml.safe_load_all(text)]


@pytest.fixture(scope="module", params=VARIANTS)
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What the chart makes of one of VARIANTS."""
    return _objects(VARIANTS[request.param])


def _container(objects: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod of the Deployment, and its container."""
    (deployment,) = (item for item in objects if item["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_has_nothing_against_the_chart(variant: str) -> None:
    assert kubernetes.lint(CHART, VARIANTS[variant]) == []


def test_objects_fit_the_schemas_of_kubernetes(objects: list[dict[str, Any]]) -> None:
    assert kubernetes.wrong(objects, VERSIONS) == []


def test_schemas_find_a_field_that_does_not_exist() -> None:
    found = _objects({})
    _, container = _container(found)
    container["livenesProbe"] = {}
    assert any("livenesProbe" in each for each in kubernetes.wrong(found, VERSIONS))


def test_manifests_are_what_the_chart_makes() -> None:
    texts = kubernetes.rendered(CHART)
    parts = [text.strip() for name, text in texts.items() if name != "NOTES.txt"]
    made = _HEADER + "".join(f"---\n{part}\n" for part in parts)
    if os.environ.get("UPDATE_DOCS"):
        PLAIN.write_text(made, encoding="utf-8")
    assert PLAIN.read_text(encoding="utf-8") == made


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 3},
        {"storage": {"kind": "bucket"}},
        {"database": {"url": "postgresql://user:password@host/name"}},
        {"terminationGracePeriodSeconds": 10},
    ],
    ids=lambda values: next(iter(values)),
)
def test_chart_refuses_values_that_it_does_not_know(values: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="schema"):
        kubernetes.rendered(CHART, values)


def test_arguments_are_those_of_the_command(objects: list[dict[str, Any]]) -> None:
    pod, container = _container(objects)
    command, *arguments = container["args"]
    assert command == "serve"
    given = serve.make_context("serve", list(arguments)).params
    assert given["data_dir"] == Path("/var/lib/tailrace/data")
    assert given["database_password"] == "${file:/run/secrets/tailrace/database/password}"
    assert given["plain_http"] != bool(given["tls_cert"])
    assert isinstance(policy_of(given, given["database"]), Policy)
    Front(given["public_url"], given["public_host"], given["trusted_proxy"])
    mounted = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]
    named = [given["data_dir"], *filter(None, (given["tls_cert"], given["tls_key"]))]
    assert all(any(mount in path.parents for mount in mounted) for path in named)
    # a file of a password, of a certificate: the server's own user reads it, by its group
    assert all(volume.get("secret", {}).get("defaultMode", 0o440) == 0o440 for volume in pod["volumes"])


def test_pods_are_of_the_restricted_kind(objects: list[dict[str, Any]]) -> None:
    """Source: Kubernetes, "Pod Security Standards", profile Restricted."""
    executors = [item["data"]["executor.yaml"] for item in objects if item["kind"] == "ConfigMap"]
    pods = [_container(objects)[0], *(yaml.safe_load(text)["spec"] for text in executors)]
    for pod in pods:
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_rights_are_those_of_drivers_and_only_where_there_are_some(objects: list[dict[str, Any]]) -> None:
    kinds = [item["kind"] for item in objects]
    pod, _ = _container(objects)
    has_spark = "ConfigMap" in kinds
    assert ("Role" in kinds, "RoleBinding" in kinds) == (has_spark, has_spark)
    assert "ClusterRole" not in kinds
    assert pod["automountServiceAccountToken"] is has_spark
    for item in objects:
        if item["kind"] == "Role":
            assert all(
                "*" not in rule["verbs"] and "secrets" not in rule["resources"] for rule in item["rules"]
            )


def test_pod_has_the_time_that_workers_may_take(objects: list[dict[str, Any]]) -> None:
    pod, container = _container(objects)
    assert pod["terminationGracePeriodSeconds"] > GRACE_S
    for probe, path in (
        ("startupProbe", "healthz"),
        ("livenessProbe", "healthz"),
        ("readinessProbe", "readyz"),
    ):
        given = container[probe]["httpGet"]
        assert given["path"] == f"/{path}" in {route.path for route in health.router.routes}
        has_tls = any(volume["name"] == "tls" for volume in pod["volumes"])
        assert given.get("scheme", "HTTP") == ("HTTPS" if has_tls else "HTTP")


def test_executors_are_set_up_in_spark_defaults() -> None:
    (found,) = (item for item in _objects(VARIANTS["spark"]) if item["kind"] == "ConfigMap")
    settings = dict(line.split(None, 1) for line in found["data"]["spark-defaults.conf"].splitlines())
    assert settings["spark.kubernetes.namespace"] == "tailrace"
    template = yaml.safe_load(found["data"]["executor.yaml"])
    (container,) = template["spec"]["containers"]
    assert container["name"] == settings["spark.kubernetes.executor.podTemplateContainerName"]
    (program,) = re.findall(r"^COPY .*/(spark-executor) /", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert container["command"][-1] == program
