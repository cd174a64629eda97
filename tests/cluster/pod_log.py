"""A log of Pods: what a watch of the API server shows, in order, from before the first Pod on."""

import http.client
import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Self

from tests.cluster.controlplane import ControlPlane
from tests.cluster.queue import is_gated

GROUP, INDEX = "test.podgate.io/group", "test.podgate.io/index"
"""Labels of the tests' Pods: Podgate does not read them."""
_JOB_NAME, _JOB_INDEX = "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class PodEvent:
    """One event of the watch, and when it arrived, in seconds since the Unix epoch."""

    at: float
    kind: str
    uid: str
    namespace: str
    name: str
    group: str
    index: str
    """Of two Pods of a group with the same index, one replaces the other."""
    gated: bool
    phase: str

    @classmethod
    def read(cls, kind: str, pod: dict[str, Any]) -> "PodEvent":
        metadata = pod["metadata"]
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        of_job = f"{labels.get(_JOB_NAME)}/{annotations[_JOB_INDEX]}" if _JOB_INDEX in annotations else metadata["uid"]
        return cls(
            at=time.time(),
            kind="DELETED" if "deletionTimestamp" in metadata else kind,
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            group=labels.get(GROUP, ""),
            index=labels.get(INDEX, of_job),
            gated=is_gated(pod),
            phase=pod["status"].get("phase", ""),
        )


class PodLog:
    """The events of the Pods that have the label GROUP, recorded while it is entered.

    The API server ends the watch of a slow client: it goes on where it ended, or fails if there would be a gap.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.events: list[PodEvent] = []
        found = plane.api.get(f"/api/v1/pods?labelSelector={GROUP}")
        assert found["items"] == [], "the log would not be complete"
        self._revision = found["metadata"]["resourceVersion"]
        self._api = plane.api
        self._thread = threading.Thread(target=self._record, name="pod-log", daemon=True)
        self._failure: Exception | None = None
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def list_latest(self) -> dict[str, PodEvent]:
        """Return the last event of each Pod that exists, by uid."""
        self.require()
        latest = {event.uid: event for event in tuple(self.events)}
        return {uid: event for uid, event in latest.items() if event.kind != "DELETED"}

    def require(self) -> None:
        """Raise what ended the log: one with a gap proves nothing."""
        if self._failure is not None:
            raise self._failure

    def _record(self) -> None:
        try:
            while not self._is_over.is_set():
                self._watch()
        except Exception as error:  # noqa: BLE001  the thread of the test raises it
            self._failure = error

    def _watch(self) -> None:
        """Record events until the API server ends the watch."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._api.port, context=self._api.context)
        query = f"watch=true&labelSelector={GROUP}&timeoutSeconds=600&resourceVersion={self._revision}"
        connection.request("GET", f"/api/v1/pods?{query}")
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while not self._is_over.is_set() and (line := response.readline()):
            event = json.loads(line)
            assert event["type"] in {"ADDED", "MODIFIED", "DELETED"}, event
            self._revision = event["object"]["metadata"]["resourceVersion"]
            self.events.append(PodEvent.read(event["type"], event["object"]))
        connection.close()
