"""The owner of any Pod under any list of matches, against a second opinion; unreachable services own none."""

from fnmatch import fnmatchcase
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from tests.core.strategies import Json, examples
from webhook.core.document.loading import load_unproved
from webhook.core.document.yaml.problems import DocumentError
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import Policy

NAMESPACES = ("shop", "shop-eu", "eu-shop", "eu", "a-eu-shop")
PATTERNS = (*NAMESPACES[:3], "shop-*", "eu*", "*-shop", "*shop", "*-eu-shop")
KINDS = ("Deployment", "Job", "StatefulSet")
_LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]))
_EXPRESSIONS = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, **({"values": values} if "I" in operator else {})},
    st.sampled_from(["app", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from(["x", "y"]), min_size=1, unique=True),
)
_SELECTORS = st.fixed_dictionaries({}, optional={"matchLabels": _LABELS, "matchExpressions": st.lists(_EXPRESSIONS)})
_MATCHES = st.fixed_dictionaries(
    {"namespaces": st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2, unique=True)},
    optional={
        "ownerKinds": st.lists(st.sampled_from(KINDS), min_size=1, unique=True),
        "podSelector": _SELECTORS,
        "namespaceSelector": st.just({"matchLabels": {"tier": "x"}}),
    },
)
_LISTS = st.lists(_MATCHES, min_size=1, max_size=4)
_PODS = st.tuples(st.sampled_from(NAMESPACES), _LABELS, _LABELS, st.sampled_from([*KINDS, ""]))
"""Namespace, its labels, the Pod's labels, and the kind of its workload."""


def find_owner(matches: list[Json], pod: tuple[str, Json, Json, str]) -> str | None:
    """Return the first service that matches, by the words of the documents."""
    namespace, of_namespace, labels, kind = pod
    for number, match in enumerate(matches):
        if (
            any(fnmatchcase(namespace, pattern) for pattern in match["namespaces"])
            and (not match.get("ownerKinds") or kind in match["ownerKinds"])
            and is_match(match.get("namespaceSelector", {}), of_namespace)
            and is_match(match.get("podSelector", {}), labels)
        ):
            return f"s{number}"
    return None


def is_match(selector: Json, labels: Json) -> bool:
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        {
            "In": labels.get(expression["key"]) in expression.get("values", ()),
            "NotIn": labels.get(expression["key"]) not in expression.get("values", ()),
            "Exists": expression["key"] in labels,
            "DoesNotExist": expression["key"] not in labels,
        }[expression["operator"]]
        for expression in selector.get("matchExpressions", ())
    )


def document(matches: list[Json]) -> dict[str, Any]:
    services = [{"name": f"s{number}", "match": match} for number, match in enumerate(matches)]
    return {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": services}


@examples(600)
@given(_LISTS, _PODS)
def test_owner_is_the_first_service_that_matches(matches: list[Json], pod: tuple[str, Json, Json, str]) -> None:
    namespace, of_namespace, labels, kind = pod
    matcher = Matcher(msgspec.convert(document(matches), Policy))
    found = matcher.find_owner(namespace, of_namespace, labels, kind)
    expected = find_owner(matches, pod)
    event("owned" if expected else "not owned")
    assert (found.name if found else None) == expected


@examples(600)
@given(_LISTS, _PODS)
def test_what_the_name_of_a_namespace_decides_is_so_for_all_of_its_pods(
    matches: list[Json], pod: tuple[str, Json, Json, str]
) -> None:
    namespace, of_namespace, labels, kind = pod
    matcher = Matcher(msgspec.convert(document(matches), Policy))
    found, by_name = matcher.find_owner(namespace, of_namespace, labels, kind), matcher.by_namespace[namespace]
    event("the name decides" if by_name.is_certain else "labels of the namespace" if by_name.read_labels else "Pods")
    assert not by_name.is_certain or by_name.first is found
    assert by_name.read_labels or matcher.find_owner(namespace, {}, labels, kind) is found


@examples(900)
@given(_LISTS, st.lists(_PODS, min_size=20, max_size=20))
def test_unreachable_service_owns_no_pod(matches: list[Json], pods: list[tuple[str, Json, Json, str]]) -> None:
    shadowed = set(list_unreachable(matches))
    event("some are unreachable" if shadowed else "all are reachable")
    assert not shadowed & {find_owner(matches, pod) for pod in pods}


def list_unreachable(matches: list[Json]) -> list[str]:
    """Return the services that the document's rules reject because an earlier one covers them."""
    try:
        load_unproved(msgspec.json.encode(document(matches)), None)
    except DocumentError as error:
        places = [problem.path for problem in error.problems if "matches every Pod" in problem.reason]
        return [f"s{place.removeprefix('services[').removesuffix('].match')}" for place in places]
    return []
