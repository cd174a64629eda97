"""API groups of Kubernetes itself, and the names of resources."""

from typing import NamedTuple

_WITH_A_DOT = frozenset(
    f"{group}.k8s.io"
    for group in (
        "admissionregistration",
        "apiextensions",
        "apiregistration",
        "authentication",
        "authorization",
        "certificates",
        "coordination",
        "discovery",
        "events",
        "flowcontrol.apiserver",
        "internal.apiserver",
        "networking",
        "node",
        "rbac.authorization",
        "resource",
        "scheduling",
        "storage",
        "storagemigration",
    )
)
"""Groups with a dot that Kubernetes itself serves: others of `k8s.io`, such as Spark's, may make Pods."""

_VOWELS = frozenset("aeiou")


def is_built_in(group: str) -> bool:
    """Return whether Kubernetes itself serves an API group, "" for the core group."""
    return "." not in group or group in _WITH_A_DOT


def guess_resource(kind: str) -> str:
    """Return the plural that a kind has in the API, as generators of its definition form it."""
    singular = kind.lower()
    if singular.endswith(("s", "x", "z", "ch", "sh")):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") and singular[-2:-1] not in _VOWELS else f"{singular}s"


class CustomKind(NamedTuple):
    """A kind that is not Kubernetes' own, as the API server serves it."""

    group: str
    version: str
    resource: str
    kind: str

    @property
    def shown(self) -> str:
        """The kind as kubectl writes it before a name."""
        return f"{self.kind.lower()}.{self.group}"
