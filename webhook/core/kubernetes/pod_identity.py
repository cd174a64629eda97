"""Identity of a Pod: its names, its uid and its owners, with texts of bounded length.

Kubernetes validates names only after the mutating webhooks, and of an owner only that nothing is empty: each text may
fill the API server's 3 MiB. Whoever keeps what identifies a Pod relies on these bounds.
"""

from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec, PodStatus

NAME_MAX, KIND_MAX, UID_MAX = 253, 63, 64
_API_VERSION_MAX = 253 + 1 + 63
_HASH_LENGTH = 32

_Name = Annotated[str, Meta(max_length=NAME_MAX)]
_Kind = Annotated[str, Meta(max_length=KIND_MAX)]
_Uid = Annotated[str, Meta(max_length=UID_MAX)]
_ApiVersion = Annotated[str, Meta(max_length=_API_VERSION_MAX)]


class _BoundedOwner(OwnerReference, frozen=True, gc=False):
    api_version: _ApiVersion = ""
    kind: _Kind = ""
    name: _Name = ""
    uid: _Uid = ""


class _BoundedMetadata(PodMetadata, frozen=True, gc=False):
    name: _Name = ""
    generate_name: _Name = ""
    uid: _Uid = ""
    owner_references: tuple[_BoundedOwner, ...] | None = None


class BoundedPod(Pod, frozen=True, gc=False):
    """A Pod whose decoder refuses identities that are too long, so that all others cost nothing more."""

    metadata: _BoundedMetadata
    spec: PodSpec
    status: PodStatus = PodStatus()


_bounded, _pod = msgspec.json.Decoder(BoundedPod), msgspec.json.Decoder(Pod)


class BoundedPodDecoder:
    """A `Decoder` of Pods that bounds the identities which others refuse."""

    def decode(self, raw: bytes | Raw, /) -> Pod:
        try:
            return _bounded.decode(raw)
        except msgspec.ValidationError:
            return bound_identity(_pod.decode(raw))


def bound_identity(pod: Pod) -> Pod:
    """Return a Pod whose identity is bounded."""
    metadata = pod.metadata
    owners = metadata.owner_references
    bounded = replace(
        metadata,
        name=shorten(metadata.name, NAME_MAX),
        generate_name=shorten(metadata.generate_name, NAME_MAX),
        uid=shorten(metadata.uid, UID_MAX),
        owner_references=tuple(map(_bound_owner, owners)) if owners else owners,
    )
    return replace(pod, metadata=bounded)


def _bound_owner(owner: OwnerReference) -> OwnerReference:
    return replace(
        owner,
        api_version=shorten(owner.api_version, _API_VERSION_MAX),
        kind=shorten(owner.kind, KIND_MAX),
        name=shorten(owner.name, NAME_MAX),
        uid=shorten(owner.uid, UID_MAX),
    )


def shorten(text: str, length_max: int) -> str:
    """Return a text of at most `length_max` characters: a longer one ends with its hash, and so stays distinct."""
    if len(text) <= length_max:
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{text[: length_max - _HASH_LENGTH - 1]}~{digest}"
