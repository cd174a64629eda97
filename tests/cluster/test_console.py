"""The console on a real API server: TokenReview and SubjectAccessReview, and the commands' own console."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import aiohttp
import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.forwarded_pods import FORWARDS, LISTS, NAMESPACE, grant, run_pods
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.kubelet_ports import kubelet_ports
from tests.harness.console_process import start_console
from tests.harness.server_process import Files, Serving, pod, run_server
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import Ask
from webhook.console.registry import list_acts

SHOP = "console-shop"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {{namespaces: [{SHOP}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}]}}
"""
BINDING = "podgate-console"
FLAGS = ("--drain", "0s", "--decision-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0")
_RBAC = "rbac.authorization.k8s.io"
STATUS = {
    "apiGroups": [""],
    "resources": ["services/proxy"],
    "resourceNames": ["http:podgate-metrics:plain"],
    "verbs": ["get"],
}


@pytest.fixture(scope="module")
def shop(api_alone: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with install_podgate(api_alone, identities.files, POLICY, [SHOP], arguments=FLAGS) as installation:
        for account in ("viewer", "nobody"):
            metadata = {"name": account, "namespace": NAMESPACE}
            api_alone.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        user = f"system:serviceaccount:{NAMESPACE}:viewer"
        grant(api_alone, user, STATUS)
        yield installation
        api_alone.delete(f"/apis/{_RBAC}/v1/clusterrolebindings/{BINDING}")


def delegate(plane: ControlPlane) -> None:
    """Let the server ask, by the command on the page."""
    account = f"--serviceaccount={NAMESPACE}:podgate"
    plane.kubectl("create", "clusterrolebinding", BINDING, "--clusterrole=system:auth-delegator", account)


def read(shop: Installation, path: str, token: str, method: str = "GET") -> tuple[int, str]:
    [server] = shop.servers
    line = next(line for line in shop.log(server).splitlines() if '"msg":"listening"' in line)
    [address] = json.loads(line)["console"]
    headers = {"Authorization": f"Bearer {token}", "Sec-Fetch-Site": "same-origin"}
    request = Request(f"http://{address}{path}", headers=headers, method=method)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=HANG_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_viewer_sees_what_rbac_lets_them_see(api_alone: ControlPlane, shop: Installation) -> None:
    viewer, nobody = (api_alone.create_token(account, NAMESPACE) for account in ("viewer", "nobody"))
    status, page = read(shop, "/", viewer)
    assert status == 502
    assert "create tokenreviews" in page
    assert "bind ClusterRole system:auth-delegator to the user of this server" in page
    delegate(api_alone)

    def is_delegated() -> bool:
        return read(shop, "/", viewer)[0] != 502

    api_alone.wait(is_delegated, "the right to review", "kube-apiserver")
    status, page = read(shop, "/api/v1/services", viewer)
    assert status == 200, page
    document: dict[str, Any] = json.loads(page)
    assert [row["name"] for row in document["rows"]] == ["web"]
    assert f"as system:serviceaccount:{NAMESPACE}:viewer" in read(shop, "/", viewer)[1]
    status, page = read(shop, "/", nobody)
    assert status == 403
    assert f"system:serviceaccount:{NAMESPACE}:nobody may not read the status of Podgate" in page
    assert read(shop, "/", viewer[:-2])[0] == 401
    for method in ("POST", "PUT", "DELETE"):
        assert read(shop, "/", viewer, method)[0] == 405
    for path in [act.path.format(name="web", variant="spot") for act in list_acts()]:
        assert {read(shop, path, viewer, method)[0] for method in ("GET", "POST")} == {404}, path


def test_a_viewer_of_one_namespace_sees_its_pods_only(api_alone: ControlPlane, shop: Installation) -> None:
    subject = {"kind": "ServiceAccount", "name": "podgate", "namespace": NAMESPACE}
    role = {"kind": "ClusterRole", "name": "system:auth-delegator", "apiGroup": _RBAC}
    kind = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": BINDING}}
    tenant = {"metadata": {"name": "tenant", "namespace": SHOP}, "apiVersion": f"{_RBAC}/v1"}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    account = {"kind": "ServiceAccount", "name": "tenant", "namespace": NAMESPACE}
    api_alone.apply(
        {**kind, "roleRef": role, "subjects": [subject]},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant", "namespace": NAMESPACE}},
        {**tenant, "kind": "Role", "rules": [rule]},
        {
            **tenant,
            "kind": "RoleBinding",
            "roleRef": {"kind": "Role", "name": "tenant", "apiGroup": _RBAC},
            "subjects": [account],
        },
    )
    assert {shop.create_pod(SHOP, f"seen-{number}")[0] for number in range(3)} >= {429}
    token, viewer = (api_alone.create_token(name, NAMESPACE) for name in ("tenant", "viewer"))
    story = f"/explain?pod={SHOP}/seen-2"

    def is_told() -> bool:
        return "verdict" in read(shop, story, token)[1]

    api_alone.wait(is_told, "the right to list the Pods of one namespace", "kube-apiserver")
    page = read(shop, story, token)[1]
    assert '<h2 id="verdict">Denied</h2>' in page
    assert "/service/web" not in page
    assert "you may not list the Pods of default" in read(shop, "/explain?pod=default/seen-2", token)[1]
    assert f"you may not list the Pods of {SHOP}" in read(shop, story, viewer)[1]
    assert read(shop, "/service/web", token)[0] == 403
    status, page = read(shop, "/service/web", viewer)
    assert (status, "seen-2" in page, "in a namespace that you may not read" in page) == (200, False, True)
    for path in ("/nodes", "/api/v1/nodes"):
        assert (read(shop, path, token)[0], read(shop, path, viewer)[0]) == (403, 200)
    page = read(shop, "/queue", token)[1]
    assert "You see the waiting Pods of namespaces whose Pods you may list" in page
    assert "You may not list the Pods of default" in read(shop, "/queue?namespace=default", token)[1]


async def test_the_users_own_rights_decide_what_podgate_console_reads(api_alone: ControlPlane, tmp_path: Path) -> None:
    pki = api_alone.folder / "pki"
    async with run_server(Files.create(tmp_path)) as server:
        for number in range(5):
            body = pod("payment-api")
            body["metadata"]["name"] = f"web-{number}"
            await server.create(Ask(body, "payments", f"uid-{number}", "alice"))
        ports = {("podgate-0", 8082): server.decisions}
        with (
            kubelet_ports(pki / "apiserver.crt", pki / "apiserver.key", ports) as port,
            run_pods(api_alone, "podgate", ["podgate-0"], port),
        ):
            page, warnings, story = await look(tmp_path, server, grant(api_alone, "console-operator", LISTS, FORWARDS))
            assert sum(page["rows"][0]["denied"]) >= 2
            assert (story["report"]["token"], story["exitCode"]) == ("Denied", 3)
            assert "you may not get pods named web-4 in payments" in " ".join(story["report"]["unread"].values())
            assert "denials are not shown" not in warnings
            page, warnings, story = await look(tmp_path, server, grant(api_alone, "console-reader", LISTS))
    # Another test's server may listen on port 8082 of this machine, which is tried last.
    if "denials are not shown" in warnings:
        assert page["rows"][0]["name"] == "payment-api"
        assert "grant the right to create pods/portforward in podgate-system" in "".join(page["problems"])
        assert story["exitCode"] == 4
        assert "records: " in "".join(story["unread"])


async def look(folder: Path, server: Serving, kubeconfig: Path) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return the services that a console with this kubeconfig shows, what it prints, and the story of a denied Pod."""
    arguments = ("--server", f"http://{server.plain}", "--kubeconfig", str(kubeconfig))
    process, address, log = await start_console(folder, *arguments)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.get(address) as answer:
            assert answer.status == 200
        async with session.get(address.partition("/?")[0] + "/api/v1/services") as answer:
            page: dict[str, Any] = await answer.json()
        async with session.get(address.partition("/?")[0] + "/api/v1/explain?pod=payments/web-4") as answer:
            story: dict[str, Any] = await answer.json()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 0
    return page, log.read_text(), story
