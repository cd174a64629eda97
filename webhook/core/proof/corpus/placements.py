"""Pods with placement of their own: selectors, affinities, spread constraints, tolerations."""

from typing import Any

from webhook.core.proof.corpus.containers import Json, pod

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_ZONE, _REGION, _HOST = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
_ITSELF = {"matchLabels": {"app": "sample"}}


def _in(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def _of(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _with_terms(*terms: Any) -> Json:
    return pod(affinity={"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}})


def _term(*expressions: Json) -> Json:
    return {"matchExpressions": list(expressions)}


def _by_name(name: str) -> Json:
    return {"matchFields": [_in("metadata.name", name)]}


def _apart(topology_key: str = _HOST, **more: Any) -> Json:
    return {"labelSelector": _ITSELF, "topologyKey": topology_key, **more}


def _spread(when: str, key: str = _ZONE, **more: Any) -> Json:
    return {"labelSelector": _ITSELF, "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, **more}


PLACES: dict[str, Json] = {
    "a Pod with a node selector": pod(nodeSelector={_ZONE: "zone-a", "kubernetes.io/arch": "amd64", "disk": "hdd"}),
    "a Pod with a term": _with_terms(_term(_in(_ZONE, "zone-a", "zone-b"))),
    "a Pod with two terms": _with_terms(_term(_in(_REGION, "region-a")), _term(_of(_ZONE, "NotIn", "zone-a"))),
    "a Pod with an empty term": _with_terms({}),
    "a Pod with an empty term beside another": _with_terms(
        {"matchExpressions": []}, _term(_of("kubernetes.io/arch", "Exists")), {"matchExpressions": None}
    ),
    "a Pod with a term of matchFields": _with_terms(_by_name("node-1")),
    "a Pod with a term of both kinds": _with_terms({**_by_name("node-1"), **_term(_of("virtual", "DoesNotExist"))}),
    "a Pod with a term that contradicts itself": _with_terms(
        _term(_in(_ZONE, "zone-a"), _in(_ZONE, "zone-b")), _term(_of("disk", "Exists"), _of("disk", "DoesNotExist"))
    ),
    "a Pod with every operator": _with_terms(
        _term(
            _in("kubernetes.io/os", "linux"),
            _of(_ZONE, "NotIn", "zone-x"),
            _of("disk", "Exists"),
            _of("virtual", "DoesNotExist"),
            _of("cores", "Gt", "7"),
            _of("cores", "Lt", "129"),
        )
    ),
    "a Pod with the same expression twice": _with_terms(
        _term(_in(_ZONE, "zone-b", "zone-a"), _in(_ZONE, "zone-a", "zone-b"))
    ),
    "a Pod with the same term twice": _with_terms(_term(_in(_ZONE, "zone-a")), _term(_in(_ZONE, "zone-a"))),
    "a Pod with preferred terms": pod(
        affinity={
            "nodeAffinity": {
                _PREFERRED: [
                    {"weight": 100, "preference": _term(_in(_ZONE, "zone-a"))},
                    {"weight": 1, "preference": {}},
                    {"weight": 1, "preference": _by_name("node-1")},
                ]
            }
        }
    ),
    "a Pod with an empty node affinity": pod(affinity={"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}}),
    "a Pod with null inside its affinity": pod(
        affinity={
            "nodeAffinity": {_REQUIRED: None, _PREFERRED: None},
            "podAffinity": {_REQUIRED: None, _PREFERRED: None},
            "podAntiAffinity": None,
        }
    ),
    "a Pod with affinity to Pods": pod(
        affinity={
            "podAffinity": {
                _REQUIRED: [_apart(_ZONE, namespaces=["default"]), _apart(_ZONE, namespaceSelector={})],
                _PREFERRED: [{"weight": 50, "podAffinityTerm": _apart(_REGION)}],
            }
        }
    ),
    "a Pod with anti-affinity to Pods": pod(
        {"labels": {"app": "sample", "pod-template-hash": "1"}},
        affinity={
            "podAntiAffinity": {
                _REQUIRED: [
                    {
                        "labelSelector": {"matchExpressions": [_in("app", "sample"), _in("pod-template-hash", "1")]},
                        "matchLabelKeys": ["pod-template-hash"],
                        "topologyKey": _HOST,
                    },
                    {"topologyKey": _HOST},
                ],
                _PREFERRED: [{"weight": 1, "podAffinityTerm": _apart(_ZONE, labelSelector={})}],
            }
        },
    ),
    "a Pod with spread constraints": pod(
        topologySpreadConstraints=[
            _spread("DoNotSchedule", minDomains=2),
            _spread("ScheduleAnyway"),
            _spread("DoNotSchedule", _HOST, maxSkew=5, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"),
        ]
    ),
    "a Pod with a spread constraint that the API server has completed": pod(
        {"labels": {"app": "sample", "pod-template-hash": "1"}},
        topologySpreadConstraints=[
            _spread(
                "ScheduleAnyway",
                _HOST,
                labelSelector={**_ITSELF, "matchExpressions": [_in("pod-template-hash", "1")]},
                matchLabelKeys=["pod-template-hash"],
            )
        ],
    ),
    "a Pod with tolerations": pod(
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
    "a Pod with a toleration of everything": pod(tolerations=[{"operator": "Exists"}]),
}
