"""Limits of the rules for `resources`: rejections and warnings."""

import pytest
from hypothesis import given

from tests.core.document.documents import build_document
from tests.core.generating.policies import document
from tests.core.resource_strategies import resource_rules
from tests.core.strategies import Json, examples
from webhook.core.document.loading import load_unproved
from webhook.core.document.yaml.problems import DocumentError


def list_stanza_problems(stanza: str) -> list[str]:
    """Return the problems of a stanza `resources`, from their path on."""
    try:
        load_unproved(build_document(f"  resources: {stanza}\n").encode(), None)
    except DocumentError as error:
        return [str(problem).partition("resources.")[2] for problem in error.problems]
    return []


def list_stanza_warnings(stanza: str) -> list[str]:
    effective = load_unproved(build_document(f"  resources: {stanza}\n").encode(), None)
    return [str(warning).partition("resources.")[2] for warning in effective.warnings]


@pytest.mark.parametrize(
    ("container", "lines"),
    [
        (
            '{defaultRequest: {v.io/gpu: 1}, default: {v.io/gpu: "2"}}',
            [
                (
                    'container.defaultRequest["v.io/gpu"]: 1: below default "2" of v.io/gpu in line 6, and Kubernetes'
                    " requires both to be equal: keep one of the two"
                )
            ],
        ),
        (
            "{defaultRequest: {hugepages-2Mi: 2Mi, cpu: 1}, default: {hugepages-2Mi: 4Mi}}",
            [
                (
                    "container.defaultRequest.hugepages-2Mi: 2Mi: below default 4Mi of hugepages-2Mi in line 6, and"
                    " Kubernetes requires both to be equal: keep one of the two"
                )
            ],
        ),
        (
            "{default: {v.io/gpu: 1500m}}",
            [
                (
                    'container.default["v.io/gpu"]: 1500m: an extended resource is a whole number in Kubernetes:'
                    " write a whole number"
                )
            ],
        ),
        (
            "{max: {hugepages-2Mi: 3Mi}}",
            ["container.max.hugepages-2Mi: 3Mi: huge pages come in multiples of 2Mi: write a multiple of 2Mi"],
        ),
        (
            "{min: {hugepages-big: 4Mi}}",
            ["container.min.hugepages-big: 4Mi: not a size of huge pages: write hugepages-SIZE, such as hugepages-2Mi"],
        ),
    ],
)
def test_rule_that_kubernetes_would_refuse_in_every_pod_is_an_error(container: str, lines: list[str]) -> None:
    assert list_stanza_problems(f"{{container: {container}}}") == lines


def test_unequal_defaults_are_one_error() -> None:
    [line] = list_stanza_problems("{container: {defaultRequest: {v.io/gpu: 3}, default: {v.io/gpu: 2}}}")
    assert "above default 2 of v.io/gpu" in line


@pytest.mark.parametrize(
    ("container", "pod", "lines"),
    [
        (
            "{max: {cpu: 8}}",
            "{max: {cpu: 4}}",
            [
                (
                    "container.max.cpu: 8: the limit of a container without one, and above the Pod's max 4 of cpu"
                    " in line 6: lower it, or write default of cpu"
                )
            ],
        ),
        ("{max: {cpu: 8}, default: {cpu: 1}}", "{max: {cpu: 4}}", []),
        ("{max: {cpu: 4000m}}", "{max: {cpu: 4}}", []),
        ("{max: {v.io/gpu: 8}}", "{max: {v.io/gpu: 4}}", []),
    ],
)
def test_implied_limit_above_the_max_of_the_pod_is_an_error(container: str, pod: str, lines: list[str]) -> None:
    assert list_stanza_problems(f"{{container: {container}, pod: {pod}}}") == lines


ABOVE = "above container.maxLimitRequestRatio 2 of cpu in line 6"


@pytest.mark.parametrize(
    ("stanza", "line"),
    [
        (
            "{pod: {maxLimitRequestRatio: {cpu: 0.5}}}",
            "pod.maxLimitRequestRatio.cpu: 0.5: below 1, and a limit is never below its request: write 1 or more",
        ),
        (
            "{container: {defaultLimitRatio: {cpu: 500m}}}",
            "container.defaultLimitRatio.cpu: 500m: below 1, and a limit is never below its request: write 1 or more",
        ),
        (
            "{container: {defaultRequestRatio: {cpu: 1}}}",
            "container.defaultRequestRatio.cpu: 1: not a share of the limit: write one such as 0.5",
        ),
        (
            "{container: {maxLimitRequestRatio: {v.io/gpu: 2}}}",
            (
                'container.maxLimitRequestRatio["v.io/gpu"]: 2: Kubernetes requires its request and limit to be equal:'
                " remove it"
            ),
        ),
        (
            "{container: {defaultLimitRatio: {cpu: 2}, default: {cpu: 2}}}",
            "container.defaultLimitRatio.cpu: 2: default of cpu in line 6 sets the same limits: keep one of the two",
        ),
        (
            "{container: {default: {cpu: 3}, defaultRequest: {cpu: 1}, maxLimitRequestRatio: {cpu: 2}}}",
            f"container.default.cpu: 3: divided by defaultRequest, {ABOVE}: lower it, or raise defaultRequest",
        ),
        (
            "{container: {defaultLimitRatio: {cpu: 2500m}, maxLimitRequestRatio: {cpu: 2}}}",
            f"container.defaultLimitRatio.cpu: 2500m: {ABOVE}: lower it",
        ),
        (
            "{container: {defaultRequestRatio: {cpu: 0.4}, maxLimitRequestRatio: {cpu: 2}}}",
            f"container.defaultRequestRatio.cpu: 0.4: the limit divided by it is {ABOVE}: raise it",
        ),
        (
            "{container: {default: {cpu: 1}}, pod: {qosClasses: [BestEffort]}}",
            (
                "pod.qosClasses: [...]: the defaults give each container requests, so that no Pod is BestEffort:"
                " add Burstable, or remove the defaults"
            ),
        ),
        (
            "{container: {defaultRequestRatio: {cpu: 0.5}}, pod: {qosClasses: [Guaranteed]}}",
            (
                "pod.qosClasses: [...]: defaultRequestRatio lowers requests that equal their limits, so that Pods"
                " written as Guaranteed are denied: add Burstable, or remove defaultRequestRatio"
            ),
        ),
        (
            "{pod: {qosClasses: [Burstable, Burstable]}}",
            "pod.qosClasses[1]: Burstable: listed twice: remove one of the two",
        ),
    ],
)
def test_ratio_or_class_that_contradicts_is_rejected(stanza: str, line: str) -> None:
    assert list_stanza_problems(stanza) == [line]


@pytest.mark.parametrize(
    "container",
    [
        '{defaultRequest: {v.io/gpu: 2}, default: {v.io/gpu: "2000m"}}',
        "{defaultRequest: {v.io/gpu: 2}, default: {w.io/gpu: 3}}",
        "{defaultRequest: {x.kubernetes.io/cpu: 1}, default: {x.kubernetes.io/cpu: 2500m}}",
        "{defaultRequest: {cpu: 1}, default: {cpu: 1500m}}",
        "{default: {hugepages-1Gi: 2048Mi, memory: 1Gi}}",
        "{default: {cpu: 2}, defaultRequestRatio: {cpu: 0.5}, maxLimitRequestRatio: {cpu: 2}}",
    ],
)
def test_rule_that_kubernetes_accepts_is_valid(container: str) -> None:
    assert list_stanza_problems(f"{{container: {container}}}") == []


@pytest.mark.parametrize(
    ("stanza", "lines"),
    [
        (
            '{container: {max: {cpu: "8", v.io/gpu: 2}, default: {memory: 1Gi}}}',
            [
                (
                    'container.max.cpu: "8": a container that asks for nothing gets all of it as its limit and as its'
                    " request, because there is no default: write default of cpu too, which may be the same"
                )
            ],
        ),
        (
            "{pod: {max: {memory: 4Gi, cpu: 4, v.io/gpu: 4}}, container: {default: {cpu: 1}}}",
            [
                (
                    "pod.max.memory: 4Gi: containers without a limit count as 0 here, and are unbounded:"
                    " write container.default or container.max of memory too"
                )
            ],
        ),
        (
            "{whenOutside: Clamp, container: {default: {cpu: 1}, max: {}}}",
            [
                (
                    "whenOutside: Clamp: only containers are clamped, and theirs have no min, max or"
                    " maxLimitRequestRatio: write one of them, or remove it: a Pod as a whole is always denied"
                )
            ],
        ),
        (
            "{container: {default: {hugepages-2Mi: 2Mi, ephemeral-storage: 1Gi}}}",
            [
                (
                    "container.default.hugepages-2Mi: 2Mi: Kubernetes allows huge pages only with cpu or memory:"
                    " a container without both gets none: write a default of cpu or memory too"
                )
            ],
        ),
        (
            "{container: {maxLimitRequestRatio: {memory: 2}}}",
            [
                (
                    "container.maxLimitRequestRatio.memory: 2: a container without a limit is denied, as by LimitRange:"
                    " write defaultLimitRatio or default of memory too"
                )
            ],
        ),
        (
            "{container: {min: {cpu: 1}, default: {cpu: 2}, max: {cpu: 4}, maxLimitRequestRatio: {cpu: 5}}}",
            [
                (
                    "container.maxLimitRequestRatio.cpu: 5: above max divided by min, which no container can exceed:"
                    " lower it, or remove it"
                )
            ],
        ),
        (
            "{container: {defaultRequest: {cpu: 1}, defaultLimitRatio: {cpu: 2}, max: {cpu: 4}}, pod: {max: {cpu: 4}}}",
            [],
        ),
        (
            "{container: {default: {cpu: 2, memory: 1Gi}, defaultRequest: {cpu: 1}}, pod: {qosClasses: [Guaranteed]}}",
            [
                (
                    "pod.qosClasses: [...]: a Pod that asks for nothing becomes Burstable by the defaults, and is"
                    " denied: add Burstable, or change the defaults of cpu and memory"
                )
            ],
        ),
        (
            "{pod: {qosClasses: [Guaranteed, BestEffort, Burstable]}}",
            ["pod.qosClasses: [...]: has no effect: these are all classes: remove it"],
        ),
        ("{container: {default: {cpu: 2, memory: 1Gi}}, pod: {qosClasses: [Guaranteed]}}", []),
        ("{container: {max: {cpu: 8}, default: {cpu: 8}}, pod: {max: {cpu: 8}}, whenOutside: Clamp}", []),
        ("{container: {min: {memory: 1Mi}, default: {hugepages-2Mi: 2Mi}}, whenOutside: Deny}", []),
        ("{}", []),
    ],
)
def test_rule_with_a_probable_mistake_has_a_warning(stanza: str, lines: list[str]) -> None:
    assert list_stanza_warnings(stanza) == lines


@examples(50)
@given(resource_rules())
def test_generated_rules_are_valid(stanza: Json) -> None:
    load_unproved(document({}, resources=stanza), None)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "limits.memory",
            (
                "a container without a limit of memory may take all of its node's: remove it, and raise"
                " container.default of memory where it is too low"
            ),
        ),
        (
            "limits.ephemeral-storage",
            (
                "a container without a limit of ephemeral-storage may take all of its node's: remove it, and raise"
                " container.default of ephemeral-storage where it is too low"
            ),
        ),
        ("limits.v.io/gpu", "Kubernetes requires its request and limit to be equal: remove it"),
        ("limits.hugepages-2Mi", "Kubernetes requires its request and limit to be equal: remove it"),
        ("requests.cpu", "not a limit, and the scheduler needs requests: write limits.cpu, or remove it"),
        ("cpu", "not a limit that a container can do without: write limits.cpu"),
    ],
)
@pytest.mark.parametrize("word", ["remove", "forbid"])
def test_only_a_limit_of_cpu_can_be_taken_out_or_forbidden(word: str, name: str, reason: str) -> None:
    assert list_stanza_problems(f"{{container: {{{word}: [{name}]}}}}") == [f"container.{word}[0]: {name}: {reason}"]
    assert list_stanza_problems(f"{{container: {{{word}: [limits.cpu]}}}}") == []


@pytest.mark.parametrize("word", ["remove", "forbid"])
@pytest.mark.parametrize(
    ("owner", "field", "does"),
    [
        ("container", "default", "sets a limit"),
        ("container", "max", "becomes the limit of a container without one"),
        ("container", "maxLimitRequestRatio", "requires a limit"),
        ("container", "defaultLimitRatio", "sets a limit"),
        ("container", "defaultRequestRatio", "is a share of the limit"),
        ("initContainer", "default", "sets a limit"),
        ("initContainer", "max", "becomes the limit of an init container without one"),
        ("pod", "maxLimitRequestRatio", "requires a limit"),
    ],
)
def test_limit_that_is_taken_out_is_not_set_or_required(word: str, owner: str, field: str, does: str) -> None:
    value = "0.5" if field == "defaultRequestRatio" else "2"
    own = {"container": f"{word}: [limits.cpu]"}
    own[owner] = ", ".join(filter(None, (own.get(owner), f"{field}: {{cpu: {value}}}")))
    stanza = ", ".join(f"{part}: {{{fields}}}" for part, fields in own.items())
    reason = f"{does}, and container.{word} in line 6 allows none of cpu: keep one of the two"
    assert list_stanza_problems(f"{{{stanza}}}") == [f"{owner}.{field}.cpu: {value}: {reason}"]


@pytest.mark.parametrize(
    ("stanza", "lines"),
    [
        (
            "{container: {remove: [limits.cpu], forbid: [limits.cpu]}}",
            ["container.forbid[0]: limits.cpu: container.remove in line 6 takes it out before: keep one of the two"],
        ),
        (
            "{container: {remove: [limits.cpu, limits.cpu]}}",
            ["container.remove[1]: limits.cpu: listed twice: remove one of the two"],
        ),
        (
            "{container: {forbid: [limits.cpu]}, pod: {qosClasses: [Guaranteed]}}",
            [
                (
                    "pod.qosClasses: [...]: containers without a limit of cpu are not Guaranteed (container.forbid in"
                    " line 6): add Burstable, or take limits.cpu out of container.forbid"
                )
            ],
        ),
    ],
)
def test_contradiction_of_limits_is_an_error(stanza: str, lines: list[str]) -> None:
    assert list_stanza_problems(stanza) == lines


@pytest.mark.parametrize(
    ("stanza", "lines"),
    [
        (
            "{container: {default: {cpu: 1}}, initContainer: {defaultRequest: {cpu: 2}}}",
            [
                (
                    "initContainer.defaultRequest.cpu: 2: above container.default 1 of cpu in line 6: change it, or"
                    " write initContainer.default of cpu that fits"
                )
            ],
        ),
        (
            "{container: {defaultRequest: {cpu: 1}}, initContainer: {default: {cpu: 500m}}}",
            [
                (
                    "initContainer.default.cpu: 500m: below container.defaultRequest 1 of cpu in line 6, which init"
                    " containers have too: change it, or write initContainer.defaultRequest of cpu that fits"
                )
            ],
        ),
        (
            "{container: {default: {v.io/gpu: 2}}, initContainer: {defaultRequest: {v.io/gpu: 1}}}",
            [
                (
                    'initContainer.defaultRequest["v.io/gpu"]: 1: Kubernetes requires request and limit to be equal,'
                    " and it is below container.default 2 of v.io/gpu in line 6: change it, or write"
                    " initContainer.default of v.io/gpu that fits"
                )
            ],
        ),
        (
            "{initContainer: {default: {v.io/gpu: 1500m}}}",
            [
                (
                    'initContainer.default["v.io/gpu"]: 1500m: an extended resource is a whole number in Kubernetes:'
                    " write a whole number"
                )
            ],
        ),
        (
            "{initContainer: {default: {cpu: 4}}, pod: {max: {cpu: 2}}, container: {default: {cpu: 1}}}",
            [
                (
                    "initContainer.default.cpu: 4: above the Pod's max 2 of cpu in line 6: lower it, or raise the Pod's"
                    " max"
                )
            ],
        ),
        (
            "{initContainer: {max: {memory: 4Gi}}, pod: {max: {memory: 2Gi}}}",
            [
                (
                    "initContainer.max.memory: 4Gi: above the Pod's max 2Gi of memory in line 6: lower it, or raise the"
                    " Pod's max"
                )
            ],
        ),
        (
            (
                "{container: {defaultRequest: {cpu: 1}, default: {cpu: 2}, maxLimitRequestRatio: {cpu: 2}},"
                " initContainer: {default: {cpu: 4}}}"
            ),
            [
                (
                    "initContainer.default.cpu: 4: default divided by defaultRequest is above"
                    " container.maxLimitRequestRatio 2 of cpu in line 6: bring the two closer together"
                )
            ],
        ),
    ],
)
def test_amounts_of_init_containers_agree_with_those_they_inherit(stanza: str, lines: list[str]) -> None:
    assert list_stanza_problems(stanza) == lines


def test_amount_of_init_containers_without_an_effect_is_a_warning() -> None:
    assert list_stanza_warnings("{initContainer: {}}") == [
        "initContainer: {}: has no effect: it has no amount: write one, such as default, or remove it"
    ]
    assert list_stanza_warnings("{container: {default: {cpu: 1}}, initContainer: {default: {cpu: 1000m}}}") == [
        "initContainer.default.cpu: 1000m: has no effect: container.default of cpu in line 6 is the same: remove it"
    ]


@pytest.mark.parametrize(
    "hard", ["windows: [{window: 1m, hard: {limits.cpu: 5}}]", "standing: {hard: {limits.cpu: 5}}"]
)
def test_quota_of_limits_that_are_taken_out_is_a_warning(hard: str) -> None:
    stanzas = f"  resources: {{container: {{remove: [limits.cpu]}}}}\n  quota: {{{hard}}}\n"
    [warning] = map(str, load_unproved(build_document(stanzas).encode(), None).warnings)
    assert warning.endswith(
        'hard["limits.cpu"]: 5: counts no container: container.remove in line 6 leaves none of these limits:'
        " write requests.cpu instead"
    )
    tried = load_unproved(build_document(f"  modes: {{resources: Warn}}\n{stanzas}").encode(), None)
    assert list(tried.warnings) == []
