"""Real proxies in front of a real server: Envoy, nginx and HAProxy from pinned wheels, with the shipped examples."""

from tests.proxies.hop import Hop, hop
from tests.proxies.inventory import names

__all__ = ["Hop", "hop", "names"]
