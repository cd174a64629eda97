"""Policies whose service has a part of its values from `defaults`: drawn whole, then divided between both."""

import msgspec
from hypothesis import strategies as st

from tests.core.generating.pod_affinity import selectors
from tests.core.generating.policies import Governed, placements_of, read_document
from tests.core.generating.vocabulary import KINDS, NAMESPACE_LABELS, ODD, REAL, SERVICE, Concern, Json
from tests.core.oracle.merging import LABEL_SELECTORS, complete_name, merge_defaults
from tests.core.resource_strategies import resource_rules

_HARD: dict[str, tuple[str, ...]] = {
    "pods": ("50", "200"),
    "cpu": ("1k", "2k"),
    "requests.cpu": ("1500", "2k"),
    "memory": ("400Gi", "1Ti"),
    "requests.memory": ("500Gi", "1Ti"),
    "limits.memory": ("2Ti",),
    "requests.vendor.com/gpu": ("4k",),
}
_AFFINITIES = tuple(Concern(("affinity",), kinds) for kinds in (KINDS, KINDS[:1], KINDS[1:], KINDS[::2]))
_TOLERATIONS = Concern(("tolerations", "tolerationsByQosClass"))


@st.composite
def _hard(draw: st.DrawFn) -> Json:
    names = draw(st.lists(st.sampled_from(list(_HARD)), min_size=1, max_size=4, unique_by=complete_name))
    return {name: draw(st.sampled_from(_HARD[name])) for name in names}


_quotas = st.fixed_dictionaries(
    {"standing": st.fixed_dictionaries({"hard": _hard()}, optional={"surge": st.sampled_from(["0%", "50%"])})},
    optional={
        "windows": st.lists(st.fixed_dictionaries({"window": st.just("1m"), "hard": _hard()}), max_size=1),
        "per": st.sampled_from(["Service", "Namespace"]),
    },
)
_scheduling = st.fixed_dictionaries(
    {
        "near": st.fixed_dictionaries(
            {"to": selectors(REAL)}, optional={"levels": st.sampled_from([["Zone"], ["Region"]])}
        )
    },
    optional={"hot": st.sampled_from([{"cpu": 0.8}, {"memory": 0.9}])},
)
_placements = st.deferred(
    lambda: (
        placements_of(ODD)
        | st.sampled_from([*_AFFINITIES, *[_TOLERATIONS] * 4]).flatmap(lambda concern: placements_of(ODD, concern))
    )
)
_stanzas = st.deferred(
    lambda: st.fixed_dictionaries(
        {"placement": _placements, "resources": resource_rules(strict=True), "quota": _quotas},
        optional={"scheduling": _scheduling},
    )
)


def document_of(defaults: Json, service: Json) -> bytes:
    """Return a complete policy document; JSON is YAML."""
    whole = {"name": SERVICE, "match": {"anyNamespace": True}, **service}
    head = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "nodes": {"sources": [{"metricsAPI": {}}]}}
    return msgspec.json.encode({**head, "defaults": defaults, "services": [whole]})


@st.composite
def _divide(draw: st.DrawFn, wanted: Json, other: Json) -> tuple[Json, Json]:
    """Draw defaults and a service that together are `wanted`; `other` has values for defaults that are not in force."""
    defaults: Json = {}
    own: Json = {}
    for key, value in wanted.items():
        side = draw(st.sampled_from(["defaults", "service", *["both"] * 4]))
        if side == "both" and isinstance(value, dict) and key not in LABEL_SELECTORS:
            more = other.get(key)
            below, own[key] = draw(_divide(value, more if isinstance(more, dict) else {}))
            if below:  # some fields may not be empty
                defaults[key] = below
        elif side == "both":
            defaults[key], own[key] = other.get(key, value), value
        else:
            (defaults if side == "defaults" else own)[key] = value
    for key, value in other.items():
        is_once = complete_name(key) not in map(complete_name, defaults)
        if key not in wanted and is_once and draw(st.sampled_from([True, False, False])):
            defaults[key], own[key] = value, None
    return defaults, own


@st.composite
def _draw_policy(draw: st.DrawFn) -> Governed:
    wanted = draw(_stanzas.filter(lambda found: read_document(document_of({}, found)) is not None))
    defaults, own = draw(_divide(wanted, draw(_stanzas)))
    assert merge_defaults(defaults, own) == wanted, (defaults, own)
    service = read_document(document_of(defaults, own))
    assert service is not None, (defaults, own)
    in_namespace = service.resolve_namespace(NAMESPACE_LABELS)
    return Governed(wanted["placement"], in_namespace, wanted["resources"], (defaults, own))


divided_policies = st.deferred(_draw_policy)
