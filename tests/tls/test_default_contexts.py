"""Default CAs of OpenSSL while libraries are imported."""

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.identity import Pki
from webhook.tls.context import skip_default_cas

_IMPORT = """
import json, ssl
from webhook.tls.context import skip_default_cas
with skip_default_cas():
    from aiohttp import connector
contexts = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED, ssl.create_default_context()
print(json.dumps([context.cert_store_stats()["x509_ca"] for context in contexts]))
"""


def test_aiohttp_loads_no_cas_and_later_contexts_do(tmp_path: Path) -> None:
    paths = Pki.create(tmp_path).paths
    environment = {**os.environ, "SSL_CERT_FILE": str(paths.client_ca)}
    found = subprocess.run([sys.executable, "-c", _IMPORT], env=environment, stdout=subprocess.PIPE, check=True)
    assert json.loads(found.stdout) == [0, 0, 1]


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/some/file")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with skip_default_cas():
        assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 0
    assert os.environ["SSL_CERT_FILE"] == "/some/file"
    assert "SSL_CERT_DIR" not in os.environ
