"""Registration of kubernetes-asyncio's packages, which keeps them from importing 900 models and APIs.

Podgate uses none of these. Only the modules in use are executed. Why: docs/design/kubernetes-client.md.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec

_PACKAGES = ("kubernetes_asyncio", "kubernetes_asyncio.client", "kubernetes_asyncio.client.models")
_USED = {"ApiClient": "api_client", "Configuration": "configuration"}
"""What is imported from its package `client`, and the modules that define it."""


def _register() -> None:
    """Register the packages, unless another import has executed them."""
    if _PACKAGES[0] in sys.modules:
        return
    for name in _PACKAGES:
        spec = find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(name)
        sys.modules[name] = module_from_spec(spec)
    client = sys.modules[_PACKAGES[1]]
    for name, module in _USED.items():
        setattr(client, name, getattr(import_module(f"{_PACKAGES[1]}.{module}"), name))


_register()
