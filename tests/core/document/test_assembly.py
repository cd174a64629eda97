"""The policy assembled from its root and the parts of teams."""

from pathlib import Path

import pytest

from tests.core.document.assembled_parts import ROOT, SERVICE, part, read_names
from webhook.core.document import Purpose, load
from webhook.core.document.assembly import assemble
from webhook.core.document.yaml.problems import DocumentError

ROOT_FOLDER = Path(__file__).parents[3]
A, B = part("a-web", "a-prod"), part("b-api", "b")


def assemble_parts(root: str = ROOT, former: bytes = b"", **parts: str) -> tuple[bytes, dict[str, list[str]]]:
    found = assemble(root.encode(), {name: text.encode() for name, text in parts.items()}, Purpose.SERVE, former)
    return found.document, {name: [str(problem) for problem in problems] for name, problems in found.problems.items()}


def test_a_root_without_parts_stays_as_it_is() -> None:
    root = ROOT.partition("parts:")[0] + "# café\n"
    document, problems = assemble_parts(root)
    assert (document, problems) == (root.encode(), {})
    document, problems = assemble_parts(root, a=A)
    assert document == root.encode()
    assert problems == {
        "a": [
            "1:1: (document): a: not a part of the policy: the root declares no parts: add it to parts: - {name: a}",
        ]
    }


def test_services_of_parts_follow_those_of_the_root_in_its_order() -> None:
    document, problems = assemble_parts(b=B, a=A)
    assert problems == {}
    assert read_names(document) == ["core", "a-web", "b-api"]
    assert assemble_parts(a=A, b=B)[0] == document
    loaded = load(document, Purpose.SERVE).policy.policy
    assert [part.name for part in loaded.parts] == ["a", "b"]
    assert loaded.services[1].quota is not None  # the root's defaults
    assert read_names(assemble_parts(a=A)[0]) == ["core", "a-web"]


BAD = [
    ("not yaml", "services: [", "a"),
    ("no services", "apiVersion: podgate.io/v1alpha1\nkind: PolicyPart\n", "a part is a list of services"),
    ("another kind", A.replace("PolicyPart", "Policy"), "write kind: PolicyPart"),
    ("another field", f"{A}unmatched: Deny\n", "remove unmatched: the root document decides it"),
    ("another name", part("web", "a-prod"), "services[0].name: web: no name for a service of part a: write a, or"),
    ("a name of the root", part("a-root", "a-prod"), "a service of the root document has this name"),
    ("another namespace", part("a-web", "b"), "services[0].match.namespaces[0]: b: outside the namespaces of part a"),
    ("a wider pattern", part("a-web", '"*"'), "outside the namespaces of part a"),
    ("any namespace", part("a-web", "a-prod").replace("namespaces: [a-prod]", "anyNamespace: true"), "is bound to"),
    ("a selector alone", A.replace("namespaces: [a-prod]", "namespaceSelector: {matchLabels: {x: y}}"), "is bound to"),
    (
        "a guarantee",
        A.replace("name: a-web", "name: a-web, guaranteed: {windows: [{window: 1m, hard: {pods: 1}}]}"),
        "services[0].guaranteed: {...}: only the root document gives parts of its pools away",
    ),
    ("a pool", A.replace("name: a-web", "name: a-web, pool: shared"), "part a may not join this pool"),
    ("an unknown field", A.replace("name: a-web", "name: a-web, quotas: {}"), "4:"),
    ("twice the same name", f"{A}- {SERVICE % ('a-web', 'a-prod')}", "the name is already used in line 4"),
    ("no effect", f"{A}- {SERVICE % ('a-x', 'a-prod')}", "service a-web above (line 4) matches every"),
]


@pytest.mark.parametrize(("text", "reason"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_part_is_left_out_alone(text: str, reason: str) -> None:
    root = ROOT.replace("- {name: core", "- {name: a-root, match: {namespaces: [a-root]}}\n- {name: core")
    document, problems = assemble_parts(root, a=text, b=B)
    assert read_names(document) == ["a-root", "core", "b-api"]
    assert problems.keys() == {"a"}
    assert any(reason in problem for problem in problems["a"]), problems
    load(document, Purpose.SERVE)


def test_the_former_services_of_a_bad_part_stay_as_far_as_they_are_allowed() -> None:
    former, _ = assemble_parts(a=f"{A}- {SERVICE % ('a-old', 'a-old')}", b=B)
    document, problems = assemble_parts(former=former, a="kind: x", b=part("b-new", "b"))
    assert read_names(document) == ["core", "a-web", "a-old", "b-new"]
    assert problems.keys() == {"a"}
    narrower = ROOT.replace('"a-*"', "a-prod")
    assert read_names(assemble_parts(narrower, former=former, a="kind: x")[0]) == ["core", "a-web"]
    assert read_names(assemble_parts(former=former)[0]) == ["core"]  # a part that is gone takes its services with it


def test_a_part_that_does_not_fit_the_others_is_left_out_alone() -> None:
    root = ROOT.replace("namespaces: [core]", 'namespaces: ["a-p*"]')
    document, problems = assemble_parts(root, a=A, b=B)
    assert read_names(document) == ["core", "b-api"]
    assert "service core above" in problems["a"][0]
    former = document.replace(b'"b-api"', b'"a-api"').replace(b'"b"', b'"a-prod"')
    assert read_names(assemble_parts(root, former=former, a="x", b=B)[0]) == ["core", "b-api"]


def test_an_invalid_root_is_returned_for_its_own_check() -> None:
    for root in ("services: [", "parts: 3\nservices: 4\n", "a: 1"):
        assert assemble_parts(root, a=A)[0] == root.encode()


def test_numbers_and_texts_mean_the_same() -> None:
    exact = 'hard: {cpu: 0.10, memory: 1e3, pods: "07"}'
    text = A.replace("match:", f"quota: {{windows: [{{window: 1m, {exact}}}]}}, match:")
    (service,) = load(assemble_parts(a=text)[0], Purpose.REVIEW).policy.policy.services[1:]
    assert service.quota is not None
    hard = service.quota.windows[0].hard
    assert [str(hard[name]) for name in ("cpu", "memory", "pods")] == ["0.1", "1000.0", "07"]


def test_a_number_beyond_a_double_is_reported_at_its_place() -> None:
    root = ROOT.replace("{pods: 10}", "{pods: 1e999}")
    with pytest.raises(DocumentError, match="1e999"):
        load(assemble_parts(root, a=A)[0], Purpose.REVIEW)


EXAMPLES = ROOT_FOLDER / "docs" / "examples" / "parts"


def test_the_example_of_the_page_is_valid_and_printed_there() -> None:
    page = (ROOT_FOLDER / "docs" / "parts.md").read_text()
    root, shop, vision = ((EXAMPLES / f"{name}.yaml").read_text() for name in ("policy", "shop", "vision"))
    assert root in page
    assert shop in page
    document, problems = assemble_parts(root, shop=shop, vision=vision)
    assert problems == {}
    assert read_names(document) == ["platform", "shop-checkout", "shop", "vision-training"]
