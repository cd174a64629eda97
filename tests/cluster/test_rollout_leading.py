"""A changed policy comes into force in steps on a real control plane, and is taken back by itself when it hurts.

Times are short; with PODGATE_TEST_ROLLOUT=soak they are the shipped ones.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cluster import manifests
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.server import Server
from tests.harness.policy_revisions import hash_of
from webhook.core.document.configmap import NAME, ROLLOUT_STATE, ROLLOUT_STATE_KEY
from webhook.core.rollout.state import Phase, RolloutState, decode_state, encode_state

pytest_plugins = ("tests.redis_servers.fixtures",)

IS_SOAK = os.environ.get("PODGATE_TEST_ROLLOUT") == "soak"
STEP_SECONDS, FOR_SECONDS, GRACE_SECONDS = (600, 180, 60) if IS_SOAK else (6, 5, 1)
SLACK_SECONDS = 10
STAGE, LIVE = "leading-stage", "leading-live"
CRD = str(manifests.FOLDER / "base/06-policyrollout.yaml")
SERVICES = 12
_STATE = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{ROLLOUT_STATE}"
_REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
_POLICY = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
_SHORT = {} if IS_SOAK else {"for": f"{FOR_SECONDS}s"}
ROLLOUT = {
    "canary": {
        "steps": [
            {"namespaces": [STAGE], "for": f"{STEP_SECONDS}s"},
            {"percent": 50, "for": f"{STEP_SECONDS}s"},
        ]
    },
    "rollback": {
        "pending": {**_SHORT, "grace": f"{GRACE_SECONDS}s"},
        "denied": dict(_SHORT),
        "startErrors": dict(_SHORT),
    },
}


def write_policy(version: str, bad: Mapping[str, str] | None = None) -> str:
    """Return a policy of a dozen services; with `bad` the Pods of the first one need a Node with these labels."""
    services: list[dict[str, Any]] = [
        {
            "name": f"s{number}",
            "match": {"namespaces": ["leading-*"], "podSelector": {"matchLabels": {"service": f"s{number}"}}},
            "placement": {"nodeSelector": {"kubernetes.io/os": "linux"}},
        }
        for number in range(SERVICES)
    ]
    if bad:
        services[0]["placement"] = {"nodeSelector": dict(bad)}
    document = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "rollout": ROLLOUT, "services": services}
    return f"# {version}\n{json.dumps(document)}\n"


OLD, GOOD, BAD = write_policy("old"), write_policy("good"), write_policy("bad", {"disk": "none"})
OLD_HASH, GOOD_HASH, BAD_HASH = (hash_of(text.encode()) for text in (OLD, GOOD, BAD))


class Leading:
    """An installation whose leader rolls policies out."""

    def __init__(self, running: ControllerFixture) -> None:
        self.running = running
        self.plane = running.plane
        self.installation = running.installation
        self._numbers = itertools.count(1)

    @property
    def state(self) -> RolloutState | None:
        found = self.plane.api.get(_STATE)
        return None if found is None else decode_state(found["data"][ROLLOUT_STATE_KEY])

    def edit(self, state: RolloutState) -> None:
        patch = {"data": {ROLLOUT_STATE_KEY: encode_state(state)}}
        status, answer = self.plane.api.request("PATCH", _STATE, patch, "application/merge-patch+json")
        assert status == 200, answer

    def read_version(self) -> str:
        return str(self.plane.api.get(_POLICY)["metadata"]["resourceVersion"])

    def wish(self, text: str) -> str:
        """Apply a policy; return the ConfigMap's version."""
        self.installation.apply_policy(text)
        return self.read_version()

    def wait_for(self, what: str, seconds: float = 60, **fields: object) -> RolloutState:
        """Wait until the state has these fields."""

        def has_fields() -> RolloutState | None:
            state = self.state
            is_there = state is not None and all(getattr(state, name) == value for name, value in fields.items())
            return state if is_there else None

        processes = [process.name for process in self.running.controllers]
        found: RolloutState = self.plane.wait(has_fields, what, *processes, timeout_seconds=seconds)
        if fields.get("candidate"):
            servers = self.installation.servers
            names = [server.name for server in servers]
            self.plane.wait(lambda: all(is_followed(server, found) for server in servers), f"servers: {what}", *names)
        return found

    def wait_for_symptoms(self, *symptoms: str) -> None:
        """Wait until these are above their thresholds, and no others: Pods that kwok starts late are Pending, too."""

        def are_above() -> bool:
            state = self.state
            return state is not None and state.above_since.keys() == {*symptoms}

        self.plane.wait(are_above, f"the symptoms {symptoms} alone", timeout_seconds=120)

    def create(self, namespace: str, pods: int, first: int) -> None:
        """Create Pods; the last `first` of them, so that their share only grows, are of the first service."""
        for number in range(pods):
            service = "s0" if number >= pods - first else f"s{number % (SERVICES - 1) + 1}"
            status, pod = self.installation.create_pod(
                namespace, f"pod-{next(self._numbers)}", labels={"service": service}
            )
            assert status == 201, pod

    def list_hashes(self, namespace: str) -> set[str]:
        return {pod["metadata"]["annotations"]["podgate.io/policy-hash"] for pod in self.installation.pods(namespace)}

    def list_events(self) -> list[dict[str, Any]]:
        found = self.plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        return [event for event in found if event["regarding"]["name"] == NAME and event["reason"].startswith("Policy")]

    def find_event(self, reason: str, policy_hash: str) -> str:
        """Wait for an Event about a policy; return its note."""

        def find() -> str | None:
            notes = [event["note"] for event in self.list_events() if event["reason"] == reason]
            return next((note for note in notes if policy_hash in note), None)

        return str(self.plane.wait(find, f"the Event {reason}"))


def is_followed(server: Server, state: RolloutState) -> bool:
    """Return whether a server follows a candidate as a state says, or has gone on from there."""
    shown = server.status()["rollout"] or {}
    return bool(shown.get("candidate") == state.candidate and (shown.get("step") or 0) >= state.step)


@contextmanager
def lead(plane: ControlPlane, identities: Identities, store_url: str) -> Iterator[Leading]:
    plane.delete(_STATE, _REVISIONS)
    plane.kubectl("apply", "-f", CRD)
    try:
        with controller_fixture(plane, identities, OLD, [STAGE, LIVE], store_url) as found:
            leading = Leading(found)
            leading.wait_for("the first state", stable=OLD_HASH, governed=True)
            yield leading
    finally:
        plane.delete(_STATE, _REVISIONS)


@pytest.fixture
def leading(plane: ControlPlane, identities: Identities, store_url: str) -> Iterator[Leading]:
    with lead(plane, identities, store_url) as found:
        yield found


def test_a_policy_that_hurts_is_taken_back_by_itself(leading: Leading) -> None:
    version = leading.wish(BAD)
    leading.wait_for("the first step", candidate=BAD_HASH, phase=Phase.CANARY, step=0)
    leading.create(STAGE, pods=44, first=4)
    leading.create(LIVE, pods=12, first=1)
    leading.wait_for_symptoms("pending")
    began = time.monotonic()
    state = leading.wait_for(
        "the candidate to be taken back", FOR_SECONDS + SLACK_SECONDS, stable=OLD_HASH, phase=Phase.STABLE
    )
    assert time.monotonic() - began <= FOR_SECONDS + SLACK_SECONDS
    [rejection] = state.rejected
    assert (rejection.hash, rejection.reason) == (BAD_HASH, "too many Pending Pods")
    assert rejection.figures.startswith("4 of 44 (9.1 %) Pods Pending (4 not scheduled, 0 not started): above 8 %")
    # Others never saw it, and what people own was not written.
    assert leading.list_hashes(LIVE) == {OLD_HASH}
    assert leading.list_hashes(STAGE) == {BAD_HASH}
    assert leading.read_version() == version
    note = leading.find_event("PolicyRolledBack", BAD_HASH)
    assert rejection.figures in note
    shown = ("get", "policyrollouts", "podgate-policy", "-o", "json")
    leading.plane.wait(lambda: "4 of 44" in leading.plane.kubectl(*shown).stdout, "a PolicyRollout with the figures")
    _check_not_tried_again(leading)


def _check_not_tried_again(leading: Leading) -> None:
    leading.wish(OLD)
    leading.wait_for("nothing to wait for", waits_for="")
    leading.wish(BAD)
    state = leading.wait_for("the wish to be held back", waits_for=_describe_held())
    assert (state.stable, state.candidate) == (OLD_HASH, "")
    leading.edit(replace(state, rejected=()))
    leading.wait_for("the policy to be tried again", candidate=BAD_HASH)
    leading.wish(OLD)
    leading.wait_for("the candidate to be dropped", candidate="", phase=Phase.STABLE)


def _describe_held() -> str:
    return f"{BAD_HASH} is wished and was taken back: it is not tried until podgate policy retry"


def test_a_good_policy_waits_for_twenty_pods_and_is_promoted(leading: Leading) -> None:
    leading.wish(GOOD)
    leading.wait_for("the first step", candidate=GOOD_HASH, step=0, phase=Phase.CANARY)
    leading.create(STAGE, pods=19, first=2)
    held = "pending: no data: 19 Pods of the candidate, minPods is 20"
    leading.wait_for("the step to be held", STEP_SECONDS + GRACE_SECONDS + 60, waits_for=held)
    table = leading.plane.kubectl("get", "policyrollouts.podgate.io").stdout.splitlines()
    assert table[0].split() == ["NAME", "STABLE", "CANDIDATE", "PHASE", "STEP", "SINCE", "WAITS", "FOR"]
    leading.create(STAGE, pods=5, first=1)
    leading.wait_for("the second step", GRACE_SECONDS + 60, candidate=GOOD_HASH, step=1)
    leading.create(STAGE, pods=24, first=2)
    state = leading.wait_for("the policy to be promoted", STEP_SECONDS + GRACE_SECONDS + 90, stable=GOOD_HASH)
    assert (state.phase, state.governed, state.rejected) == (Phase.STABLE, True, ())
    leading.find_event("PolicyPromoted", GOOD_HASH)
    kept = leading.plane.api.get(f"{_REVISIONS}/podgate-policy-{OLD_HASH}")
    assert kept["data"]["policy.yaml"] == OLD


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_many_pending_pods_are_an_alert_and_a_killed_leader_changes_nothing(leading: Leading) -> None:
    running, installation = leading.running, leading.installation
    leading.wish(BAD)
    leading.wait_for("the first step", candidate=BAD_HASH, phase=Phase.CANARY)
    _kill_leader(running)
    leading.create(STAGE, pods=44, first=8)
    time.sleep(GRACE_SECONDS + 1)  # times of creation are in whole seconds: the next leader counts all Pods at once
    running.start_controller()
    leading.wait_for_symptoms("pending", "pendingAlert")
    assert "8 of 44 (18.2 %) Pods Pending" in leading.find_event("PolicyPendingAlert", BAD_HASH)
    _kill_leader(running)
    running.start_controller()
    state = leading.wait_for("the candidate to be taken back", FOR_SECONDS + 60, stable=OLD_HASH, phase=Phase.STABLE)
    assert [rejection.hash for rejection in state.rejected] == [BAD_HASH]
    _kill_leader(running)
    running.start_controller()
    assert leading.wait_for("the wish to be held back", waits_for=_describe_held()).rejected == state.rejected
    assert installation.read_stored("podgate-policy-last-good") == OLD


def _kill_leader(running: ControllerFixture) -> None:
    [controller] = running.installation.controllers
    running.installation.stop_controller(controller, kill=True)
