"""Limits of the rules for `resources`: rejections and warnings."""

import pytest
from hypothesis import given

from tests.core.document.documents import with_service
from tests.core.generating.policies import document
from tests.core.resource_strategies import resource_rules
from tests.core.strategies import Json, examples
from webhook.core.document.loading import load_unproved
from webhook.core.document.yaml.problems import DocumentError


def problems(stanza: str) -> list[str]:
    """Return the problems of a stanza `resources`, from their path on."""
    try:
        load_unproved(with_service(f"  resources: {stanza}\n").encode(), None)
    except DocumentError as error:
        return [str(problem).partition("resources.")[2] for problem in error.problems]
    return []


def warnings(stanza: str) -> list[str]:
    effective = load_unproved(with_service(f"  resources: {stanza}\n").encode(), None)
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
    assert problems(f"{{container: {container}}}") == lines


def test_unequal_defaults_are_one_error() -> None:
    [line] = problems("{container: {defaultRequest: {v.io/gpu: 3}, default: {v.io/gpu: 2}}}")
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
    assert problems(f"{{container: {container}, pod: {pod}}}") == lines


@pytest.mark.parametrize(
    "container",
    [
        '{defaultRequest: {v.io/gpu: 2}, default: {v.io/gpu: "2000m"}}',
        "{defaultRequest: {v.io/gpu: 2}, default: {w.io/gpu: 3}}",
        "{defaultRequest: {x.kubernetes.io/cpu: 1}, default: {x.kubernetes.io/cpu: 2500m}}",
        "{defaultRequest: {cpu: 1}, default: {cpu: 1500m}}",
        "{default: {hugepages-1Gi: 2048Mi, memory: 1Gi}}",
    ],
)
def test_rule_that_kubernetes_accepts_is_valid(container: str) -> None:
    assert problems(f"{{container: {container}}}") == []


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
                    "whenOutside: Clamp: only containers are clamped, and theirs have neither min nor max:"
                    " write one of them, or remove it: a Pod as a whole is always denied"
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
        ("{container: {max: {cpu: 8}, default: {cpu: 8}}, pod: {max: {cpu: 8}}, whenOutside: Clamp}", []),
        ("{container: {min: {memory: 1Mi}, default: {hugepages-2Mi: 2Mi}}, whenOutside: Deny}", []),
        ("{}", []),
    ],
)
def test_rule_with_a_probable_mistake_has_a_warning(stanza: str, lines: list[str]) -> None:
    assert warnings(stanza) == lines


@examples(50)
@given(resource_rules())
def test_generated_rules_are_valid(stanza: Json) -> None:
    load_unproved(document({}, resources=stanza), None)
