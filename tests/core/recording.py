"""Decision records of reviews, as a server keeps them: of Pods of a ReplicaSet under a policy with a quota of one."""

import msgspec
from msgspec.structs import replace

from tests.core.reviewing import NOW_US, REPLICA_SETS, Gate, body, pod
from tests.core.strategies import Json
from webhook.core.admission.decision import Half
from webhook.core.document import Purpose, load
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.record_codec import EncodedRecord
from webhook.decisions.encoder import RecordEncoder
from webhook.observers import Observers
from webhook.ports import Review

POLICY_TEXT = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
exemptions: {namespaces: [free-*]}
services:
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {nodeSelector: {disk: ssd}, onConflict: {default: Override}}
  quota: {windows: [{window: 1m, hard: {pods: 1}}]}
"""
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "r1", "controller": True}


class Recorder(Observers):
    """Decision records of an interceptor, newest first, in the form in which a server keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[EncodedRecord] = []
        self._encoder = RecordEncoder("a")

    def on_reviewed(self, review: Review) -> None:
        assert review.request is not None
        at_us = NOW_US + len(self.kept) * 1000
        timed = replace(review, started_ns=at_us * 1000, duration_ns=0)
        self.kept.insert(0, self._encoder.encode(timed, review.request))

    @property
    def lines(self) -> list[bytes]:
        """Each record in JSON."""
        return [msgspec.json.encode(record) for record in self.records]

    @property
    def records(self) -> list[DecisionRecord]:
        return [kept.read() for kept in self.kept]


class RecordedShop:
    """Reviews of Pods, the policy that decided them, and their records."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.gate = Gate(load(POLICY_TEXT.encode(), Purpose.SERVE).policy, observers=[self.recorder])

    async def create(self, uid: str, **spec: Json) -> None:
        """Review a Pod of the ReplicaSet by both halves."""
        user = {"userInfo": {"username": REPLICA_SETS}}
        asked = pod({"app": "web"}, **spec)
        stored = self.gate.build_owned_pod(uid, nodeSelector={"disk": "ssd"})
        for document in (asked, stored):
            document["metadata"]["ownerReferences"] = [OWNER]
        await self.gate.interceptor.review(Half.MUTATE, body(object=asked, **user))
        await self.gate.interceptor.review(Half.VALIDATE, body(object=stored, **user))
