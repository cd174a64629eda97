"""A case as reviews of the API server: both halves, and changes in between."""

from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from tests.core.reviewing import Gate
from tests.reviews.fields.cases import Case, Golden
from webhook.commands.simulator import (
    Ask,
    apply_patch,
    build_admission_review,
    format_error,
    prepare_for_mutate,
    prepare_for_validate,
    set_priority,
)
from webhook.core.admission.decision import Decision, Half
from webhook.core.document.loading import load_effective
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields import Mode

Pod = dict[str, Any]

_HEAD = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy"}
_SERVICE = {"name": "web", "match": {"namespaces": ["shop"]}}
_METADATA = {"generateName": "web-", "labels": {"app": "web"}}
_SPEC = {"containers": [{"name": "app"}]}


def pod_of(case: Case) -> Pod:
    spec = _SPEC | case.spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _METADATA | case.metadata, "spec": spec}


def gate_of(stanzas: dict[str, Any], namespace_labels: dict[str, str] | None = None) -> Gate:
    """Return an interceptor over a policy that was parsed from its text (JSON is YAML) by all rules."""
    loaded = _load(msgspec.json.encode(_HEAD | {"services": [_SERVICE | stanzas]}))
    return Gate(loaded, namespace_labels=namespace_labels)


@lru_cache(maxsize=256)
def _load(raw: bytes) -> LoadedPolicy:
    # Without a purpose: no stanza is refused for lack of support in one command.
    return LoadedPolicy(load_effective(raw, None).policy, sha256(raw).hexdigest()[:16])


async def rewrite_pod(gate: Gate, pod: Pod) -> Pod:
    """Return the Pod after the mutating half."""
    ask = Ask(pod, "shop", "uid-1")
    before = prepare_for_mutate(ask)
    body = msgspec.json.encode(build_admission_review(ask, before, Half.MUTATE))
    answer = await gate.interceptor.review(Half.MUTATE, body)
    return apply_patch(before, msgspec.json.decode(answer.body)["response"])


async def validate_pod(gate: Gate, pod: Pod) -> Decision:
    """Return the validating half's decision on a rewritten Pod."""
    ask = Ask(pod, "shop", "uid-1")
    body = msgspec.json.encode(build_admission_review(ask, set_priority(prepare_for_validate(ask, pod)), Half.VALIDATE))
    return (await gate.interceptor.review(Half.VALIDATE, body)).decision


async def find_outcome(case: Case, stanzas: dict[str, Any]) -> Golden:
    gate, pod = gate_of(stanzas, case.namespace), pod_of(case)
    try:
        after = await rewrite_pod(gate, pod)
        decision = await validate_pod(gate, after | {"spec": _merge(after["spec"], case.meanwhile)})
    except BadReviewError as error:
        return Golden("unchanged", refused=format_error(error))
    found = {
        mode: [{str(finding.code): finding.message} for finding in decision.findings if finding.mode is mode]
        for mode in Mode
    }
    return Golden(
        find_changes(pod["spec"], after["spec"]) or "unchanged",
        str(decision.verdict),
        find_metadata_changes(pod["metadata"], after["metadata"]),
        found[Mode.ENFORCE],
        found[Mode.WARN],
        found[Mode.AUDIT],
    )


def find_metadata_changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the labels and annotations that were written, without Podgate's own."""
    found = {kind: find_changes(before.get(kind) or {}, after[kind]) for kind in ("labels", "annotations")}
    others = {
        kind: {key: value for key, value in written.items() if "podgate.io" not in key}
        for kind, written in found.items()
    }
    return {kind: written for kind, written in others.items() if written}


def find_changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the changed fields with their new values; null for a removed one."""
    written = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return written | dict.fromkeys(key for key in before if key not in after)


def _merge(spec: dict[str, Any], meanwhile: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (spec | meanwhile).items() if value is not None or key not in meanwhile}
