"""Managed certificates in a real cluster: bootstrap, rotation, drift, and Secrets of other owners."""

import asyncio
import base64
import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.authority import Authority, list_server_names, parse_san
from certs.ca_generations import encode_bundle, encode_pem
from certs.cluster import loop
from certs.cluster.api import Api, OvertakenError
from certs.cluster.ca_controller import CLIENT, CLIENT_CA, SERVING, SERVING_CA, CaController, CertificatePlan
from certs.cluster.injection import CERTIFICATE
from certs.cluster.secrets import MANAGED_BY, OURS, SecretStore, StoredSecret
from certs.cluster.webhooks import INJECTED_FROM, find
from certs.inspection import is_signed_by
from certs.lifetimes import Lifetimes
from certs.token_issuer import encode_key
from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE, stand_in_service
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import CONTROLLER_ACCOUNT, HALVES, MANIFESTS, SERVICE_ACCOUNT
from tests.cluster.managed_certificates import (
    CONFIGURATIONS,
    SECRETS,
    ManagedCertificates,
    delete_secrets,
    install_managed,
    run_managed_plane,
)
from tests.cluster.server import SHORT_INTERVALS, Server
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.kubernetes import connect

pytest_plugins = ("tests.redis_servers.fixtures",)

OWN = ("--certificates", "own")
SHORT = ("--serving-ca-lifetime", "60s", "--serving-lifetime", "30s")
IS_SOAK = os.environ.get("PODGATE_TEST_ROTATION") == "soak"
KILLS, PAUSE_SECONDS = (10, 0.0) if IS_SOAK else (2, 0.5)
"""Kills of the controller during rotations, and the pause between two batches of calls."""
BATCH, CALLS = (5, 200) if IS_SOAK else (2, 80)
"""Calls of a batch, and at least in all."""
CAS, CHECK_SECONDS = (100, 0.1) if IS_SOAK else (6, 0.3)
"""CAs of two concurrent leaders, and the interval between two checks of their leaves."""
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
    """Start an API server that uses the managed client certificate."""
    with run_managed_plane(identities, folder / "caller") as running:
        running.apply(*stand_in_service())
        yield running


@pytest.fixture
def managed(
    cluster: ControlPlane, identities: Identities, folder: Path, request: pytest.FixtureRequest
) -> Iterator[ManagedCertificates]:
    """Install Podgate for one namespace without a controller."""
    name = f"s{request.node.name.encode().hex()[-24:]}"  # with a letter: YAML reads digits alone as a number
    with install_managed(cluster, identities, folder, POLICY.replace("NAME", name), [f"kept-{name}"]) as certificates:
        certificates.installation.program = SHORT_INTERVALS
        yield certificates


def start_leader(managed: ManagedCertificates, redis: RedisServer, *arguments: str) -> Server:
    """Start a controller that manages certificates, and wait until all Secrets and bundles exist."""
    controller = managed.installation.start_controller("--store", redis.url, *OWN, *arguments)
    managed.wait(lambda: all(managed.secret(name) for name in SECRETS), "the Secrets")
    managed.wait(lambda: set(managed.bundles()) == {encode_bundle(managed.generations())}, "the bundles")
    return controller


def start_server(managed: ManagedCertificates, redis: RedisServer, *arguments: str) -> Server:
    """Start a server with the mounted files, and wait until it reviews Pods."""
    managed.wait((managed.tls / "tls.crt").exists, "the Secret to be mounted")
    server = managed.installation.start_server(
        "--store", redis.url, "--store-deadline", "10s", "--drain", "0s", *arguments
    )
    managed.wait(lambda: managed.create_pod() == 201, "a Pod to be reviewed")
    return server


def test_certificates_are_bootstrapped_until_calls_are_served(
    managed: ManagedCertificates, a_redis: RedisServer
) -> None:
    controller = start_leader(managed, a_redis)
    server = start_server(managed, a_redis)
    assert server.total("podgate_reviews_total", 'decision="Admit"') > 0
    status = controller.status()["certificates"]
    assert (status["keptBy"], status["errors"], sorted(status["secrets"])) == ("own", [], sorted(SECRETS))
    assert {controller.total("podgate_certificate_renewals_total", f'secret="{name}"') for name in SECRETS} == {1}
    leaf = managed.leaf()
    assert leaf is not None
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(list_server_names("podgate.podgate-system.svc")) == set(names), (
        "the certificate has all names of the Service"
    )
    assert managed.secret(SERVING)["type"] == "kubernetes.io/tls"
    assert (
        managed.data(CLIENT, "ca.crt")
        == managed.data(SERVING, "ca.crt")
        == encode_bundle(managed.generations(CLIENT_CA))
    )
    assert "PRIVATE" not in managed.installation.log(controller)


def test_rotation_under_load_with_a_killed_controller_loses_no_call(
    managed: ManagedCertificates, a_redis: RedisServer
) -> None:
    """Certificates have short lifetimes and are mounted from a Secret."""
    controller = start_leader(managed, a_redis, *SHORT)
    start_server(managed, a_redis, "--max-connection-age", "1s")
    [first] = managed.generations()
    status_codes, cas, interrupted_cas = Counter[int](), {first.certificate}, set[x509.Certificate]()
    deadline = time.monotonic() + 300 * KILLS
    while (
        len(interrupted_cas) < KILLS
        or sum(status_codes.values()) <= CALLS
        or any(encode_bundle((first,)) in trusted for trusted in managed.bundles())
    ):
        status_codes.update(managed.create_pod() for _ in range(BATCH))
        assert set(status_codes) == {201}, (status_codes, managed.installation.log(controller, 30))
        time.sleep(PAUSE_SECONDS)  # to leave CPU time for other processes
        line = managed.generations()
        cas |= {generation.certificate for generation in line}
        last = line[-1]
        if (
            len(interrupted_cas) < KILLS
            and len(line) > 1
            and not last.is_signing
            and last.certificate not in interrupted_cas
        ):
            managed.installation.stop_controller(controller, kill=True)
            interrupted_cas.add(last.certificate)
            controller = managed.installation.start_controller("--store", a_redis.url, *OWN, *SHORT)
        assert time.monotonic() < deadline, (
            len(interrupted_cas),
            len(cas),
            len(line),
            managed.installation.log(controller),
        )
    assert len(cas) > KILLS


def test_changed_ca_bundles_are_restored(managed: ManagedCertificates, a_redis: RedisServer) -> None:
    """Bundles are restored between rotations too."""
    controller = start_leader(managed, a_redis)
    foreign = base64.b64encode(foreign_bundle()).decode()
    for place in CONFIGURATIONS:
        name = managed.configuration(place)["webhooks"][0]["name"]
        body = {"webhooks": [{"name": name, "clientConfig": {"caBundle": foreign}}]}
        managed.patch(f"/apis/admissionregistration.k8s.io/v1/{place}", body)
    managed.wait(lambda: set(managed.bundles()) == {encode_bundle(managed.generations())}, "the bundles")
    total = "podgate_ca_bundle_mended_total"
    managed.wait(lambda: controller.total(total) == len(CONFIGURATIONS), "all to be counted")
    data = {"ca.crt": foreign, "serving-ca.crt": foreign}
    managed.patch(f"{_SECRETS}/{SERVING}", {"data": data})
    managed.wait(
        lambda: managed.data(SERVING, "ca.crt") == encode_bundle(managed.generations(CLIENT_CA)), "the clients' bundle"
    )
    managed.wait(
        lambda: managed.data(SERVING, "serving-ca.crt") == encode_bundle(managed.generations()), "the serving bundle"
    )
    assert len(managed.generations()) == 1, "no foreign CA was adopted"
    metadata = {"annotations": {INJECTED_FROM: CERTIFICATE}}
    path = f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATIONS[0]}"
    managed.patch(path, {"metadata": metadata})
    managed.wait(
        lambda: INJECTED_FROM not in (managed.configuration(CONFIGURATIONS[0])["metadata"].get("annotations") or {}),
        "the injector's annotation to be removed",
    )


@pytest.mark.parametrize("name", [SERVING, SERVING_CA, CLIENT_CA, CLIENT])
def test_secret_without_the_label_is_left_unchanged(
    managed: ManagedCertificates, a_redis: RedisServer, name: str
) -> None:
    """Secrets of other owners must not be changed."""
    data = {"tls.crt": "c29tZWJvZHkncw==", "tls.key": "c29tZWJvZHkncw==", "line.json": "c29tZWJvZHkncw=="}
    managed.plane.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}
    )
    before, bundles = managed.secret(name), managed.bundles()
    controller = managed.installation.start_controller("--store", a_redis.url, *OWN)
    managed.wait(lambda: controller.status()["certificates"]["errors"], "an error to be shown")
    [error] = controller.status()["certificates"]["errors"][:1]
    assert f"Secret {NAMESPACE}/{name} is there without the label" in error
    assert "kubectl label secret" in error
    assert controller.total("podgate_certificate_troubles_total") >= 1
    time.sleep(2)
    assert managed.secret(name) == before
    if name in {SERVING, SERVING_CA}:
        assert managed.bundles() == bundles, "the CA of the foreign certificate stays trusted"
    delete_secrets(managed.plane, name)
    managed.wait(lambda: all(managed.secret(name) for name in SECRETS), "the Secrets")
    managed.wait(lambda: controller.status()["certificates"]["errors"] == [], "the error to end")


def test_webhooks_applied_again_without_a_bundle_keep_their_ca_bundle(
    managed: ManagedCertificates, a_redis: RedisServer, tmp_path: Path
) -> None:
    """Applying the webhooks of a new policy does not revert a rotation and causes no conflict."""
    start_leader(managed, a_redis)
    (tmp_path / "policy.yaml").write_text(managed.installation.policy)
    command_words = ("policy", "webhooks", "--policy", str(tmp_path / "policy.yaml"), "--without-ca")
    service = ("--service", f"{NAMESPACE}/podgate:{managed.installation.load_balancer.port}")
    rendered = podgate(*command_words, *service).out
    assert "caBundle" not in rendered
    bundles = managed.bundles()
    for place in CONFIGURATIONS:
        managed.plane.delete(f"/apis/admissionregistration.k8s.io/v1/{place}")
    managed.plane.kubectl("apply", "--server-side", "-f", "-", input=rendered)
    managed.wait(lambda: managed.bundles() == bundles, "the bundles")
    changed = rendered.replace("timeoutSeconds: 3\n", "timeoutSeconds: 4\n")
    managed.plane.kubectl("apply", "--server-side", "-f", "-", input=changed)
    assert managed.bundles() == bundles


def test_manually_created_secrets_are_managed_once_labelled(managed: ManagedCertificates, a_redis: RedisServer) -> None:
    files = managed.installation.files
    caller = files.pki.client()
    ca, paths = files.pki.authority.key_pair.certificate, files.pki.paths
    pairs = {
        SERVING: (paths.certificate.read_bytes(), paths.key.read_bytes()),
        CLIENT: (encode_pem(caller.certificate), encode_key(caller.key)),
    }
    for name, (certificate, key) in pairs.items():
        data = {"tls.crt": certificate, "tls.key": key, "ca.crt": encode_pem(ca)}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {MANAGED_BY: OURS}}
        managed.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})
    mounted_certificate = managed.tls / "tls.crt"
    managed.wait(
        lambda: mounted_certificate.exists() and mounted_certificate.read_bytes() == pairs[SERVING][0],
        "the Secret to be mounted",
    )
    managed.installation.start_controller("--store", a_redis.url, *OWN)
    start_server(managed, a_redis, "--max-connection-age", "1s")
    managed.wait(
        lambda: len(managed.generations()) == len(managed.generations(CLIENT_CA)) == 2, "new CAs beside the old one"
    )
    managed.wait(lambda: set(managed.bundles()) == {encode_bundle(managed.generations())}, "the bundles")
    assert managed.generations()[0].certificate == managed.generations(CLIENT_CA)[0].certificate == ca
    assert [managed.data(name, "tls.crt") for name in pairs] == [certificate for certificate, _ in pairs.values()]
    assert managed.create_pod() == 201


def test_host_of_a_webhook_url_becomes_a_san_and_leaves_are_recorded_before_use(
    managed: ManagedCertificates, a_redis: RedisServer
) -> None:
    """A leaf without a record could outlive the trust in its CA."""
    controller = start_leader(managed, a_redis)
    old_leaf = managed.leaf()
    assert old_leaf is not None
    time.sleep(1)
    managed.patch(f"{_SECRETS}/{SERVING}", {"immutable": True})
    [entry, *_] = managed.configuration(CONFIGURATIONS[0])["webhooks"]
    client = {"service": None, "url": "https://192.0.2.7:8443/mutate"}
    body = {"webhooks": [{"name": entry["name"], "clientConfig": client}]}
    managed.patch(f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATIONS[0]}", body)
    managed.wait(lambda: "immutable" in str(controller.status()["certificates"]["errors"]), "an error to be shown")
    assert managed.leaf() == old_leaf
    leaves_end = managed.generations()[0].leaves_end
    assert leaves_end is not None
    assert leaves_end > old_leaf.not_valid_after_utc
    delete_secrets(managed.plane, SERVING)
    managed.wait(managed.leaf, "its Secret to be recreated")
    leaf = managed.leaf()
    assert leaf is not None
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {parse_san("ip:192.0.2.7"), *list_server_names("podgate.podgate-system.svc")} == set(names)


def test_lost_ca_is_replaced_and_its_leaves_stay_trusted(managed: ManagedCertificates, a_redis: RedisServer) -> None:
    """An emergency procedure: after the deletion of a CA's Secret, both peers switch to a new CA."""
    start_leader(managed, a_redis)
    [lost] = managed.generations()
    delete_secrets(managed.plane, SERVING_CA)
    managed.wait(lambda: len(managed.generations()) == 2, "another CA beside it")
    managed.wait(lambda: set(managed.bundles()) == {encode_bundle(managed.generations())}, "the bundles")
    assert managed.generations()[0].certificate == lost.certificate
    assert is_signed_by(managed.leaf(), lost.certificate)  # type: ignore[arg-type]  # there is one


async def test_concurrent_change_is_not_overwritten_with_stale_data(
    managed: ManagedCertificates,
) -> None:
    """A suspended controller may continue to write after it has lost the Lease."""
    client = await connect(managed.plane.kubeconfig)
    api = Api(client, lambda: True)
    secret_store = SecretStore(api)
    try:
        await secret_store.put(SERVING_CA, StoredSecret(), {"line.json": b"1"})
        with pytest.raises(OvertakenError):
            await secret_store.put(SERVING_CA, StoredSecret(), {"line.json": b"0"})
        stale = await secret_store.find(SERVING_CA)
        await secret_store.put(SERVING_CA, stale, {"line.json": b"2"})
        with pytest.raises(OvertakenError):
            await secret_store.put(SERVING_CA, stale, {"line.json": b"0"})
        assert managed.data(SERVING_CA, "line.json") == b"2"
        for place in CONFIGURATIONS:
            configuration = await find(api, place)
            assert configuration is not None
            await configuration.publish(api, new := foreign_bundle())
            with pytest.raises(OvertakenError):
                await configuration.publish(api, foreign_bundle())
            assert new in managed.bundles()
    finally:
        await client.close()


async def test_two_controllers_that_both_act_as_leader_break_nothing(managed: ManagedCertificates) -> None:
    """If the Lease fails to exclude a second writer, resource versions do."""
    lifetimes = Lifetimes.from_settle_max(timedelta(seconds=20), timedelta(seconds=10), timedelta(seconds=2))
    steps: list[str] = []
    no_reports = (lambda _: None, lambda _: None, lambda _: None, lambda: None)
    reports = loop.TaskReports(lambda done: steps.append(done.kind), *no_reports)
    client = await connect(managed.plane.kubeconfig)
    tasks = [
        asyncio.create_task(
            loop.run(client, lambda: True, [CaController(CertificatePlan(lifetimes, lifetimes))], reports, pause)
        )
        for pause in (0.2, 0.3)
    ]
    try:
        await asyncio.to_thread(
            managed.wait, lambda: managed.leaf(CLIENT) is not None and managed.leaf() is not None, "leaves"
        )
        cas = set[x509.Certificate]()
        async with asyncio.timeout(HANG_SECONDS + 10 * CAS):
            while len(cas) < CAS:
                await asyncio.sleep(CHECK_SECONDS)
                cas |= await asyncio.to_thread(check_leaves, managed)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


def check_leaves(managed: ManagedCertificates) -> set[x509.Certificate]:
    """Check that each leaf verifies against all bundles; return the CAs."""
    leaf, caller = managed.leaf(), managed.leaf(CLIENT)
    assert leaf is not None
    assert caller is not None
    assert datetime.now(UTC) < min(leaf.not_valid_after_utc, caller.not_valid_after_utc)
    bundles = [
        x509.load_pem_x509_certificates(text) for text in (*managed.bundles(), managed.data(SERVING, "serving-ca.crt"))
    ]
    clients = x509.load_pem_x509_certificates(managed.data(SERVING, "ca.crt"))
    if (leaf, caller) != (managed.leaf(), managed.leaf(CLIENT)):
        return check_leaves(managed)  # a leaf was renewed between the reads
    assert all(any(is_signed_by(leaf, ca) for ca in trust) for trust in bundles)
    assert any(is_signed_by(caller, ca) for ca in clients)
    return {*bundles[0], *clients}


def test_rights_to_secrets_are_by_name_and_do_not_include_list(managed: ManagedCertificates) -> None:
    """A server with a shared store has no rights to Secrets: only the controller may read the CA keys."""
    managed.plane.kubectl("apply", "-k", str(MANIFESTS / "redis"))
    managed.plane.kubectl("apply", "-k", str(MANIFESTS / "certificates"))

    def is_allowed(account: str, verb: str, what: str, namespace: str = NAMESPACE) -> bool:
        return managed.plane.may(f"system:serviceaccount:{NAMESPACE}:{account}", verb, what, namespace)

    account = CONTROLLER_ACCOUNT
    assert all(is_allowed(account, "get", f"secrets/{name}") for name in SECRETS)
    assert not any(
        is_allowed(account, verb, "secrets") for verb in ("list", "watch", "get", "update", "patch", "delete")
    )
    assert not any(is_allowed(account, verb, f"secrets/{SERVING_CA}") for verb in ("list", "watch", "patch", "delete"))
    assert not is_allowed(account, "get", "secrets/somebody-elses")
    assert not is_allowed(account, "create", "secrets", "default")
    for half in HALVES:
        kind = f"{half}webhookconfigurations.admissionregistration.k8s.io"
        assert is_allowed(account, "patch", f"{kind}/podgate")
        assert not is_allowed(account, "patch", f"{kind}/somebody-elses")
        assert not any(is_allowed(account, verb, kind) for verb in ("list", "patch", "update", "create", "delete"))
    assert not any(is_allowed(SERVICE_ACCOUNT, "get", f"secrets/{name}") for name in SECRETS)
    assert not is_allowed(SERVICE_ACCOUNT, "create", "secrets")


def test_with_cert_manager_only_the_injector_annotation_is_written(
    managed: ManagedCertificates, a_redis: RedisServer
) -> None:
    """cert-manager itself does not run here."""
    bundles = managed.bundles()
    controller = managed.installation.start_controller("--store", a_redis.url, "--certificates", "cert-manager")

    def is_annotated() -> bool:
        metadata = [managed.configuration(place)["metadata"] for place in CONFIGURATIONS]
        return all(meta.get("annotations", {}).get(INJECTED_FROM) == CERTIFICATE for meta in metadata)

    managed.wait(is_annotated, "the annotations")
    path = f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATIONS[0]}"
    managed.patch(path, {"metadata": {"annotations": {INJECTED_FROM: None}}})
    managed.wait(is_annotated, "the annotation to be restored")
    assert controller.total("podgate_ca_bundle_mended_total") == 1
    assert managed.bundles() == bundles
    assert [name for name in SECRETS if managed.secret(name)] == []


def test_server_with_the_memory_store_manages_certificates(managed: ManagedCertificates, a_redis: RedisServer) -> None:
    controller = start_leader(managed, a_redis)
    managed.installation.stop_controller(controller)
    [ca] = managed.generations()
    managed.plane.kubectl("apply", "-k", str(MANIFESTS / "certificates-in-memory"))
    managed.wait((managed.tls / "tls.crt").exists, "the Secret to be mounted")
    server = managed.installation.start_server("--drain", "0s", *OWN)
    delete_secrets(managed.plane, SERVING)
    managed.wait(lambda: managed.secret(SERVING) is not None, "its Secret to be made anew")
    assert managed.generations()[0].certificate == ca.certificate
    assert server.total("podgate_certificate_renewals_total", f'secret="{SERVING}"') == 1
    for path in (MANIFESTS / "certificates-in-memory").glob("1*.yaml"):
        managed.plane.kubectl("delete", "-f", str(path))


def test_certificates_are_bootstrapped_manually_before_there_is_a_leader(managed: ManagedCertificates) -> None:
    flags = ("certs", "bootstrap", "--kubeconfig", str(managed.plane.kubeconfig))
    done = podgate(*flags)
    assert (done.code, done.err) == (0, "")
    assert f"{SERVING}: issued by" in done.out
    assert all(managed.secret(name) for name in SECRETS)
    assert set(managed.bundles()) == {encode_bundle(managed.generations())}
    assert podgate(*flags).out == "nothing to do: everything exists\n"
    [compromised], [compromised_client_ca] = managed.generations(), managed.generations(CLIENT_CA)
    delete_secrets(managed.plane)
    assert podgate(*flags).code == 0
    assert set(managed.bundles()) == {encode_bundle(managed.generations())}
    assert compromised.certificate not in [generation.certificate for generation in managed.generations()], (
        "after a key compromise the CA must be replaced"
    )
    assert compromised_client_ca.certificate not in x509.load_pem_x509_certificates(managed.data(SERVING, "ca.crt"))
    managed.plane.kubectl("label", "secret", CLIENT, "-n", NAMESPACE, "app.kubernetes.io/managed-by-")
    done = podgate(*flags)
    assert done.code == 1
    assert done.err.startswith(f"error: Secret {NAMESPACE}/{CLIENT} is there without the label")


def foreign_bundle() -> bytes:
    return encode_pem(Authority.create().key_pair.certificate)
