"""Managed certificates in a real cluster: bootstrap, rotation, drift, and Secrets of other owners."""

import asyncio
import base64
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.authority import Authority, san, server_names
from certs.ca_generations import bundle, pem
from certs.cluster import loop
from certs.cluster.api import Api, OvertakenError
from certs.cluster.ca_controller import CLIENT, CLIENT_CA, SERVING, SERVING_CA, CaController, CertificatePlan
from certs.cluster.injection import CERTIFICATE
from certs.cluster.secrets import MANAGED_BY, OURS, SecretStore, StoredSecret
from certs.cluster.webhooks import INJECTED_FROM, find
from certs.inspection import signed_by
from certs.lifetimes import Lifetimes
from certs.tokens.issuer import key_pem
from tests.cluster.admission_configuration import NAMESPACE, stand_in_service
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import CONTROLLER_ACCOUNT, MANIFESTS, SERVICE_ACCOUNT
from tests.cluster.managed_certificates import (
    CONFIGURATIONS,
    SECRETS,
    ManagedCertificates,
    delete_secrets,
    managed_installation,
    managed_plane,
)
from tests.cluster.server import SHORT_INTERVALS, Server
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.kubernetes import connect

pytest_plugins = ("tests.redis_servers.fixtures",)

OWN = ("--certificates", "own")
SHORT = ("--serving-ca-lifetime", "60s", "--serving-lifetime", "30s")
SOAKS = os.environ.get("PODGATE_TEST_ROTATION") == "soak"
KILLS, PAUSE_SECONDS = (10, 0.0) if SOAKS else (2, 0.1)
"""Of the controller in the middle of rotations, and between two batches of calls."""
CAS, LOOK_SECONDS = (100, 0.1) if SOAKS else (8, 0.3)
"""That two leaders make, and between two looks at their leaves."""
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: NAME
  failureMode: Closed
  match: {namespaces: [kept-NAME]}
  quota: {windows: [{window: 1h, hard: {pods: 100000}}]}
"""
_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def cluster(identities: Identities, folder: Path) -> Iterator[ControlPlane]:
    """Start an API server whose certificate is the one that is kept in the cluster."""
    with managed_plane(identities, folder / "caller") as running:
        running.apply(*stand_in_service())
        yield running


@pytest.fixture
def kept(
    cluster: ControlPlane, identities: Identities, folder: Path, request: pytest.FixtureRequest
) -> Iterator[ManagedCertificates]:
    """Install it for one namespace; nobody keeps anything yet."""
    name = f"s{request.node.name.encode().hex()[-24:]}"  # with a letter: YAML reads digits alone as a number
    with managed_installation(cluster, identities, folder, POLICY.replace("NAME", name), [f"kept-{name}"]) as found:
        found.installation.program = SHORT_INTERVALS
        yield found


def led(kept: ManagedCertificates, redis: RedisServer, *arguments: str) -> Server:
    """Start a controller that keeps certificates, and wait until it has made all there is."""
    controller = kept.installation.start_controller("--store", redis.url, *OWN, *arguments)
    kept.wait(lambda: all(kept.secret(name) for name in SECRETS), "the Secrets")
    kept.wait(lambda: set(kept.bundles()) == {bundle(kept.generations())}, "the bundles")
    return controller


def served(kept: ManagedCertificates, redis: RedisServer, *arguments: str) -> Server:
    """Start a server on what is mounted, and wait until it judges Pods."""
    kept.wait((kept.tls / "tls.crt").exists, "the Secret to be mounted")
    server = kept.installation.start_server(
        "--store", redis.url, "--store-deadline", "10s", "--drain", "0s", *arguments
    )
    kept.wait(lambda: kept.create_pod() == 201, "a Pod to be judged")
    return server


def test_certificates_are_bootstrapped_until_calls_are_served(kept: ManagedCertificates, a_redis: RedisServer) -> None:
    controller = led(kept, a_redis)
    server = served(kept, a_redis)
    assert server.total("podgate_reviews_total", 'decision="Admit"') > 0
    shown = controller.status()["certificates"]
    assert (shown["keptBy"], shown["errors"], sorted(shown["secrets"])) == ("own", [], sorted(SECRETS))
    assert {controller.total("podgate_certificate_renewals_total", f'secret="{name}"') for name in SECRETS} == {1}
    leaf = kept.leaf()
    assert leaf is not None
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(server_names("podgate.podgate-system.svc")) == set(names), "checklist, 9"
    assert kept.secret(SERVING)["type"] == "kubernetes.io/tls"
    assert kept.data(CLIENT, "ca.crt") == kept.data(SERVING, "ca.crt") == bundle(kept.generations(CLIENT_CA))
    assert "PRIVATE" not in kept.installation.log(controller)


def test_rotation_under_load_with_a_killed_controller_loses_no_call(
    kept: ManagedCertificates, a_redis: RedisServer
) -> None:
    """Checklist, 1, 3 and 11: short lives, real processes, a mounted Secret."""
    controller = led(kept, a_redis, *SHORT)
    served(kept, a_redis, "--max-connection-age", "1s")
    [first] = kept.generations()
    answers, seen, interrupted = Counter[int](), {first.certificate}, set[x509.Certificate]()
    deadline = time.monotonic() + 300 * KILLS
    while (
        len(interrupted) < KILLS
        or sum(answers.values()) <= 200
        or any(bundle((first,)) in one for one in kept.bundles())
    ):
        answers.update(kept.create_pod() for _ in range(5))
        assert set(answers) == {201}, (answers, kept.installation.log(controller, 30))
        time.sleep(PAUSE_SECONDS)  # else the machine does nothing but this
        line = kept.generations()
        seen |= {one.certificate for one in line}
        last = line[-1]
        if len(interrupted) < KILLS and len(line) > 1 and not last.is_signing and last.certificate not in interrupted:
            kept.installation.stop_controller(controller, kill=True)
            interrupted.add(last.certificate)
            controller = kept.installation.start_controller("--store", a_redis.url, *OWN, *SHORT)
        assert time.monotonic() < deadline, (len(interrupted), len(seen), len(line), kept.installation.log(controller))
    assert len(seen) > KILLS


def test_changed_ca_bundles_are_restored(kept: ManagedCertificates, a_redis: RedisServer) -> None:
    """Checklist, 6: not only at a rotation."""
    controller = led(kept, a_redis)
    foreign = base64.b64encode(bundle_of_a_stranger()).decode()
    for place in CONFIGURATIONS:
        name = kept.configuration(place)["webhooks"][0]["name"]
        body = {"webhooks": [{"name": name, "clientConfig": {"caBundle": foreign}}]}
        kept.patch(f"/apis/admissionregistration.k8s.io/v1/{place}", body)
    kept.wait(lambda: set(kept.bundles()) == {bundle(kept.generations())}, "the bundles")
    total = "podgate_ca_bundle_mended_total"
    kept.wait(lambda: controller.total(total) == len(CONFIGURATIONS), "all to be counted")
    data = {"ca.crt": foreign, "serving-ca.crt": foreign}
    kept.patch(f"{_SECRETS}/{SERVING}", {"data": data})
    kept.wait(lambda: kept.data(SERVING, "ca.crt") == bundle(kept.generations(CLIENT_CA)), "the clients' bundle")
    kept.wait(lambda: kept.data(SERVING, "serving-ca.crt") == bundle(kept.generations()), "the serving bundle")
    assert len(kept.generations()) == 1, "nobody has adopted a stranger"
    metadata = {"annotations": {INJECTED_FROM: CERTIFICATE}}
    path = f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATIONS[0]}"
    kept.patch(path, {"metadata": metadata})
    kept.wait(
        lambda: INJECTED_FROM not in (kept.configuration(CONFIGURATIONS[0])["metadata"].get("annotations") or {}),
        "the injector to be kept away: one writer",
    )


@pytest.mark.parametrize("name", [SERVING, SERVING_CA, CLIENT_CA, CLIENT])
def test_secret_without_the_label_is_left_unchanged(kept: ManagedCertificates, a_redis: RedisServer, name: str) -> None:
    """Checklist, 5."""
    data = {"tls.crt": "c29tZWJvZHkncw==", "tls.key": "c29tZWJvZHkncw==", "line.json": "c29tZWJvZHkncw=="}
    kept.plane.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}
    )
    before, bundles = kept.secret(name), kept.bundles()
    controller = kept.installation.start_controller("--store", a_redis.url, *OWN)
    kept.wait(lambda: controller.status()["certificates"]["errors"], "an error to be shown")
    [error] = controller.status()["certificates"]["errors"][:1]
    assert f"Secret {NAMESPACE}/{name} is there without the label" in error
    assert "kubectl label secret" in error
    assert controller.total("podgate_certificate_troubles_total") >= 1
    time.sleep(2)
    assert kept.secret(name) == before
    if name in {SERVING, SERVING_CA}:
        assert kept.bundles() == bundles, "whoever serves with it is still trusted"
    delete_secrets(kept.plane, name)
    kept.wait(lambda: all(kept.secret(one) for one in SECRETS), "the Secrets")
    kept.wait(lambda: controller.status()["certificates"]["errors"] == [], "the error to be over")


def test_webhooks_applied_again_without_a_bundle_keep_their_ca_bundle(
    kept: ManagedCertificates, a_redis: RedisServer, tmp_path: Path
) -> None:
    """Whoever applies a new policy's webhooks does not undo a rotation, and is not refused for a conflict."""
    led(kept, a_redis)
    (tmp_path / "policy.yaml").write_text(kept.installation.policy)
    words = ("policy", "webhooks", "--policy", str(tmp_path / "policy.yaml"), "--without-ca")
    service = ("--service", f"{NAMESPACE}/podgate:{kept.installation.load_balancer.port}")
    command = [sys.executable, "-m", "webhook", *words, *service]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "caBundle" not in rendered
    bundles = kept.bundles()
    for place in CONFIGURATIONS:
        kept.plane.kubectl("delete", *place.split("/"))
    kept.plane.kubectl("apply", "--server-side", "-f", "-", input=rendered)
    kept.wait(lambda: kept.bundles() == bundles, "the bundles")
    again = rendered.replace("timeoutSeconds: 3\n", "timeoutSeconds: 4\n")
    kept.plane.kubectl("apply", "--server-side", "-f", "-", input=again)
    assert kept.bundles() == bundles


def test_manually_created_secrets_are_managed_once_labelled(kept: ManagedCertificates, a_redis: RedisServer) -> None:
    files = kept.installation.files
    caller = files.pki.client()
    ca, paths = files.pki.authority.key_pair.certificate, files.pki.paths
    pairs = {
        SERVING: (paths.certificate.read_bytes(), paths.key.read_bytes()),
        CLIENT: (pem(caller.certificate), key_pem(caller.key)),
    }
    for name, (certificate, key) in pairs.items():
        data = {"tls.crt": certificate, "tls.key": key, "ca.crt": pem(ca)}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {MANAGED_BY: OURS}}
        kept.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})
    shown = kept.tls / "tls.crt"
    kept.wait(lambda: shown.exists() and shown.read_bytes() == pairs[SERVING][0], "the Secret to be mounted")
    kept.installation.start_controller("--store", a_redis.url, *OWN)
    served(kept, a_redis, "--max-connection-age", "1s")
    kept.wait(lambda: len(kept.generations()) == len(kept.generations(CLIENT_CA)) == 2, "new CAs beside the old one")
    kept.wait(lambda: set(kept.bundles()) == {bundle(kept.generations())}, "the bundles")
    assert kept.generations()[0].certificate == kept.generations(CLIENT_CA)[0].certificate == ca
    assert [kept.data(name, "tls.crt") for name in pairs] == [certificate for certificate, _ in pairs.values()]
    assert kept.create_pod() == 201


def test_host_of_a_webhook_url_becomes_a_san_and_leaves_are_recorded_before_use(
    kept: ManagedCertificates, a_redis: RedisServer
) -> None:
    """Checklist, 9, and 1: a leaf that nobody knows of could outlive the trust in its CA."""
    controller = led(kept, a_redis)
    former = kept.leaf()
    assert former is not None
    time.sleep(1)
    kept.patch(f"{_SECRETS}/{SERVING}", {"immutable": True})
    [entry, *_] = kept.configuration(CONFIGURATIONS[0])["webhooks"]
    client = {"service": None, "url": "https://192.0.2.7:8443/mutate"}
    body = {"webhooks": [{"name": entry["name"], "clientConfig": client}]}
    kept.patch(f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATIONS[0]}", body)
    kept.wait(lambda: "immutable" in str(controller.status()["certificates"]["errors"]), "an error to be shown")
    assert kept.leaf() == former
    ends = kept.generations()[0].leaves_end
    assert ends is not None
    assert ends > former.not_valid_after_utc
    delete_secrets(kept.plane, SERVING)
    kept.wait(kept.leaf, "its Secret to be made anew")
    leaf = kept.leaf()
    assert leaf is not None
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {san("ip:192.0.2.7"), *server_names("podgate.podgate-system.svc")} == set(names)


def test_lost_ca_is_replaced_and_its_leaves_stay_trusted(kept: ManagedCertificates, a_redis: RedisServer) -> None:
    """What to do at 3 a.m.: delete a CA's Secret, and both ends roll over to a new one."""
    led(kept, a_redis)
    [lost] = kept.generations()
    delete_secrets(kept.plane, SERVING_CA)
    kept.wait(lambda: len(kept.generations()) == 2, "another CA beside it")
    kept.wait(lambda: set(kept.bundles()) == {bundle(kept.generations())}, "the bundles")
    assert kept.generations()[0].certificate == lost.certificate
    assert signed_by(kept.leaf(), lost.certificate)  # type: ignore[arg-type]  # there is one


async def test_concurrent_change_is_not_overwritten_with_stale_data(
    kept: ManagedCertificates,
) -> None:
    """Checklist, 4: one that was stopped, and does not know that it leads no more."""
    client = await connect(kept.plane.kubeconfig)
    api = Api(client, lambda: True)
    vault = SecretStore(api)
    try:
        await vault.put(SERVING_CA, StoredSecret(), {"line.json": b"1"})
        with pytest.raises(OvertakenError):
            await vault.put(SERVING_CA, StoredSecret(), {"line.json": b"0"})
        stale = await vault.find(SERVING_CA)
        await vault.put(SERVING_CA, stale, {"line.json": b"2"})
        with pytest.raises(OvertakenError):
            await vault.put(SERVING_CA, stale, {"line.json": b"0"})
        assert kept.data(SERVING_CA, "line.json") == b"2"
        for place in CONFIGURATIONS:
            seen = await find(api, place)
            assert seen is not None
            await seen.publish(api, new := bundle_of_a_stranger())
            with pytest.raises(OvertakenError):
                await seen.publish(api, bundle_of_a_stranger())
            assert new in kept.bundles()
    finally:
        await client.close()


async def test_two_controllers_that_both_act_as_leader_break_nothing(kept: ManagedCertificates) -> None:
    """Checklist, 4: the Lease lets one write; where it fails, versions do."""
    lives = Lifetimes.of(timedelta(seconds=20), timedelta(seconds=10), timedelta(seconds=2))
    steps: list[str] = []
    silent = (lambda _: None, lambda _: None, lambda _: None, lambda: None)
    reports = loop.TaskReports(lambda done: steps.append(done.kind), *silent)
    client = await connect(kept.plane.kubeconfig)
    both = [
        asyncio.create_task(
            loop.run(client, lambda: True, [CaController(CertificatePlan(lives, lives))], reports, pause)
        )
        for pause in (0.2, 0.3)
    ]
    try:
        await asyncio.to_thread(kept.wait, lambda: kept.leaf(CLIENT) is not None and kept.leaf() is not None, "leaves")
        cas = set[x509.Certificate]()
        async with asyncio.timeout(HANG_SECONDS + 10 * CAS):
            while len(cas) < CAS:
                await asyncio.sleep(LOOK_SECONDS)
                cas |= await asyncio.to_thread(understand_each_other, kept)
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await client.close()


def understand_each_other(kept: ManagedCertificates) -> set[x509.Certificate]:
    """Check that each leaf is trusted everywhere, now; return the CAs."""
    leaf, caller = kept.leaf(), kept.leaf(CLIENT)
    assert leaf is not None
    assert caller is not None
    assert datetime.now(UTC) < min(leaf.not_valid_after_utc, caller.not_valid_after_utc)
    trusts = [x509.load_pem_x509_certificates(text) for text in (*kept.bundles(), kept.data(SERVING, "serving-ca.crt"))]
    clients = x509.load_pem_x509_certificates(kept.data(SERVING, "ca.crt"))
    if (leaf, caller) != (kept.leaf(), kept.leaf(CLIENT)):
        return understand_each_other(kept)  # a look is not of one moment, and a CA may go when its last leaf has
    assert all(any(signed_by(leaf, ca) for ca in trust) for trust in trusts)
    assert any(signed_by(caller, ca) for ca in clients)
    return {*trusts[0], *clients}


def test_rights_to_secrets_are_by_name_and_do_not_include_list(kept: ManagedCertificates) -> None:
    """Checklist, 10. A server that shares a store has none of them: the CAs' keys are for the controller alone."""
    kept.plane.kubectl("apply", "-k", str(MANIFESTS / "redis"))
    kept.plane.kubectl("apply", "-k", str(MANIFESTS / "certificates"))

    def may(account: str, verb: str, what: str, namespace: str = NAMESPACE) -> bool:
        who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
        answer = kept.plane.kubectl("auth", "can-i", verb, what, who, "-n", namespace, check=False).stdout
        return answer.strip() == "yes"

    account = CONTROLLER_ACCOUNT
    assert all(may(account, "get", f"secrets/{name}") for name in SECRETS)
    assert not any(may(account, verb, "secrets") for verb in ("list", "watch", "get", "update", "patch", "delete"))
    assert not any(may(account, verb, f"secrets/{SERVING_CA}") for verb in ("list", "watch", "patch", "delete"))
    assert not may(account, "get", "secrets/somebody-elses")
    assert not may(account, "create", "secrets", "default")
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        assert may(account, "patch", f"{kind}/podgate")
        assert not may(account, "patch", f"{kind}/somebody-elses")
        assert not any(may(account, verb, kind) for verb in ("list", "patch", "update", "create", "delete"))
    assert not any(may(SERVICE_ACCOUNT, "get", f"secrets/{name}") for name in SECRETS)
    assert not may(SERVICE_ACCOUNT, "create", "secrets")


def test_with_cert_manager_only_the_injector_annotation_is_written(
    kept: ManagedCertificates, a_redis: RedisServer
) -> None:
    """No cert-manager runs here: that it takes its own annotation for an order is its business."""
    bundles = kept.bundles()
    controller = kept.installation.start_controller("--store", a_redis.url, "--certificates", "cert-manager")

    def annotated() -> bool:
        metadata = [kept.configuration(place)["metadata"] for place in CONFIGURATIONS]
        return all(one.get("annotations", {}).get(INJECTED_FROM) == CERTIFICATE for one in metadata)

    kept.wait(annotated, "the annotations")
    path = f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATIONS[0]}"
    kept.patch(path, {"metadata": {"annotations": {INJECTED_FROM: None}}})
    kept.wait(annotated, "the annotation to be put back")
    assert controller.total("podgate_ca_bundle_mended_total") == 1
    assert kept.bundles() == bundles
    assert [name for name in SECRETS if kept.secret(name)] == []


def test_server_with_the_memory_store_manages_certificates(kept: ManagedCertificates, a_redis: RedisServer) -> None:
    controller = led(kept, a_redis)
    kept.installation.stop_controller(controller)
    [ca] = kept.generations()
    kept.plane.kubectl("apply", "-k", str(MANIFESTS / "certificates-in-memory"))
    kept.wait((kept.tls / "tls.crt").exists, "the Secret to be mounted")
    server = kept.installation.start_server("--drain", "0s", *OWN)
    delete_secrets(kept.plane, SERVING)
    kept.wait(lambda: kept.secret(SERVING) is not None, "its Secret to be made anew")
    assert kept.generations()[0].certificate == ca.certificate
    assert server.total("podgate_certificate_renewals_total", f'secret="{SERVING}"') == 1
    for path in (MANIFESTS / "certificates-in-memory").glob("1*.yaml"):
        kept.plane.kubectl("delete", "-f", str(path))


def test_certificates_are_bootstrapped_manually_before_there_is_a_leader(kept: ManagedCertificates) -> None:
    flags = ("certs", "bootstrap", "--kubeconfig", str(kept.plane.kubeconfig))

    def bootstrap() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "webhook", *flags]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    done = bootstrap()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{SERVING}: issued by" in done.stdout
    assert all(kept.secret(name) for name in SECRETS)
    assert set(kept.bundles()) == {bundle(kept.generations())}
    assert bootstrap().stdout == "nothing to do: everything exists\n"
    [stolen], [stolen_too] = kept.generations(), kept.generations(CLIENT_CA)
    delete_secrets(kept.plane)
    assert bootstrap().returncode == 0
    assert set(kept.bundles()) == {bundle(kept.generations())}
    assert stolen.certificate not in [one.certificate for one in kept.generations()], "what to do when a key was stolen"
    assert stolen_too.certificate not in x509.load_pem_x509_certificates(kept.data(SERVING, "ca.crt"))
    kept.plane.kubectl("label", "secret", CLIENT, "-n", NAMESPACE, "app.kubernetes.io/managed-by-")
    done = bootstrap()
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: Secret {NAMESPACE}/{CLIENT} is there without the label")


def bundle_of_a_stranger() -> bytes:
    return pem(Authority.create().key_pair.certificate)
