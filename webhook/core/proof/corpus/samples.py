"""Corpus: valid Pods as the API server may send them, each named by its special property."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.proof.corpus.containers import CONTAINERS, Json
from webhook.core.proof.corpus.placements import PLACES
from webhook.core.proof.corpus.whole_pods import ODD, PLAIN

_pod = msgspec.json.Decoder(Pod)


class Sample(Struct, frozen=True):
    """One Pod. A plain one sets nothing that could conflict with a policy."""

    name: str
    raw: bytes
    pod: Pod
    is_plain: bool
    stanza: str
    """It is special only for this stanza; empty: for both."""


def _build_samples(documents: dict[str, Json], stanza: str = "", *, is_plain: bool = False) -> Iterator[Sample]:
    for name, document in documents.items():
        raw = msgspec.json.encode(document)
        yield Sample(name, raw, _pod.decode(raw), is_plain, stanza)


CORPUS = (
    *_build_samples(PLAIN, is_plain=True),
    *_build_samples(ODD),
    *_build_samples(PLACES, "placement"),
    *_build_samples(CONTAINERS, "resources"),
)
