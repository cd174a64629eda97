"""The list of rules: a rule is listed under the one stanza that it reads, so it is applied once to a shared stanza."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.document.documents import HEAD, list_problems
from webhook.core.document import DocumentError
from webhook.core.document.defaults import ATOMIC, merge_defaults
from webhook.core.document.rules.rule_list import ADVICE_ON_A_SERVICE, SERVICE_RULES, WHOLE
from webhook.core.document.schema_problems import find_schema_problems
from webhook.core.document.yaml.parts import DocumentPart, InvalidPaths, stop_at_invalid
from webhook.core.document.yaml.reader import read_yaml

HERE = Path(__file__).parent
VALID = (*sorted(HERE.glob("good/*.yaml")), HERE / "complete_example.yaml")
DOCUMENTS = {"errors": (*sorted(HERE.glob("bad/*.yaml")), *VALID), "advice": VALID}
"""What is advised is said of valid documents only."""
RULES = {"errors": SERVICE_RULES, "advice": ADVICE_ON_A_SERVICE}


def select_services(path: Path) -> Iterator[DocumentPart]:
    try:
        root = read_yaml(path.read_bytes()).root
    except DocumentError:
        return
    if not isinstance(root.value, dict):
        return
    document = merge_defaults(root, ATOMIC)
    wrong = [invalid for mistake in find_schema_problems(document) for invalid in mistake.wrong]
    yield from DocumentPart(document, (), InvalidPaths(wrong)).select("services", "*")


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_says_the_same_of_a_service_without_its_other_stanzas(kind: str) -> None:
    rules, compared = RULES[kind], 0
    for path in DOCUMENTS[kind]:
        for service in select_services(path):
            for stanza in rules.keys() & service.fields().keys() - {WHOLE}:
                for rule in rules[stanza]:
                    whole = list(stop_at_invalid(rule(service)))
                    assert list(stop_at_invalid(rule(service.narrow(stanza)))) == whole, (path.stem, stanza)
                    compared += len(whole)
    assert compared


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_has_nothing_to_say_of_a_service_without_its_stanza(kind: str) -> None:
    for path in DOCUMENTS[kind]:
        for service in select_services(path):
            for stanza in RULES[kind].keys() - service.fields().keys() - {WHOLE}:
                found = [problem for rule in RULES[kind][stanza] for problem in stop_at_invalid(rule(service))]
                assert found == [], (path.stem, stanza)


def test_a_mistake_in_the_defaults_is_reported_once_for_all_services() -> None:
    defaults = "defaults:\n  placement:\n    tolerations: [{key: a, operator: Exists, value: b}]\n"
    services = "".join(f"- {{name: s{number}, match: {{namespaces: [s{number}]}}}}\n" for number in range(3))
    [problem] = list_problems(f"{HEAD}{defaults}services:\n{services}")
    assert "defaults.placement.tolerations[0]" in problem
