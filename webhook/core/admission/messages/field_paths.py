"""Readable paths of Pod fields: `container "vllm": limits.memory`, `spec.schedulerName`."""

from itertools import pairwise

from webhook.core.container_resources import shown_name
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import tokens_of

_KINDS = {"containers": "container", "initContainers": "init container"}
_KEYED = frozenset({"labels", "annotations", "nodeSelector"})
_OF_A_CONTAINER = 4  # spec, containers, index, and something in it


def in_words(pod: Pod, pointer: str) -> str:
    """Return the readable path of a JSON Pointer; containers are named, not numbered."""
    tokens = tokens_of(pointer)
    kind = _KINDS.get(tokens[1]) if tokens[0] == "spec" and len(tokens) >= _OF_A_CONTAINER else None
    if kind is not None:
        containers = pod.spec.containers if tokens[1] == "containers" else pod.spec.init_containers
        container = (containers or ())[int(tokens[2])]
        rest = tokens[4:] if tokens[3] == "resources" and tokens[4:] else tokens[3:]
        return f'{kind} "{shown_name(container)}": {".".join(rest)}'
    text = tokens[0]
    for before, token in pairwise(tokens):
        text += f"[{token}]" if token.isdecimal() or before in _KEYED else f".{token}"
    return text
