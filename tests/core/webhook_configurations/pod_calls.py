"""Helpers of the `pod_calls` tests that other tests use, too."""

import asyncio
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.core.reviewing import ALICE, NOW_US, CountingStore, body
from tests.core.rewriting import apply_json_patch
from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, Json
from tests.core.webhook_configurations.cel import is_true
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.core.admission.decision import Decision, Half
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.policy.model import LoadedPolicy, Modes, Policy
from webhook.core.webhook_configurations import ClientConfig
from webhook.interceptor import Interceptor
from webhook.observers import Observers

CLIENT = ClientConfig("https://podgate", b"")


NAME_LABEL = "kubernetes.io/metadata.name"


DISABLED = dict.fromkeys(Modes.__struct_fields__, "Disabled")


PREFERENCE = {"topology": [{"level": "Zone", "in": ["a"], "preferredWeight": 1}]}


SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}


QUOTA: Json = {"quota": {"windows": [{"window": "1m", "hard": {"pods": 5}}]}}


SHARES = {
    "shares": {
        "variants": [
            {"name": "spot", "weight": 1, "nodeSelector": {"capacity": "spot"}},
            {"name": "on-demand", "weight": 1, "nodeSelector": {"capacity": "on-demand"}},
        ]
    }
}


POOLS = [{"name": "shared", "windows": [{"window": "1m", "hard": {"pods": 5}}]}]


STANZAS: list[Json] = [
    {},
    {"placement": {}},
    {"placement": PREFERENCE},
    {"placement": {**PREFERENCE, "allowNodeName": True}},
    {"placement": {"topologySpreadConstraints": [SPREAD]}},
    {"placement": {"topologySpreadConstraints": [SPREAD], "onConflict": {"default": "Keep"}}},
    {"placement": {"nodeSelector": {"disk": "ssd"}, "onConflict": {"default": "Keep"}}},
    {"placement": {"schedulerName": "ours", "onConflict": {"default": "Override"}}},
    {"placement": {"tolerations": [{"key": "k", "operator": "Exists"}]}},
    {"resources": {}},
    {"resources": {"container": {"defaultRequest": {"cpu": "1"}}}},
    {"resources": {"pod": {"max": {"cpu": "1"}}}},
    QUOTA,
    {"pool": "shared"},
    {"placement": SHARES},
    {**QUOTA, "breaker": {"quotaExceeded": {}}},
]


values = st.sampled_from(["", "1", "2"])


requirements = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(["app", "tier"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(values, min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(["app", "tier"]),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)


selectors = st.one_of(
    st.fixed_dictionaries({"matchLabels": st.dictionaries(st.sampled_from(["app", "tier"]), values, max_size=2)}),
    st.fixed_dictionaries({"matchExpressions": st.lists(requirements, min_size=1, max_size=2)}),
)


patterns = st.lists(st.sampled_from(["a", "ab", "a*", "b", "*b", "*"]), min_size=1, max_size=2)


matches = st.builds(
    lambda where, more: {**where, **more},
    st.one_of(st.just({"anyNamespace": True}), st.fixed_dictionaries({"namespaces": patterns})),
    st.fixed_dictionaries(
        {},
        optional={
            "podSelector": selectors,
            "namespaceSelector": selectors,
            "ownerKinds": st.sampled_from([["Job"], ["Job", "StatefulSet"]]),
        },
    ),
)


modes = st.one_of(
    st.just({}),
    st.just(DISABLED),
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(Modes.__struct_fields__, st.sampled_from(["Enforce", "Warn", "Audit", "Disabled"]))
    ),
)


services = st.builds(
    lambda match, stanzas, more: {"match": match, **stanzas, **more},
    matches,
    st.sampled_from(STANZAS),
    st.fixed_dictionaries({"modes": modes, "failureMode": st.sampled_from(["Open", "Closed"])}),
)


def load_services(*services: Json, **more: Any) -> LoadedPolicy:
    named = [{"name": f"s{place}", **service} for place, service in enumerate(services)]
    document = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": named, "pools": POOLS, **more}
    return LoadedPolicy(msgspec.convert(document, Policy, dec_hook=lambda kind, text: kind.parse(str(text))), HASH)


CONTROLLER = "system:kube-controller-manager"


labels = st.fixed_dictionaries(
    {},
    optional={
        "app": values,
        "tier": values,
        OUR_LABEL: st.sampled_from(["s0", "s1", "s2", "other", ""]),
    },
)


annotations = st.fixed_dictionaries({}, optional={OUR_ANNOTATION: st.sampled_from([HASH, HASH, "f" * 16])})


fields = st.fixed_dictionaries(
    {},
    optional={
        "nodeName": st.just("node-1"),
        "schedulerName": st.just("theirs"),
        "nodeSelector": st.just({"disk": "hdd"}),
        "topologySpreadConstraints": st.just([{**SPREAD, "maxSkew": 2}]),
    },
)


pods = st.builds(
    lambda labels, annotations, owners, spec: {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": labels, "annotations": annotations, "ownerReferences": owners},
        "spec": {"containers": [{"name": "c"}], **spec},
    },
    labels,
    annotations,
    st.sampled_from(
        [[], [], *([{"kind": kind, "name": "w", "uid": "u", "controller": True}] for kind in ("Job", "ReplicaSet"))]
    ),
    fields,
)


namespaces = st.tuples(
    st.sampled_from(["a", "ab", "abc", "b", "c", "cb"]), st.fixed_dictionaries({}, optional={"app": values})
)


Namespace = tuple[str, dict[str, str]]


def find_creator(pod: Json) -> str:
    """Return who creates a Pod: a controller, if it has an owner."""
    return CONTROLLER if pod["metadata"].get("ownerReferences") else ALICE


def is_called(
    configuration: Json, pod: Json, namespace: Namespace, operation: str = "CREATE", before: Json | None = None
) -> bool:
    """Evaluate the webhooks of Pods as the API server does; at most one may match. `before`: by default the same."""
    name, its_labels = namespace
    request = {"namespace": name, "operation": operation, "userInfo": {"username": find_creator(pod)}}
    matching = [
        webhook["name"]
        for webhook in configuration["webhooks"]
        if "pods" in webhook["rules"][0]["resources"]
        and selects(msgspec.convert(webhook["namespaceSelector"], LabelSelector), {NAME_LABEL: name, **its_labels})
        and all(
            is_true(condition["expression"], object=pod, oldObject=before or pod, request=request)
            for condition in webhook["matchConditions"]
        )
    ]
    assert len(matching) <= 1, matching
    return bool(matching)


def review_pod(policy: LoadedPolicy, half: Half, pod: Json, namespace: Namespace) -> tuple[Decision, CountingStore]:
    """Review a Pod by the server's own code."""
    clock = VirtualClock(NOW_US)
    store = CountingStore(clock)
    name, its_labels = namespace
    interceptor = Interceptor(FixedPolicy(policy, clock), store, FixedNamespaces({name: its_labels}), Observers())
    if half is Half.VALIDATE:
        pod = {**pod, "metadata": {**pod["metadata"], "uid": "u1"}}
    user = {"username": find_creator(pod)}
    answer = asyncio.run(interceptor.review(half, body(object=pod, namespace=name, userInfo=user)))
    return answer.decision, store


def mutate_pod(policy: LoadedPolicy, pod: Json, namespace: Namespace) -> Json:
    return apply_json_patch(pod, review_pod(policy, Half.MUTATE, pod, namespace)[0].patch)
