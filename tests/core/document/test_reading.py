from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.document.documents import HEAD, SERVICE, build_document, list_problems, load_only_service
from webhook.core.document import DocumentError, Problem, Purpose, load
from webhook.core.document.yaml.reader import DOCUMENT_DEPTH_MAX, read_yaml

WORDS = st.sampled_from(
    [
        *("apiVersion: podgate.io/v1alpha1", "kind: Policy", "services:", "- name: a", "  match: {namespaces: [x]}"),
        *("defaults:", "  quota:", "    windows:", "    - {window: 1m, hard: {pods: 5}}", "  placement: &p {a: b}"),
        *("*p", "<<: *p", "&p", "yes", "null", "0x1f", "1e999", "-.5", ": ", "- ", "? ", "{", "}", "[", "]", '"', "'"),
        *(
            "\t",
            "---",
            "...",
            "%YAML 1.1",
            "!!binary x",
            "!t",
            "|",
            ">",
            "#",
            "  ",
            "\u2028",
            "\x85",
            "\ufeff",
            "é",
            "\0",
        ),
    ]
)
RANDOM_YAML = st.lists(st.tuples(WORDS, st.sampled_from(["", " ", "\n", "\n  ", "\n    "])), max_size=40).map(
    lambda parts: "".join(word + gap for word, gap in parts).encode()
)


def check_errors(raw: bytes) -> None:
    """Read `raw` for every command: it is valid, or raises DocumentError with sorted problems."""
    for purpose in Purpose:
        found: tuple[Problem, ...] | None = None
        try:
            load(raw, purpose)
        except DocumentError as error:
            found = error.problems
        assert found is None or (found and list(found) == sorted(found))


@given(st.binary(max_size=200))
@example(b"\xff\xfea\0:\0")
@example(b"a: \xed\xa0\x80")
def test_arbitrary_bytes_raise_only_document_errors(raw: bytes) -> None:
    check_errors(raw)


@example(b"\xe2\x80\xa8|\n  apiVersion: podgate.io/v1alpha1")
@given(RANDOM_YAML)
def test_arbitrary_yaml_raises_only_document_errors(raw: bytes) -> None:
    check_errors(raw)


SCALARS = st.sampled_from(
    [
        "yes",
        "null",
        "5",
        "-1",
        "1.5",
        "1m",
        '"x"',
        "x",
        "Deny",
        "{}",
        "[]",
        "[x]",
        "{a: b}",
        "[{}]",
        "[[]]",
        "010",
        '""',
    ]
)
FIELDS = st.sampled_from(
    [
        *("match", "modes", "placement", "quota", "breaker", "resources", "pool", "slaClass", "failureMode"),
        *("match.namespaces", "match.podSelector.matchExpressions", "placement.topology", "placement.tolerations"),
        *("placement.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution", "placement.nodeSelector"),
        *("quota.windows", "quota.per", "quota.standing.hard", "quota.standing.surge", "quota.denial.status"),
        *("breaker.outcomes.source", "breaker.errorRate.interval", "breaker.quotaExceeded", "breaker.openFor"),
        *("resources.container.min", "resources.container.min.cpu", "resources.pod.max.cpu"),
    ]
)


@given(st.lists(st.tuples(FIELDS, SCALARS), max_size=6))
def test_any_value_in_any_field_raises_only_document_errors(fields: list[tuple[str, str]]) -> None:
    tree: dict[str, object] = {}
    for path, value in fields:
        steps = path.split(".")
        parent = tree
        for step in steps[:-1]:
            inner = parent.setdefault(step, {})
            parent = inner if isinstance(inner, dict) else {}
        parent[steps[-1]] = value
    body = format_flow(tree)
    check_errors(f"{HEAD}defaults: {body}\n{SERVICE}".encode())
    check_errors(f"{HEAD}services:\n- {body}\n".encode())
    named = body.replace("{", "{name: a, ", 1)
    check_errors(f"{HEAD}services:\n- {named}\n".encode())


def format_flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {format_flow(inner)}" for key, inner in value.items()) + "}"
    return str(value)


def test_the_hash_is_of_the_raw_bytes() -> None:
    raw = (HEAD + SERVICE).encode()
    assert load(raw, Purpose.SERVE).policy.hash == sha256(raw).hexdigest()[:16]
    assert load(raw + b"# a comment\n", Purpose.SERVE).policy.hash != sha256(raw).hexdigest()[:16]


def test_a_byte_order_mark_is_skipped() -> None:
    assert list_problems("\ufeff" + HEAD + SERVICE) == []


def test_document_above_one_mebibyte_is_refused() -> None:
    with pytest.raises(DocumentError, match="1 MiB"):
        load(b"#" * (1 << 20) + b"\n", Purpose.LINT)


def test_nesting_is_bounded() -> None:
    [problem] = list_problems("a: " + "[" * 5000)
    assert f"deeper than {DOCUMENT_DEPTH_MAX} levels" in problem


def test_the_expansion_of_aliases_is_bounded() -> None:
    doubling = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    [problem] = list_problems(HEAD + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + doubling)
    assert "aliases expanded" in problem


def test_expansion_of_defaults_under_many_services_is_bounded() -> None:
    labels = ", ".join(f"label-{n}: value" for n in range(900))
    services = "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}}}\n" for n in range(400))
    document = f"{HEAD}defaults: {{placement: {{nodeSelector: {{{labels}}}}}}}\nservices:\n{services}"
    [problem] = list_problems(document)
    assert "once `defaults` is under every service" in problem


@pytest.mark.parametrize("value", ["2", "+2", "2.0", "2e0", "0.2e1", '"2"', "2000m"])
def test_an_amount_is_read_from_its_text_exactly(value: str) -> None:
    quota = load_only_service(build_document(f"  quota: {{windows: [{{window: 1m, hard: {{cpu: {value}}}}}]}}\n")).quota
    assert quota is not None
    assert quota.windows[0].hard["cpu"].value == 2


def test_decimal_fraction_is_read_exactly() -> None:
    quota = load_only_service(build_document("  quota: {windows: [{window: 1m, hard: {cpu: 0.1}}]}\n")).quota
    assert quota is not None
    assert quota.windows[0].hard["cpu"].value * 10 == 1


@pytest.mark.parametrize("value", ["yes", "on", "true", "True"])
def test_yaml_1_1_boolean_is_a_boolean_in_a_boolean_field(value: str) -> None:
    document = HEAD + f"services:\n- name: a\n  match: {{anyNamespace: {value}}}\n"
    assert load_only_service(document).match.any_namespace is True


def test_misspelled_field_with_two_possible_meanings_suppresses_no_other_problem() -> None:
    found = list_problems(build_document("  quota: {windws: []}\n  breaker: {}\n"))
    assert [line.split(": ")[1] for line in found] == ["services[0].quota.windws", "services[0].breaker"]


@pytest.mark.parametrize(
    ("key", "reasons"),
    [
        ("key", []),
        ('"key"', []),
        ("&anchor key", []),
        ("!!str key", []),
        ("!other key", ['the tag "!other" has no meaning here']),
        ("yes", ["yes without quotes is a YAML boolean, and a key must be text"]),
        ("<<", ["merge keys are not supported"]),
        ("[key]", ["a key must be plain text"]),
    ],
)
@pytest.mark.parametrize("before", ["key: 1", "key: 1, yes: 1, <<: 1", '"key": 1, "yes": 1, "<<": 1'])
def test_a_key_is_judged_by_its_form_though_its_text_was_a_key_before(
    before: str, key: str, reasons: list[str]
) -> None:
    reading = read_yaml(f"- {{{before}}}\n- {key}: 1\n- {{{key}: 1}}\n".encode())
    assert [problem.reason for problem in reading.problems if problem.line > 1] == reasons * 2
