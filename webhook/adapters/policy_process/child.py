"""Child process that checks one policy: request on standard input, result on standard output.

It imports only what it needs, runs at a lower priority than the server, and has limits on CPU time and memory.
"""

import gc
import os
import resource
import sys
from collections.abc import Callable

from webhook.core.document import Problem, Purpose
from webhook.core.document.assembly import AssemblyRequest
from webhook.core.document.yaml.problems import DOCUMENT
from webhook.core.policy_changes.policy_process_codec import CheckResult, check_policy, decode, encode
from webhook.core.policy_changes.policy_review import DocumentReview, review_policy

CPU_SECONDS_MAX = 60
"""Ends an orphaned process, too."""
DATA_BYTES_MAX = 256 << 20
"""Several times the need of a thousand services. Without a limit the container, with the server, could run out."""
_POLITE = 5
_TOO_MUCH = Problem(
    1,
    1,
    DOCUMENT,
    "{...}",
    f"checking it takes more than {DATA_BYTES_MAX >> 20} MiB of memory",
    "write what services share once, under `defaults`, or split the policy",
)


def load_document(given: bytes, purpose: str, facts_bytes: str = "0") -> bytes:
    """Check a document with `check_policy`; return the encoded result. Facts follow it, if it has a former one."""
    size = len(given) - int(facts_bytes)
    try:
        return encode(check_policy(given[:size], Purpose(purpose), given[size:]))
    except MemoryError:
        return encode(CheckResult(problems=(_TOO_MUCH,)))


def review_document(given: bytes) -> bytes:
    """Check a document on admission with `review_policy`; return the encoded result."""
    return encode(review_policy(decode(given, DocumentReview)))


def assemble_document(given: bytes) -> bytes:
    """Assemble a document from its root and parts; return the encoded result."""
    return encode(decode(given, AssemblyRequest).assemble())


_TASKS: dict[str, Callable[..., bytes]] = {
    "load": load_document,
    "review": review_document,
    "assemble": assemble_document,
}


def main(task: str, *more: str) -> None:
    gc.disable()  # the objects have no cycles, so that memory is freed without collections
    os.nice(_POLITE)
    _lower_limit(resource.RLIMIT_CPU, CPU_SECONDS_MAX)
    _lower_limit(resource.RLIMIT_DATA, DATA_BYTES_MAX)
    answer = _TASKS[task](sys.stdin.buffer.read(), *more)
    sys.stdout.buffer.write(answer)


def _lower_limit(what: int, most: int) -> None:
    """Lower a limit, unless it is already lower."""
    _, hard = resource.getrlimit(what)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (least, hard))


if __name__ == "__main__":
    main(*sys.argv[1:])
