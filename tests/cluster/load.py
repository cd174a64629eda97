"""A stream of Pods that must all be rewritten and admitted, and the results."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "web-"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
PLACEMENT = "placement: {schedulerName: podgate-scheduler}"
"""Stanza of the service that rewrites these Pods."""


@dataclass
class Load:
    """Results of the Pods. A Pod that was admitted but not rewritten is a failure: the mutating webhook fails open."""

    admitted: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, status: int, answer: dict[str, object]) -> None:
        if status != 201:
            self.failures[f"{time.strftime('%H:%M:%S')} {status} {json.dumps(answer)[:400]}"] += 1
        elif "podgate-scheduler" not in json.dumps(answer["spec"]):
            self.failures["admitted, and not rewritten"] += 1
        else:
            self.admitted += 1
