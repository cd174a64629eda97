"""PersistentVolumeClaims as far as they tell where Pods go: those that a Pod names, and the nodes selected for them.

A scheduler writes the node into the claims of a Pod before it waits for their volumes.
"""

from collections.abc import Iterable

from msgspec import Struct

from webhook.core.kubernetes.pod import Pod, PodSpec

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim that has its volume. Its selected node, which stays, says nothing of later Pods."""


class _ClaimSource(Struct, frozen=True, gc=False, rename="camel"):
    claim_name: str = ""


class _EphemeralSource(Struct, frozen=True, gc=False):
    """The template of a claim, of which nothing is read."""


class _Volume(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    ephemeral: _EphemeralSource | None = None


class VolumeSpec(PodSpec, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    volumes: tuple[_Volume, ...] | None = None


class VolumePod(Pod, frozen=True, gc=False):
    """A Pod with its volumes. Reviews read none: they would make each of their keys longer."""

    spec: VolumeSpec


class SelectedClaim(Struct, frozen=True):
    """A claim: the node that a scheduler has selected for it, "" without one."""

    key: str
    """NAMESPACE/NAME."""
    node: str
    is_bound: bool

    @property
    def is_awaited(self) -> bool:
        """Whether a scheduler waits for its volume on a node."""
        return bool(self.node) and not self.is_bound


def list_claims(pod: Pod) -> tuple[str, ...]:
    """Return the keys of the claims that a Pod names. The claim of a generic ephemeral volume is POD-VOLUME."""
    if not isinstance(pod, VolumePod):
        return ()
    return tuple(dict.fromkeys(f"{pod.metadata.namespace}/{name}" for name in _list_names(pod)))


def _list_names(pod: VolumePod) -> Iterable[str]:
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}"
