"""Kubeconfigs and proxy variables mean to Podgate what they mean to kubectl."""

import base64
import json
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.binaries import binaries
from tests.cluster.go_programs import NO_COLLECTIONS
from webhook.adapters.kubernetes.api.kubeconfig_document import load_kubeconfig
from webhook.adapters.kubernetes.api.proxy import find_proxy
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

Json = dict[str, Any]
NAMES = ("east", "west", "north")
CASES = 24


def kubectl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(binaries().kubectl), *arguments]
    return subprocess.run(command, env=environment | NO_COLLECTIONS, check=False, capture_output=True, text=True)


# Several files


def entries(choice: random.Random, folder: Path) -> Json:
    """Return some entries, with paths relative to the folder of their file."""
    clusters, users, contexts = [], [], []
    for name in choice.sample(NAMES, choice.randint(0, len(NAMES))):
        number = choice.randint(1, 99)
        (folder / f"ca-{number}.crt").write_text(f"authority {number}")
        (folder / f"client-{number}").write_text(f"client {number}")
        trust: Json = choice.choice(
            ({"certificate-authority": f"ca-{number}.crt"}, {"insecure-skip-tls-verify": True}, {})
        )
        more: Json = choice.choice(({"proxy-url": f"http://p{number}:1"}, {"tls-server-name": f"n{number}"}, {}))
        clusters.append({"name": name, "cluster": {"server": f"https://{name}-{number}:6443", **trust, **more}})
        pair = {"client-certificate": f"client-{number}", "client-key": f"../{folder.name}/client-{number}"}
        user: Json = choice.choice((pair, {"token": f"t{number}"}, {"tokenFile": f"token-{number}"}, {}))
        users.append({"name": name, "user": user})
        contexts.append({"name": name, "context": {"cluster": name, "user": name, "namespace": f"space-{number}"}})
    return {"clusters": clusters, "users": users, "contexts": contexts}


def write_files(choice: random.Random, folder: Path) -> str:
    """Write some kubeconfigs, and return their list: some files are missing, empty, or listed twice."""
    paths = []
    for index in range(choice.randint(1, 4)):
        place = folder / f"folder-{index}"
        place.mkdir()
        paths.append(place / "config")
        kind = choice.choice(("whole", "whole", "whole", "empty", "missing"))
        if kind == "whole":
            current: Json = choice.choice(({"current-context": choice.choice(NAMES)}, {"current-context": ""}, {}))
            head = {"apiVersion": "v1", "kind": "Config"}
            paths[-1].write_text(yaml.safe_dump({**head, **entries(choice, place), **current}))
        elif kind == "empty":
            paths[-1].write_text("")
    listed = [*map(str, paths), *choice.sample(["", str(paths[0])], choice.randint(0, 2))]
    return os.pathsep.join(listed)


def flatten(document: Json) -> Json:
    """Return a document as `kubectl config view --flatten` prints it: files of certificates inlined, names sorted."""
    found: Json = {"current-context": document["current-context"]}
    for name, key in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
        found[name] = {entry["name"]: _inline(entry.get(key) or {}) for entry in document[name] or ()}
    return found


def _inline(value: Json) -> Json:
    for field in ("certificate-authority", "client-certificate", "client-key"):
        if field in value:
            content = Path(value[field]).read_bytes()
            value = {name: content for name, content in value.items() if name != field}
            value[f"{field}-data"] = base64.b64encode(content).decode()
    if "tokenFile" in value:  # kubectl shows it relative again
        value = {**value, "tokenFile": Path(value["tokenFile"]).name}
    return value


@pytest.mark.parametrize("seed", range(CASES))
def test_files_are_merged_as_by_kubectl(seed: int, tmp_path: Path) -> None:
    listed = write_files(random.Random(seed), tmp_path)  # noqa: S311  the same cases in each run
    seen = kubectl("config", "view", "--flatten", "-o", "json", KUBECONFIG=listed, HOME=str(tmp_path))
    assert seen.returncode == 0, seen.stderr
    expected = flatten(json.loads(seen.stdout))
    asked = Kubeconfig.from_text(listed, "east")
    if asked.exists():
        document = load_kubeconfig(asked)
        assert flatten(document) == expected
        tokens = [user["user"]["tokenFile"] for user in document["users"] if "tokenFile" in user["user"]]
        assert all(Path(token).is_absolute() for token in tokens)
    else:
        assert not any(expected.values()), "kubectl takes an empty kubeconfig, and asks localhost"
        with pytest.raises(UserError, match="cannot read the kubeconfig: No such file"):
            load_kubeconfig(asked)


def test_plugin_of_a_path_is_relative_to_its_file(tmp_path: Path) -> None:
    plugin = tmp_path / "bin" / "plugin"
    plugin.parent.mkdir()
    plugin.write_text(f"#!/bin/sh\necho called >> {tmp_path}/calls\nexit 1\n")
    plugin.chmod(0o755)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "./bin/plugin"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [
            {"name": "near", "user": {"exec": command}},
            {"name": "by path", "user": {"exec": {**command, "command": "plugin"}}},
        ],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "near"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    listed = str(tmp_path / "config")
    kubectl("get", "--raw", "/readyz", KUBECONFIG=listed, HOME=str(tmp_path))
    assert (tmp_path / "calls").exists(), "kubectl, started elsewhere, has found it"
    found = load_kubeconfig(Kubeconfig.from_text(listed))["users"]
    assert [user["user"]["exec"]["command"] for user in found] == [str(plugin), "plugin"]


@pytest.mark.parametrize("text", ["[]", "clusters: {}", "clusters: [{name: a}, {name: a}]", "a: [", "users: [7]"])
def test_file_that_kubectl_refuses_is_refused_even_beside_a_good_one(tmp_path: Path, text: str) -> None:
    good = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
    (tmp_path / "good").write_text(yaml.safe_dump(good))
    (tmp_path / "bad").write_text(text if text.startswith("[") else f"apiVersion: v1\nkind: Config\n{text}\n")
    listed = f"{tmp_path}/good{os.pathsep}{tmp_path}/bad"
    assert kubectl("config", "view", KUBECONFIG=listed).returncode == 1
    with pytest.raises(UserError, match=f"^{tmp_path}/bad: not a usable kubeconfig"):
        load_kubeconfig(Kubeconfig.from_text(listed))


# Proxies


@contextmanager
def run_counting_proxy() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the URL of a proxy that closes each connection, and the beginning of what each has sent."""
    sent: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    sent.append(connection.recv(64))

        accepting = thread.submit(accept)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", sent
        listener.shutdown(socket.SHUT_RDWR)
        accepting.result()


@pytest.mark.parametrize(
    ("server", "exceptions"),
    [
        ("https://far.invalid:6443", None),
        ("http://far.invalid:6443", None),
        ("https://localhost:1", None),
        ("https://127.0.0.1:1", None),
        ("https://127.9.9.9:1", None),
        ("https://[::1]:1", None),
        ("https://[::ffff:127.0.0.1]:1", None),
        ("https://10.96.0.1:443", None),
        ("https://10.96.0.1:443", "10.96.0.0/12"),
        ("https://10.96.0.1:443", "10.0.0.0/12"),
        ("https://10.96.0.1:443", "10.96.0.1:443"),
        ("https://10.96.0.1:443", "10.96.0.1:6443"),
        ("https://far.invalid:6443", "far.invalid"),
        ("https://far.invalid:6443", "invalid"),
        ("https://far.invalid:6443", ".invalid"),
        ("https://far.invalid:6443", "*.invalid"),
        ("https://far.invalid:6443", "*invalid"),
        ("https://far.invalid:6443", ".far.invalid"),
        ("https://FAR.invalid:6443", "far.INVALID"),
        ("https://far.invalid:6443", "ar.invalid"),
        ("https://far.invalid:6443", "far.invalid:443, other"),
        ("https://far.invalid", "far.invalid:443"),
        ("https://far.invalid:6443", "*"),
        ("https://far.invalid:6443", ":6443,,"),
    ],
)
def test_proxy_is_asked_for_the_servers_that_kubectl_asks_it_for(
    server: str, exceptions: str | None, tmp_path: Path
) -> None:
    with run_counting_proxy() as (url, sent):
        environment = {f"{server.split(':', 1)[0].upper()}_PROXY": url, "HOME": str(tmp_path)}
        environment |= {} if exceptions is None else {"NO_PROXY": exceptions}
        done = kubectl(
            "--server", server, "--request-timeout", "2s", "--token", "x", "get", "--raw", "/readyz", **environment
        )
        assert done.returncode == 1
        is_asked = bool(sent)
    assert (find_proxy(server, environment) == url) is is_asked
    assert find_proxy(server, {name.lower(): value for name, value in environment.items()}) == find_proxy(
        server, environment
    )
