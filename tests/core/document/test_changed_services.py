"""A document that differs in a few services from the one before: the same policy and problems as from a whole check."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.document.changing_documents import CHANGES, ChangingDocument, Follower
from tests.core.strategies import examples
from webhook.core.document import DocumentError, Problem, Purpose, changed_services, load
from webhook.core.policy.model import LoadedPolicy
from webhook.core.proof import prover

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"


def load_afresh(raw: bytes, purpose: Purpose = Purpose.SERVE) -> LoadedPolicy | tuple[Problem, ...]:
    try:
        return load(raw, purpose).policy
    except DocumentError as error:
        return error.problems


def load_next(follower: Follower, raw: bytes, purpose: Purpose = Purpose.SERVE) -> LoadedPolicy | tuple[Problem, ...]:
    try:
        return follower.load(raw, purpose)
    except DocumentError as error:
        return error.problems


def spell(found: LoadedPolicy | tuple[Problem, ...]) -> object:
    """Return a result with each amount as it is written."""
    return msgspec.to_builtins(found, enc_hook=repr)


def write_services(*services: str) -> str:
    return f"{HEAD}services:\n{''.join(services)}"


def write_plain(number: int, stanzas: str = "") -> str:
    return f"- name: s{number}\n  match: {{namespaces: [n{number}]}}\n{stanzas}"


@given(st.integers(0, 2**32))
@examples(150)
def test_a_changed_document_has_the_policy_and_the_problems_of_a_whole_check(seed: int) -> None:
    document, follower = ChangingDocument(seed), Follower()
    for _ in range(CHANGES):
        expected = load_afresh(document.raw)
        assert spell(load_next(follower, document.raw)) == spell(expected), document.raw.decode()
        if not isinstance(expected, LoadedPolicy):
            document.take_back()
        document.change()


def test_random_changes_are_mostly_checked_by_what_has_changed() -> None:
    read = valid = 0
    for seed in range(20):
        document, follower = ChangingDocument(seed), Follower()
        load_next(follower, document.raw)
        for _ in range(CHANGES):
            document.change()
            if isinstance(load_next(follower, document.raw), LoadedPolicy):
                valid += 1
                read += len(follower.new) < len(follower.services)
            else:
                document.take_back()
    assert valid > 60
    assert read > valid // 2


MANY = [write_plain(number) for number in range(40)]
"""Services that have nothing to do with each other."""


@pytest.fixture
def follower() -> Follower:
    follower = Follower()
    follower.load(write_services(*MANY).encode())
    return follower


def test_of_many_services_only_the_changed_one_is_read(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = changed_services.load_unproved

    def record(raw: bytes, purpose: Purpose, *, advises: bool) -> object:
        found = original(raw, purpose, advises=advises)
        read.append(len(found.policy.services))
        return found

    monkeypatch.setattr(changed_services, "load_unproved", record)
    before = follower.services
    text = write_services(*MANY[:7], write_plain(7, "  slaClass: gold\n"), *MANY[8:])
    loaded = follower.load(text.encode())
    assert (read, follower.new) == ([1], ["s7"])
    assert [service.sla_class for service in loaded.policy.services].count("gold") == 1
    assert all(after is old for after, old in zip(loaded.policy.services, before, strict=True) if after.name != "s7")


@pytest.mark.parametrize(
    "services",
    [
        [*MANY[:5], *MANY[6:]],
        [*MANY, write_plain(99)],
        [write_plain(99), *MANY],
        [*MANY[:39], write_plain(39, "# the last one\n")],
    ],
    ids=["removed", "added below", "added above", "with a comment"],
)
def test_kept_services_are_not_read_again(follower: Follower, services: list[str]) -> None:
    raw = write_services(*services).encode()
    assert follower.load(raw) == load_afresh(raw)
    assert len(follower.new) <= 1


@pytest.mark.parametrize(
    "text",
    [
        write_services(*MANY).replace("services:", "defaults: {slaClass: gold}\nservices:"),
        write_services(*MANY) + "unmatched: Warn\n",
        write_services(*MANY[1:], MANY[0]),
        write_services(*MANY[:39], write_plain(39, "  slaClass: &class gold\n")),
        write_services(*MANY).removesuffix("\n"),
        write_services(*MANY).replace("services:", '"services":'),
    ],
    ids=["defaults", "another field", "order", "anchor", "no end of the last line", "quotes"],
)
def test_a_document_that_differs_otherwise_is_checked_as_a_whole(follower: Follower, text: str) -> None:
    assert follower.load(text.encode()) == load_afresh(text.encode())
    assert len(follower.new) == 40


def test_a_document_for_another_purpose_is_checked_as_a_whole() -> None:
    selected = "- name: a\n  match: {namespaceSelector: {matchLabels: {a: b}}}\n"
    raw, follower = write_services(*MANY, selected).encode(), Follower()
    follower.load(raw)
    with pytest.raises(DocumentError, match="`serve` runs without a cluster"):
        follower.load(raw, Purpose.SERVE_ALONE)


def test_a_document_near_the_limit_of_values_is_checked_as_a_whole(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_services(*MANY[:39], write_plain(39, "  slaClass: gold\n")).encode()
    monkeypatch.setattr(changed_services, "DOCUMENT_NODES_MAX", 300)
    assert follower.load(raw) == load_afresh(raw)
    assert len(follower.new) == 40


LABELLED = "  placement: {labels: {app: x}}\n"


def write_selected(number: int, label: str, stanzas: str = "") -> str:
    """Return a service for the Pods of namespace n0 that have a label."""
    match = f"{{namespaces: [n0], podSelector: {{matchLabels: {{{label}: y}}}}}}"
    return f"- name: s{number}\n  match: {match}\n{stanzas}"


POOL = "pools: [{name: big, windows: [{window: 1h, hard: {pods: 100}}]}]\n"
GUARANTEED = "  pool: big\n  guaranteed: {windows: [{window: 1h, hard: {pods: %d}}]}\n"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ((MANY[0], MANY[1]), (MANY[0], MANY[0].replace("n0", "n9"), MANY[1]), "the name is already used"),
        (
            (MANY[0], write_plain(1)),
            (MANY[0], "- name: s1\n  match: {namespaces: [n0]}\n"),
            "service s0 above .* matches every Pod",
        ),
        (
            ("- name: x\n  match: {namespaces: [other]}\n", MANY[0]),
            ('- name: x\n  match: {namespaces: ["n*"]}\n', MANY[0]),
            "service x above .* matches every Pod",
        ),
        (
            ("- name: x\n  match: {namespaces: [other]}\n", MANY[0]),
            ("- name: x\n  match: {anyNamespace: true}\n", MANY[0]),
            "service x above .* matches every Pod",
        ),
        (
            (MANY[0], "- name: y\n  match: {namespaces: [m1]}\n", "- name: z\n  match: {namespaces: [n0, m0]}\n"),
            (MANY[0], "- name: y\n  match: {namespaces: [m0]}\n", "- name: z\n  match: {namespaces: [n0, m0]}\n"),
            "services above match every Pod",
        ),
        (
            (write_selected(0, "b", LABELLED), write_plain(1)),
            (write_selected(0, "b", LABELLED), write_selected(1, "app")),
            "the podSelector in line .* reads it",
        ),
        (
            (write_selected(0, "b"), write_selected(1, "app")),
            (write_selected(0, "b", LABELLED), write_selected(1, "app")),
            "the podSelector in line .* reads it",
        ),
        (
            (write_plain(0, GUARANTEED % 60), write_plain(1, GUARANTEED % 40)),
            (write_plain(0, GUARANTEED % 60), write_plain(1, GUARANTEED % 41)),
            "its services are guaranteed",
        ),
    ],
)
def test_a_change_that_makes_an_unchanged_service_invalid_is_found(
    before: tuple[str, ...], after: tuple[str, ...], reason: str
) -> None:
    """Among many services that it does not concern."""
    others = [write_plain(number) for number in range(50, 60)]
    follower, raw = Follower(), (write_services(*after, *others) + POOL).encode()
    follower.load((write_services(*before, *others) + POOL).encode())
    assert follower.facts is not None
    expected = load_afresh(raw)
    assert not isinstance(expected, LoadedPolicy)
    with pytest.raises(DocumentError, match=reason) as caught:
        follower.load(raw)
    assert caught.value.problems == expected


ODD = '- name: s0\n  match: {namespaces: [n0]}\n  placement: {annotations: {a: "\n- name: s1"}}\n'
"""In double quotes, a line may begin like a service."""


def test_a_text_that_looks_like_a_service_is_none() -> None:
    follower, raw = Follower(), write_services(ODD, *MANY[2:]).encode()
    assert follower.load(raw) == load_afresh(raw)
    assert follower.facts is None


def test_a_new_text_that_looks_like_a_service_is_none(follower: Follower) -> None:
    raw = write_services(ODD, *MANY[2:]).encode()
    assert follower.load(raw) == load_afresh(raw)
    assert follower.facts is None


def test_a_text_that_looks_like_a_service_is_none_where_another_has_two() -> None:
    """There are as many pieces as services, but not the same. A carriage return ends a line, too."""
    two = "".join(MANY[2:4]).replace("\n", "\r").removesuffix("\r")
    follower, raw = Follower(), f"{write_services(ODD)}{two}\n{''.join(MANY[4:])}".encode()
    loaded = follower.load(raw)
    assert loaded == load_afresh(raw)
    assert [service.name for service in loaded.policy.services[:3]] == ["s0", "s2", "s3"]
    assert follower.facts is None


def test_only_new_sets_of_rules_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = [write_plain(number, f"  placement: {{nodeSelector: {{a: b{number}}}}}\n") for number in range(9)]
    follower = Follower()
    follower.load(write_services(*placed).encode())
    proved: list[object] = []
    original = changed_services.RuleIndex.find_flaws

    def record(index: changed_services.RuleIndex, chosen: object) -> object:
        proved.extend(chosen)  # type: ignore[call-overload]
        return original(index, chosen)  # type: ignore[arg-type]

    monkeypatch.setattr(changed_services.RuleIndex, "find_flaws", record)
    placed[4] = write_plain(4, "  placement: {nodeSelector: {a: b0}}\n")
    follower.load(write_services(*placed).encode())
    assert proved == []
    placed[4] = write_plain(4, "  placement: {nodeSelector: {a: c}}\n")
    follower.load(write_services(*placed).encode())
    assert len(proved) == 1
    assert follower.facts is not None
    assert len(follower.facts.proved) == 9


def test_a_flaw_of_a_changed_service_is_found(monkeypatch: pytest.MonkeyPatch, follower: Follower) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(prover, "rewrite", fail)
    raw = write_services(*MANY[:39], write_plain(39, "  placement: {nodeSelector: {a: b}}\n")).encode()
    with pytest.raises(DocumentError, match="cannot be rewritten") as caught:
        follower.load(raw)
    assert caught.value.problems == load_afresh(raw)
