"""Imports from kubernetes-asyncio."""

import json
import subprocess
import sys

_IMPORT = """
import json, sys
import webhook.adapters.kubernetes
from kubernetes_asyncio.client import ApiClient, Configuration
print(json.dumps([name for name in sys.modules if name.startswith("kubernetes_asyncio.client.")]))
"""


def test_its_models_and_apis_are_not_imported() -> None:
    found = subprocess.run([sys.executable, "-c", _IMPORT], stdout=subprocess.PIPE, check=True)
    modules = {name.removeprefix("kubernetes_asyncio.client.") for name in json.loads(found.stdout)}
    assert modules == {"models", "configuration", "exceptions", "rest", "api_client"}


def test_the_whole_library_is_used_where_it_has_been_imported_before() -> None:
    code = "import kubernetes_asyncio.client as before; import webhook.adapters.kubernetes; print(before.V1Pod)"
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
