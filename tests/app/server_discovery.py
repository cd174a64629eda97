"""Helpers of the `server_discovery` tests that other tests use, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.harness.canned_http import Answers, serve_answers
from webhook.commands.clients import status_client

API = "/api/v1/namespaces/podgate-system"


PROXY = f"{API}/services/http:podgate-metrics:plain/proxy"


@pytest.fixture(autouse=True)
def unused_local_port(monkeypatch: pytest.MonkeyPatch) -> str:
    """Replace this machine's default port by one on which nothing listens."""
    with serve_answers({}) as url:
        pass
    monkeypatch.setattr(status_client, "DEFAULT_SERVER", url)
    return url


@contextmanager
def cluster(tmp_path: Path, answers: Answers) -> Iterator[Path]:
    """Yield the kubeconfig of an API server with these answers."""
    with serve_answers(answers) as url:
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": url}}],
            "users": [{"name": "x", "user": {}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        yield path
