"""Label selectors, pod affinity and anti-affinity, topology spread constraints."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.core.generating.vocabulary import (
    NAMESPACE,
    OUR_LABEL,
    PREFERRED,
    REGION,
    REQUIRED,
    SERVICE,
    ZONE,
    Json,
    PodStyle,
    draw_object,
)

_LABELS = st.sampled_from(["app", "tier"])
_VALUES = st.sampled_from(["x", "y", ""])
_SPREAD_KEYS = st.sampled_from([ZONE, REGION, "kubernetes.io/hostname"])
_MERGED = st.lists(st.sampled_from(["pod-template-hash", "rev/ision"]), max_size=2, unique=True)
_MISMERGED = st.lists(st.sampled_from(["tenant", "app"]), max_size=2, unique=True)


def _expression(key: str, operator: str, values: list[str], *, bare: bool) -> Json:
    if operator in {"In", "NotIn"}:
        return {"key": key, "operator": operator, "values": values}
    return {"key": key, "operator": operator} if bare else {"key": key, "operator": operator, "values": None}


@cache
def selectors(style: PodStyle) -> st.SearchStrategy[Json]:
    """Draw a label selector: `{}` matches any Pod; equal selectors have several spellings.

    A strict one has one requirement for each label, because a policy may not contradict itself.
    """
    expression = st.builds(
        _expression,
        _LABELS,
        st.sampled_from(["In", "In", "NotIn", "Exists", "DoesNotExist"]),
        st.lists(_VALUES, min_size=1, max_size=2),
        bare=st.just(True) if style.strict else st.booleans(),  # noqa: FBT003  a value to draw
    )
    unique = _get_key if style.strict else None
    expressions = st.lists(expression, max_size=2, unique_by=unique)
    labels = st.dictionaries(_LABELS, _VALUES, max_size=2)
    found = draw_object(style, {}, {"matchLabels": labels, "matchExpressions": expressions})
    return found.map(_remove_repeated_labels) if style.strict else found


def _get_key(expression: Json) -> Any:
    return expression["key"]


def _remove_repeated_labels(selector: Json) -> Json:
    if "matchLabels" not in selector:
        return selector
    keys = {expression["key"] for expression in selector.get("matchExpressions", ())}
    labels = {key: value for key, value in selector["matchLabels"].items() if key not in keys}
    return {**selector, "matchLabels": labels}


own_pods = st.just({"matchLabels": {OUR_LABEL: SERVICE}})


def _remove_illegal_keys(term: Json) -> Json:
    """Remove matchLabelKeys and mismatchLabelKeys without a selector, which the API server rejects."""
    selector = term.get("labelSelector")
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if term.get(field) and selector is None:
            term = {key: value for key, value in term.items() if key != field}
    return term


@cache
def terms(style: PodStyle) -> st.SearchStrategy[Json]:
    """Draw one term of pod affinity, or of pod anti-affinity."""
    return draw_object(
        style,
        {"topologyKey": _SPREAD_KEYS},
        {
            "labelSelector": selectors(style),
            "namespaces": st.lists(st.sampled_from([NAMESPACE, "other"]), max_size=2),
            "namespaceSelector": selectors(style),
            "matchLabelKeys": _MERGED,
            "mismatchLabelKeys": _MISMERGED,
        },
    ).map(_remove_illegal_keys)


@cache
def draw_weighted(style: PodStyle) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"weight": st.sampled_from([1, 50, 100]), "podAffinityTerm": terms(style)})


@cache
def affinities(style: PodStyle, most: int = 2) -> st.SearchStrategy[Json]:
    several, preferred = st.lists(terms(style), max_size=most), st.lists(draw_weighted(style), max_size=most)
    return draw_object(style, {}, {REQUIRED: several, PREFERRED: preferred})


@cache
def spread(style: PodStyle) -> st.SearchStrategy[Json]:
    policies = st.sampled_from(["Honor", "Ignore"])
    return draw_object(
        style,
        {
            "maxSkew": st.integers(1, 2),
            "topologyKey": _SPREAD_KEYS,
            "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        },
        {
            "labelSelector": own_pods | selectors(style),
            "minDomains": st.integers(1, 2),
            "nodeAffinityPolicy": policies,
            "nodeTaintsPolicy": policies,
            "matchLabelKeys": _MERGED,
        },
    ).map(_remove_illegal_spread_keys)


def _remove_illegal_spread_keys(found: Json) -> Json:
    if found["whenUnsatisfiable"] == "ScheduleAnyway" and found.get("minDomains") is not None:
        found = {key: value for key, value in found.items() if key != "minDomains"}
    return _remove_illegal_keys(found)


def get_spread_kind(constraint: Json) -> tuple[Any, Any]:
    """Return the key of a constraint, which is unique in a Pod."""
    return constraint["topologyKey"], constraint["whenUnsatisfiable"]


@cache
def spreads(style: PodStyle, most: int = 3) -> st.SearchStrategy[list[Json]]:
    return st.lists(spread(style), max_size=most, unique_by=get_spread_kind)
