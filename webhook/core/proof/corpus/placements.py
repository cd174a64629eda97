"""Pods with placement of their own: selectors, affinities, spread constraints, tolerations."""

from typing import Any

from webhook.core.proof.corpus.containers import Json, build_pod

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_ZONE, _REGION, _HOST = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
_ITSELF = {"matchLabels": {"app": "sample"}}


def _require_in(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def _require(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _build_pod_with_terms(*terms: Any) -> Json:
    return build_pod(affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}})


def _build_term(*expressions: Json) -> Json:
    return {"matchExpressions": list(expressions)}


def _match_name(name: str) -> Json:
    return {"matchFields": [_require_in("metadata.name", name)]}


def _build_pod_term(topology_key: str = _HOST, **more: Any) -> Json:
    return {"labelSelector": _ITSELF, "topologyKey": topology_key, **more}


def _build_spread(when: str, key: str = _ZONE, **more: Any) -> Json:
    return {"labelSelector": _ITSELF, "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, **more}


PLACES: dict[str, Json] = {
    "a Pod with a node selector": build_pod(
        nodeSelector={_ZONE: "zone-a", "kubernetes.io/arch": "amd64", "disk": "hdd"}
    ),
    "a Pod with a term": _build_pod_with_terms(_build_term(_require_in(_ZONE, "zone-a", "zone-b"))),
    "a Pod with two terms": _build_pod_with_terms(
        _build_term(_require_in(_REGION, "region-a")), _build_term(_require(_ZONE, "NotIn", "zone-a"))
    ),
    "a Pod with an empty term": _build_pod_with_terms({}),
    "a Pod with an empty term beside another": _build_pod_with_terms(
        {"matchExpressions": []}, _build_term(_require("kubernetes.io/arch", "Exists")), {"matchExpressions": None}
    ),
    "a Pod with a term of matchFields": _build_pod_with_terms(_match_name("node-1")),
    "a Pod with a term of both kinds": _build_pod_with_terms(
        {**_match_name("node-1"), **_build_term(_require("virtual", "DoesNotExist"))}
    ),
    "a Pod with a term that contradicts itself": _build_pod_with_terms(
        _build_term(_require_in(_ZONE, "zone-a"), _require_in(_ZONE, "zone-b")),
        _build_term(_require("disk", "Exists"), _require("disk", "DoesNotExist")),
    ),
    "a Pod with every operator": _build_pod_with_terms(
        _build_term(
            _require_in("kubernetes.io/os", "linux"),
            _require(_ZONE, "NotIn", "zone-x"),
            _require("disk", "Exists"),
            _require("virtual", "DoesNotExist"),
            _require("cores", "Gt", "7"),
            _require("cores", "Lt", "129"),
        )
    ),
    "a Pod with the same expression twice": _build_pod_with_terms(
        _build_term(_require_in(_ZONE, "zone-b", "zone-a"), _require_in(_ZONE, "zone-a", "zone-b"))
    ),
    "a Pod with the same term twice": _build_pod_with_terms(
        _build_term(_require_in(_ZONE, "zone-a")), _build_term(_require_in(_ZONE, "zone-a"))
    ),
    "a Pod with preferred terms": build_pod(
        affinity={
            "nodeAffinity": {
                _PREFERRED: [
                    {"weight": 100, "preference": _build_term(_require_in(_ZONE, "zone-a"))},
                    {"weight": 1, "preference": {}},
                    {"weight": 1, "preference": _match_name("node-1")},
                ]
            }
        }
    ),
    "a Pod with an empty node affinity": build_pod(
        affinity={"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}}
    ),
    "a Pod with null inside its affinity": build_pod(
        affinity={
            "nodeAffinity": {_REQUIRED: None, _PREFERRED: None},
            "podAffinity": {_REQUIRED: None, _PREFERRED: None},
            "podAntiAffinity": None,
        }
    ),
    "a Pod with affinity to Pods": build_pod(
        affinity={
            "podAffinity": {
                _REQUIRED: [
                    _build_pod_term(_ZONE, namespaces=["default"]),
                    _build_pod_term(_ZONE, namespaceSelector={}),
                ],
                _PREFERRED: [{"weight": 50, "podAffinityTerm": _build_pod_term(_REGION)}],
            }
        }
    ),
    "a Pod with anti-affinity to Pods": build_pod(
        {"labels": {"app": "sample", "pod-template-hash": "1"}},
        affinity={
            "podAntiAffinity": {
                _REQUIRED: [
                    {
                        "labelSelector": {
                            "matchExpressions": [_require_in("app", "sample"), _require_in("pod-template-hash", "1")]
                        },
                        "matchLabelKeys": ["pod-template-hash"],
                        "topologyKey": _HOST,
                    },
                    {"topologyKey": _HOST},
                ],
                _PREFERRED: [{"weight": 1, "podAffinityTerm": _build_pod_term(_ZONE, labelSelector={})}],
            }
        },
    ),
    "a Pod with spread constraints": build_pod(
        topologySpreadConstraints=[
            _build_spread("DoNotSchedule", minDomains=2),
            _build_spread("ScheduleAnyway"),
            _build_spread("DoNotSchedule", _HOST, maxSkew=5, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"),
        ]
    ),
    "a Pod with a spread constraint that the API server has completed": build_pod(
        {"labels": {"app": "sample", "pod-template-hash": "1"}},
        topologySpreadConstraints=[
            _build_spread(
                "ScheduleAnyway",
                _HOST,
                labelSelector={**_ITSELF, "matchExpressions": [_require_in("pod-template-hash", "1")]},
                matchLabelKeys=["pod-template-hash"],
            )
        ],
    ),
    "a Pod with tolerations": build_pod(
        tolerations=[
            {"key": "dedicated", "value": "sample", "effect": "NoSchedule"},
            {"key": "dedicated", "operator": "Equal", "value": "sample", "effect": "NoExecute", "tolerationSeconds": 0},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            },
            {"key": "gpu", "operator": "Exists"},
            {"key": "gpu", "operator": "", "effect": ""},
        ]
    ),
    "a Pod with a toleration of everything": build_pod(tolerations=[{"operator": "Exists"}]),
}
