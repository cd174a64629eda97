"""Commands that repair an installation: rendered for its way of running."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.core.checks.checks import FACTS
from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.objects import ReplicasObject, ServiceObject
from webhook.core.checks.repair_command import (
    add_context,
    build_install_command,
    build_render_command,
    build_restore_command,
)
from webhook.core.checks.repair_installation import is_at_target
from webhook.core.document.configmap import ConfigMap

SECRET_PATH = "9f86d081884c7d65"


def build_recorded_facts(**data: str) -> ClusterFacts:
    return replace(FACTS, record_map=ConfigMap(data={"version": "0.1.0", "certificates": "own", **data}))


def deployment(name: str, *args: str, replicas: int = 1, labels: dict[str, str] | None = None) -> ReplicasObject:
    spec = {"containers": [{"name": "podgate", "image": "podgate:9", "args": list(args)}]}
    document = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"replicas": replicas, "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    }
    return msgspec.convert(document, ReplicasObject)


def build_calling_webhooks(*clients: dict[str, Any]) -> list[dict[str, Any]]:
    webhooks = [{"name": f"{index}.podgate.io", "clientConfig": client} for index, client in enumerate(clients)]
    return [{"metadata": {"name": "podgate"}, "webhooks": webhooks}]


REDIS = "redis://redis.podgate-system.svc:6379/0"


@pytest.mark.parametrize(
    ("data", "args", "command"),
    [
        ({"mode": "memory"}, (), "podgate install --image podgate:9"),
        ({"mode": "memory", "certificates": "cert-manager"}, (), "--certificates cert-manager --image podgate:9"),
        ({"mode": "reduced", "certificates": "files"}, (), "podgate install --reduced --image podgate:9"),
        ({"mode": "redis"}, (f"--store={REDIS}",), f"podgate install --store {REDIS} --image podgate:9 --replicas 3"),
        ({"mode": "redis"}, ("--store", REDIS), f"podgate install --store {REDIS} --image podgate:9 --replicas 3"),
        ({"mode": "memory", "scheduler": "podgate-scheduler"}, (), "--image podgate:9 --with-scheduler"),
    ],
)
def test_installation_has_its_options(data: dict[str, str], args: tuple[str, ...], command: str) -> None:
    facts = replace(build_recorded_facts(**data), deployments=[deployment("podgate", *args, replicas=3)])
    assert build_install_command(facts).endswith(command)


def test_command_with_a_password_or_without_a_store_is_not_printed() -> None:
    facts = build_recorded_facts(mode="redis")
    for args in ((), ("--store=redis://:word@redis:6379/0",)):
        assert build_install_command(replace(facts, deployments=[deployment("podgate", *args)])) == ""
    outside = build_recorded_facts(
        mode="redis", certificates="files", serverURL="https://a:8443", statusURL="http://a:8081"
    )
    assert build_install_command(outside) == ""


def test_server_outside_the_cluster_keeps_its_url() -> None:
    facts = build_recorded_facts(
        mode="memory", certificates="files", serverURL="https://a:8443", statusURL="http://a:8081"
    )
    assert " --url https://a:8443 --ca pki/ca.crt " in build_render_command(facts)
    assert build_install_command(facts).endswith(
        "podgate install --server-url https://a:8443 --status-url http://a:8081"
    )
    assert is_at_target(facts, {"clientConfig": {"url": "https://a:8443/mutate"}})
    assert not is_at_target(facts, {"clientConfig": {"url": "https://a:84430/mutate"}})
    assert not is_at_target(facts, {"clientConfig": {"service": {"namespace": "podgate-system", "name": "podgate"}}})


def test_server_outside_by_hand_keeps_the_url_of_its_webhooks_without_the_secret_path() -> None:
    live = build_calling_webhooks({"url": f"https://a:8443/{SECRET_PATH}/mutate"})
    facts = replace(FACTS, mutating=live, status={**FACTS.status, "clientIdentity": "reduced"})
    assert " --url https://a:8443 --ca pki/ca.crt --path-file pki/path " in build_render_command(facts)
    assert SECRET_PATH not in build_render_command(facts)


def test_service_of_most_webhooks_is_kept_if_it_exists() -> None:
    own = {"service": {"namespace": "podgate-system", "name": "mine", "port": 444}}
    gone = {"service": {"namespace": "podgate-system", "name": "gone"}}
    mine = {"metadata": {"name": "mine"}, "spec": {"selector": {"app": "podgate"}, "ports": [{"port": 444}]}}
    facts = replace(FACTS, mutating=build_calling_webhooks(own, gone, gone), deployments=[deployment("podgate")])
    assert " --service " not in build_render_command(facts)
    facts = replace(facts, services=[msgspec.convert(mine, ServiceObject)])
    assert " --service podgate-system/mine:444 --ca pki/ca.crt " in build_render_command(facts)


@pytest.mark.parametrize("manager", ["own", "cert-manager"])
def test_ca_that_another_manages_is_left_to_it(manager: str) -> None:
    for args in ((f"--certificates={manager}",), ("--certificates", manager)):
        facts = replace(FACTS, deployments=[deployment("podgate", *args)])
        assert " --without-ca | kubectl" in build_render_command(facts)


def test_files_are_applied_by_hand_only() -> None:
    files = ("base/10-rbac.yaml", "redis/11-rbac-controller.yaml")
    by_hand = build_restore_command(FACTS, files)
    assert by_hand.endswith("-f manifests/base/10-rbac.yaml -f manifests/redis/11-rbac-controller.yaml")
    chart = deployment("podgate", labels={"app.kubernetes.io/managed-by": "Helm"})
    assert build_restore_command(replace(FACTS, deployments=[chart]), files) == ""
    assert build_restore_command(build_recorded_facts(mode="memory"), files).startswith("podgate install")


def test_each_part_of_a_command_that_connects_has_the_context() -> None:
    facts = build_recorded_facts(mode="memory")
    rendered = add_context(build_render_command(facts), "prod eu")
    assert rendered.count("--context 'prod eu'") == rendered.count("kubectl ") == 2
    assert "podgate policy webhooks --policy" in rendered
    assert add_context(build_install_command(facts), "prod") == "podgate install --context prod"
    for command in ("podgate override web --clear", "podgate breaker reset web --reason check"):
        name = command.partition(" web")[0]
        assert add_context(command, "prod") == command.replace(name, f"{name} --context prod")
        assert add_context(command, "") == command
