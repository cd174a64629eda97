"""Registration of redis-py's package, which keeps it from importing its clients and commands.

Podgate uses its exceptions and its hash slots only. Why: docs/design/redis-connections.md.
"""

import sys
from importlib.util import find_spec, module_from_spec

_PACKAGE = "redis"


def _register() -> None:
    """Register the package, unless another import has executed it."""
    if _PACKAGE in sys.modules:
        return
    spec = find_spec(_PACKAGE)
    if spec is None:
        raise ModuleNotFoundError(_PACKAGE)
    sys.modules[_PACKAGE] = module_from_spec(spec)


_register()
