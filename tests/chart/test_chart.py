"""The chart: equal to the manifests in each way of running, clean for Helm's linter, and strict about values."""

import json
import tomllib
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import (
    CHART,
    RELEASE,
    WAYS,
    index_comparable,
    refusal,
    render_kustomization,
    run_helm,
    templates,
    values,
)
from tests.harness.yaml_documents import parse_documents
from webhook import settings

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
REDIS = ("--set", "store.type=redis,store.url=redis://podgate@redis:6379/0,server.replicas=2")
STORE_URL = "rediss+sentinel://sentinel:26379/main/0"
CREDENTIALS = (
    *("--set", f"store.type=redis,store.url={STORE_URL},store.cluster=east"),
    *("--set", "store.credentials.secretName=podgate-store,store.credentials.usernameKey=user"),
    *("--set", "store.sentinelCredentials.secretName=podgate-sentinels"),
    *("--set", "store.tls.secretName=podgate-store-tls,store.tls.clientCertificate=true"),
)
OWN = ("--set", "certificates.manager=own,tokens.issuer=own")
REDUCED_OWN = (
    *values("reduced"),
    *("--set", "certificates.manager=own"),
)
SCHEDULER = "podgate-scheduler"
STORE_ARGUMENTS = [
    "--cluster=east",
    "--store-ca=/etc/podgate/store-tls/ca.crt",
    "--store-cert=/etc/podgate/store-tls/tls.crt",
    "--store-key=/etc/podgate/store-tls/tls.key",
    "--store-password-file=/etc/podgate/store/password",
    "--store-sentinel-password-file=/etc/podgate/store-sentinel/password",
    "--store-username-file=/etc/podgate/store/user",
    f"--store={STORE_URL}",
]


def test_version_is_the_project_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (PROJECT["version"], PROJECT["version"])


@pytest.mark.parametrize("way", WAYS)
def test_chart_renders_the_objects_of_the_manifests(tmp_path: Path, way: str) -> None:
    rendered = index_comparable(parse_documents(templates(tmp_path, *values(way))))
    assert rendered == index_comparable(render_kustomization(way))


@pytest.mark.parametrize("way", WAYS)
def test_linter_finds_nothing(tmp_path: Path, way: str) -> None:
    done = run_helm("lint", "--strict", CHART, *values(way), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[ERROR]" not in done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize(
    ("given", "place", "reason"),
    [
        ("server.replicas=two", "at '/server/replicas'", "got string, want integer"),
        ("server.replicas=0", "at '/server/replicas'", "minimum"),
        ("serverr.replicas=1", "at ''", "additional properties 'serverr' not allowed"),
        ("certificates.manager=vault", "at '/certificates/manager'", "'files', 'own', 'cert-manager'"),
        ("store.url=http://redis", "at '/store/url'", "does not match pattern"),
        ("server.extraArgs={replicas=2}", "at '/server/extraArgs/0'", "does not match pattern"),
        ("server.replicas=2", "server.replicas: 2", "set 1, or use store.type redis"),
        ("store.type=redis", 'store.url: ""', "redis://redis.podgate-system.svc:6379/0"),
        ("store.url=redis://redis", "store.url", "only with store.type redis"),
        ("store.type=redis,store.url=redis://r,store.tls.secretName=s", "store.tls.secretName", "rediss"),
        (
            "store.type=redis,store.url=redis://r,store.sentinelCredentials.secretName=s",
            "sentinelCredentials",
            "+sentinel",
        ),
        ("tokens.issuer=own,certificates.manager=cert-manager", "tokens.issuer: own", "use cluster or file"),
        ("reduced.enabled=true", "networkPolicy.admissionFrom: []", "the addresses of your API servers"),
        ("reduced.enabled=true,apiserverFiles.enabled=true", "apiserverFiles.enabled: true", "set false"),
        ("networkPolicy.enabled=false,reduced.enabled=true", "networkPolicy.admissionFrom: []", "name the addresses"),
        ("policy.create=true", 'policy.document: ""', "--set-file policy.document=policy.yaml"),
    ],
)
def test_wrong_value_is_refused_with_its_place_and_a_remedy(
    tmp_path: Path, given: str, place: str, reason: str
) -> None:
    message = refusal(tmp_path, "--set", given)
    assert place in message
    assert reason in message


def test_other_namespace_is_refused(tmp_path: Path) -> None:
    assert "add --namespace podgate-system" in refusal(tmp_path, "--namespace", "default")


@pytest.mark.parametrize(
    "options",
    [
        *(pytest.param(values(way), id=way) for way in WAYS),
        pytest.param(CREDENTIALS, id="credentials"),
        pytest.param((*CREDENTIALS, *OWN), id="credentials and own certificates"),
        pytest.param(REDUCED_OWN, id="reduced, with own certificates"),
    ],
)
def test_processes_accept_their_arguments_and_mount_the_files_that_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str | Path, ...]
) -> None:
    (token := tmp_path / "account-token").touch()
    monkeypatch.setattr("webhook.settings.parsing._SERVICE_ACCOUNT_TOKEN", token)
    kinds: dict[str, type[settings.ProcessSettings]] = {
        "serve": settings.Settings,
        "controller": settings.ControllerSettings,
        "extender": settings.ExtenderSettings,
    }
    deployments = [
        document for document in parse_documents(templates(tmp_path, *options)) if document["kind"] == "Deployment"
    ]
    for pod in (
        deployment["spec"]["template"]["spec"]
        for deployment in deployments
        if deployment["metadata"]["name"] != SCHEDULER
    ):
        [container] = pod["containers"]
        mounts = {mount["mountPath"] for mount in container.get("volumeMounts", ())}
        given = dict(argument.split("=", 1) for argument in container["args"])
        for flag, text in given.items():
            if text.startswith("/"):
                assert str(Path(text).parent) in mounts, f"{flag} is not mounted"
                path = tmp_path / text.removeprefix("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("file")
                given[flag] = str(path)
        kind = kinds[container["command"][1]]
        known = {item.name for settings_class in (kind, settings.Settings) for item in fields(settings_class)}
        flags = {name: given.pop(settings.name_flag(name), None) for name in known}
        assert given == {}, "there are no such flags"
        settings.parse_as(kind, flags, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_store_credentials_are_mounted_into_servers_and_controllers(tmp_path: Path) -> None:
    objects = index_comparable(parse_documents(templates(tmp_path, *CREDENTIALS)))
    for name in ("podgate", "podgate-controller"):
        pod = objects[f"Deployment podgate-system/{name}"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert [
            argument for argument in container["args"] if argument.startswith(("--store", "--cluster="))
        ] == STORE_ARGUMENTS
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for volume, secret in (("", "store"), ("-sentinel", "sentinels"), ("-tls", "store-tls")):
            assert secrets[f"store{volume}"] == f"podgate-{secret}"
            assert mounts[f"store{volume}"] == f"/etc/podgate/store{volume}"
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"], "it reads the Secrets' files"


def test_network_policy_admits_the_named_peers(tmp_path: Path) -> None:
    peers = {"admissionFrom": [{"ipBlock": {"cidr": "10.0.0.10/32"}}], "metricsFrom": [{"podSelector": {}}]}
    (tmp_path / "values.yaml").write_text(json.dumps({"networkPolicy": peers}))
    objects = index_comparable(parse_documents(templates(tmp_path, "--values", tmp_path / "values.yaml")))
    rules = objects["NetworkPolicy podgate-system/podgate"]["spec"]["ingress"]
    assert [(port["port"], peer) for port, peer in rules] == [
        (8081, {"podSelector": {}}),
        (8443, {"ipBlock": {"cidr": "10.0.0.10/32"}}),
    ]


def test_quota_admits_only_priority_classes_of_the_system(tmp_path: Path) -> None:
    name = "ResourceQuota podgate-system/podgate-critical-pods"
    assert name in index_comparable(parse_documents(templates(tmp_path)))
    assert name not in index_comparable(parse_documents(templates(tmp_path, "--set", "priorityClassName=mine")))


def test_pod_values_reach_their_deployment(tmp_path: Path) -> None:
    placement: dict[str, Any] = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
    }
    given: dict[str, Any] = {
        "image": {"repository": "registry.internal/podgate", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "internal"}],
        "priorityClassName": "mine",
        **{
            part: {**placement, "podAnnotations": {"team": part}, "extraArgs": [f"--otlp-endpoint=https://{part}"]}
            for part in ("server", "controller")
        },
    }
    (tmp_path / "values.yaml").write_text(json.dumps(given))
    objects = index_comparable(parse_documents(templates(tmp_path, *REDIS, "--values", tmp_path / "values.yaml")))
    for part, name in (("server", "podgate"), ("controller", "podgate-controller")):
        template = objects[f"Deployment podgate-system/{name}"]["spec"]["template"]
        assert template["metadata"]["annotations"] == {"team": part}
        pod = template["spec"]
        assert {key: pod[key] for key in placement} == placement
        assert pod["imagePullSecrets"] == [{"name": "internal"}]
        assert pod["priorityClassName"] == "mine"
        [container] = pod["containers"]
        assert container["image"] == f"registry.internal/podgate:{PROJECT['version']}@sha256:{'0' * 64}"
        assert container["imagePullPolicy"] == "Always"
        assert f"--otlp-endpoint=https://{part}" in container["args"]


def test_monitors_and_rules_have_the_labels_that_prometheus_selects(tmp_path: Path) -> None:
    given = "monitoring.monitors=true,monitoring.rules=true,monitoring.labels.release=prometheus"
    rendered = parse_documents(templates(tmp_path, "--set", given))
    labels = {
        document["kind"]: document["metadata"]["labels"]
        for document in rendered
        if "monitoring.coreos" in document["apiVersion"]
    }
    assert {*labels} == {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert {metadata_labels["release"] for metadata_labels in labels.values()} == {"prometheus"}


def test_alerts_link_to_the_runbook_that_the_pager_reaches(tmp_path: Path) -> None:
    given = "monitoring.rules=true,monitoring.runbookUrl=https://wiki.example/runbook"
    [rules] = [
        document
        for document in parse_documents(templates(tmp_path, "--set", given))
        if document["kind"] == "PrometheusRule"
    ]
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    links = {alert["annotations"]["runbook_url"].partition("#")[0] for alert in alerts}
    assert links == {"https://wiki.example/runbook"}


def test_policy_is_rendered_only_on_request(tmp_path: Path) -> None:
    assert "ConfigMap podgate-system/podgate-policy" not in index_comparable(parse_documents(templates(tmp_path)))
    (tmp_path / "policy.yaml").write_text("kind: Policy\nservices:\n- name: one\n")
    document = ("--set", "policy.create=true", "--set-file", f"policy.document={tmp_path / 'policy.yaml'}")
    objects = index_comparable(parse_documents(templates(tmp_path, *document)))
    config_map = objects["ConfigMap podgate-system/podgate-policy"]
    assert yaml.safe_load(config_map["data"]["policy.yaml"]) == {"kind": "Policy", "services": [{"name": "one"}]}
    assert config_map["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize(
    ("way", "needed", "not_needed"),
    [
        ("memory", ["ConfigMap podgate-jwks", "apiserver-files --out", "--ca pki/ca.crt |"], ["certs bootstrap"]),
        ("own-certificates", ["podgate certs bootstrap", "podgate-jwks", "--without-ca |"], ["Secrets podgate-tls"]),
        ("own-certificates-redis", ["--without-ca |"], ["podgate certs bootstrap", "podgate-jwks", "Secrets"]),
        ("cert-manager", ["--token cluster", "--without-ca |"], ["podgate-jwks", "Secrets podgate-tls"]),
        ("reduced", ["podgate-reduced-path", "--path-file pki/path |"], ["apiserver-files", "podgate-jwks"]),
        ("apiserver-files", ["DaemonSet podgate-apiserver-files"], ["apiserver-files --out"]),
    ],
)
def test_notes_name_what_remains_to_be_done(tmp_path: Path, way: str, needed: list[str], not_needed: list[str]) -> None:
    shown = run_helm("install", RELEASE, CHART, *values(way), "--dry-run=client", home=tmp_path)
    assert shown.returncode == 0, shown.stderr
    notes = shown.stdout.partition("NOTES:")[2]
    for text in (*needed, "podgate policy webhooks", "kubectl delete mutatingwebhookconfiguration/podgate"):
        assert text in notes
    for text in not_needed:
        assert text not in notes


def test_pods_of_the_scheduler_are_replaced_with_its_configuration(tmp_path: Path) -> None:
    found = set()
    for weight in (5, 6):
        given = (*values("scheduler"), "--set", f"scheduler.weight={weight},scheduler.podAnnotations.team=a")
        named = {
            (document["kind"], document["metadata"]["name"]): document
            for document in parse_documents(templates(tmp_path, *given))
        }
        text = named["ConfigMap", SCHEDULER]["data"]["config.yaml"]
        assert f"weight: {weight} " in text
        digest = sha256(text.encode()).hexdigest()
        metadata = named["Deployment", SCHEDULER]["spec"]["template"]["metadata"]
        assert metadata["annotations"] == {"podgate.io/configuration-sha256": digest, "team": "a"}
        found.add(digest)
    assert len(found) == 2
