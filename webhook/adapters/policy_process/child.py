"""The process that checks one policy: the question on standard input, the answer on standard output, and its end.

It imports nothing that it does not need, gives way to the server that started it, and cannot outlive its bounds.
"""

import os
import resource
import sys
from collections.abc import Callable

from webhook.core.document import Problem, Purpose
from webhook.core.document.yaml.problems import DOCUMENT
from webhook.core.policy_admission.check_codec import CheckResult, check_policy, decode, encode
from webhook.core.policy_admission.policy_review import DocumentReview, review_policy

CPU_SECONDS_MAX = 60
"""An orphan ends, too."""
DATA_BYTES_MAX = 256 << 20
"""A thousand services take a fifth of it. A container that runs out of memory loses the server, too."""
_POLITE = 5
_TOO_MUCH = Problem(
    1,
    1,
    DOCUMENT,
    "{...}",
    f"checking it takes more than {DATA_BYTES_MAX >> 20} MiB of memory",
    "write what services share once, under `defaults`, or split the policy",
)


def loaded(given: bytes, purpose: str) -> bytes:
    """Check a document as `webhook.core.document.load`."""
    try:
        return encode(check_policy(given, Purpose(purpose)))
    except MemoryError:
        return encode(CheckResult(problems=(_TOO_MUCH,)))


def reviewed(given: bytes) -> bytes:
    """Check a document on its way into the cluster as `webhook.core.policy_admission.policy_review.review_policy`."""
    return encode(review_policy(decode(given, DocumentReview)))


_TASKS: dict[str, Callable[..., bytes]] = {"load": loaded, "review": reviewed}


def main(task: str, *more: str) -> None:
    os.nice(_POLITE)
    _bound(resource.RLIMIT_CPU, CPU_SECONDS_MAX)
    _bound(resource.RLIMIT_DATA, DATA_BYTES_MAX)
    answer = _TASKS[task](sys.stdin.buffer.read(), *more)
    sys.stdout.buffer.write(answer)


def _bound(what: int, most: int) -> None:
    """Lower a limit; one that is lower already stays."""
    _, hard = resource.getrlimit(what)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (least, hard))


if __name__ == "__main__":
    main(*sys.argv[1:])
