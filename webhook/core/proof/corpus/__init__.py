"""The corpus: Pods as the API server may send them, each legal, and each named by its one oddity."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.proof.corpus.builders import Json
from webhook.core.proof.corpus.containers import CONTAINERS
from webhook.core.proof.corpus.placements import PLACES
from webhook.core.proof.corpus.whole_pods import ODD, PLAIN

_pod = msgspec.json.Decoder(Pod)


class Sample(Struct, frozen=True):
    """One Pod. A plain one asks for nothing that a policy could be at odds with."""

    name: str
    raw: bytes
    pod: Pod
    is_plain: bool
    stanza: str
    """It is odd to this stanza only; to another it is one more plain Pod. Empty: to both."""


def _samples(documents: dict[str, Json], stanza: str = "", *, is_plain: bool = False) -> Iterator[Sample]:
    for name, document in documents.items():
        raw = msgspec.json.encode(document)
        yield Sample(name, raw, _pod.decode(raw), is_plain, stanza)


CORPUS = (
    *_samples(PLAIN, is_plain=True),
    *_samples(ODD),
    *_samples(PLACES, "placement"),
    *_samples(CONTAINERS, "resources"),
)
