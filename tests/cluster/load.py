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
"""By which a service's policy rewrites them."""


@dataclass
class Load:
    """What came of the Pods. A mutating half that is skipped fails open, so it is looked at, too."""

    admitted: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, status: int, answer: dict[str, object]) -> None:
        if status != 201:
            self.failures[f"{time.strftime('%H:%M:%S')} {status} {json.dumps(answer)[:400]}"] += 1
        elif "podgate-scheduler" not in json.dumps(answer["spec"]):
            self.failures["admitted, and not rewritten"] += 1
        else:
            self.admitted += 1
