"""Bombs: what would take long or grow is refused when the policy is loaded, or is bounded by its count.

What a count costs in time is measured by `tests/bench/pod_rules.py`.
"""

import pytest

from tests.bench.pod_rules import NEAR_THE_LIMIT, SUBJECT, make_largest_pod, read_whole
from webhook.core.pod_rules import COST_MAX, ExpressionError, compile_expression
from webhook.core.pod_rules.environment import load_environment
from webhook.core.pod_rules.patterns import count_atoms

GROWING = {
    "a text doubled by each map": "size([user]" + ".map(a, a + a)" * 30 + "[0]) > 5",
    "a list doubled by each map": "[0]" + ".map(a, [a, a])" * 20 + " == [0]" + ".map(a, [a, a])" * 20,
    "a text doubled by optMap": "optional.of(user)" + ".optMap(a, a + a)" * 30 + '.orValue("") == ""',
    "lists joined in a loop": "pod.containers.all(c, size(pod.containers + pod.containers) > 1)",
    "a map made in a loop": 'pod.containers.all(c, {"a": c.name} == {"a": "b"})',
    "lists of lists compared": "pod.labels.map(k, pod.labels.map(j, pod.labels)) == [[pod.labels]]",
    "whole Pods compared": "pod.containers.all(c, pod == pod)",
    "containers looked for": "pod.containers.all(c, c in pod.containers)",
    "nested loops": "pod.containers.all(a, pod.containers.all(b, pod.containers.all(c, true)))",
    "two loops with too much in them": "pod.labels.all(a, pod.labels.all(b, pod.labels[a] == pod.labels[b]))",
    "a loop over a long list in a loop": f"[{','.join('1' * 200)}].all(a, [{','.join('1' * 200)}].all(b, a == b))",
    "a search in a loop in a loop": "pod.labels.all(a, pod.labels.all(b, a in pod.schedulingGates))",
    "optional Pods compared": "pod.containers.all(c, optional.of(pod) == optional.of(pod))",
    "values of a mixed list compared": "[pod, 1].exists(a, a == pod.name)",
    "joined lists in a loop": f"[{' + '.join(['pod.containers'] * 60)}].all(l, l.all(c, c.image.matches('a')))",
    "a search in a joined text": f"({' + '.join(['user'] * 250)}).matches('{'[a-z]' * 10}')",
    "a pattern of the Pod": "user.matches(pod.name)",
    "a pattern in a loop": 'pod.labels.all(k, k.matches("^[a-z]{1,63}$"))',
    "a pattern with nested counts": 'user.matches("^(((a?){30})?){20}$")',
    "a long pattern": f'user.matches("{"[a-z]?" * 300}")',
    "a pattern with classes of Unicode": r'user.matches("\\pL*")',
    "a pattern with flags": 'user.matches("(?i)a")',
    "a hidden type": "dyn(pod).containers.all(c, true)",
    "a message": 'podgate.Pod{name: "a"}.name == "a"',
    "a time zone": 'timestamp("2026-01-01T00:00:00Z").getHours("Europe/Berlin") > 1',
    "deep brackets": f"{'(' * 400}true{')' * 400}",
    "a long sum": f"{'1+' * 900}1 > 0",
    "nested conditions": "true ? true : " * 130 + "true",
    "a macro that doubles its operand": "optional.of(1).optFlatMap(a, optional.of(a)).hasValue()",
}
BOUNDED = [
    "pod.containers.all(c, c.requests.cpu <= quantity('2').milliValue && c.limits.memory <= quantity('4Gi').value)",
    "pod.containers.all(c, pod.tolerations.exists(t, t.key == c.name))",
    "pod.labels.all(k, k.startsWith('example.com/') || pod.labels[k] in ['a', 'b', 'c'])",
    "pod.containers.filter(c, c.name != 'a').map(c, c.requests.cpu).exists(x, x > 2)",
    r"pod.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
    "pod.labels.all(k, pod.labels == pod.labels)",
    "pod.containers.all(c, c.env.all(e, !has(e.valueFrom.secretKeyRef)))",
    "pod.containers.all(c, c.securityContext.capabilities.drop == ['ALL'] && c.securityContext.capabilities.add == [])",
    "(pod.initContainers + pod.containers).all(c, !c.image.endsWith(':latest'))",
    " && ".join(["true"] * 200),
]


@pytest.mark.parametrize("expression", GROWING.values(), ids=GROWING)
def test_bomb_is_refused_when_it_is_loaded(expression: str) -> None:
    assert len(expression) <= 2048
    with pytest.raises(ExpressionError) as refused:
        compile_expression(expression, "bool")
    assert refused.value.reason
    assert refused.value.remedy
    assert "\n" not in refused.value.reason


@pytest.mark.parametrize("expression", BOUNDED)
def test_rule_that_people_write_is_within_the_bound(expression: str) -> None:
    assert 0 < compile_expression(expression, "bool").cost <= COST_MAX


def test_lists_of_containers_count_by_their_limit_together() -> None:
    def cost(text: str) -> int:
        return compile_expression(text, "bool").cost

    each = "{}.all(c, c.env.all(e, e.name != 'A'))"
    once = cost(each.format("pod.containers"))
    assert cost(each.format("(pod.initContainers + pod.containers)")) > 1.9 * once
    several = f"[{', '.join(['pod.containers[0]'] * 50)}]"  # the same container again and again: no limit together
    assert cost(each.format(several)) > 4 * once
    other = "pod.containers.all(c, pod.containers[0].env.all(e, e.name != 'A'))"
    assert cost(other) > 4 * once
    shadowed = "pod.containers.all(c, pod.containers.map(c, c.env).all(c, c.all(e, e.name != 'A')))"
    with pytest.raises(ExpressionError, match="may cost"):
        cost(shadowed)


def test_cost_counts_every_turn_of_a_loop() -> None:
    literal = compile_expression("[1, 2, 3, 4].all(n, n > 0)", "bool").cost
    longer = compile_expression("[1, 2, 3, 4, 5, 6, 7, 8].all(n, n > 0)", "bool").cost
    once, of_the_pod = (compile_expression(text, "bool").cost for text in ("1 > 0", "pod.labels.all(k, k != '')"))
    assert once < literal < longer < of_the_pod


@pytest.mark.parametrize(
    ("pattern", "atoms"),
    [
        ("", 0),
        ("abc", 3),
        ("[a-z]", 1),
        ("[]a]b", 2),
        (r"\d\]", 2),
        ("a{3}", 3),
        ("a{2,5}", 5),
        ("(ab){3}", 6),
        ("((a{10}){10}){2}", 200),
        ("a{3,", 3),
        ("(a", 1),
        ("a)", 2),
        ("[a", 2),
    ],
)
def test_pattern_counts_as_it_is_written_out(pattern: str, atoms: int) -> None:
    assert count_atoms(pattern) == atoms


@pytest.mark.parametrize("expression", [*BOUNDED, *NEAR_THE_LIMIT])
def test_accepted_expression_ends_below_the_librarys_limit_of_iterations(expression: str) -> None:
    """Otherwise the rule would fail for large Pods, which is not what its cost says."""
    compiled = compile_expression(expression, "bool")
    assert compiled.cost <= COST_MAX
    found = read_whole(make_largest_pod(), SUBJECT)
    assert found.excess == {}
    compiled.expression.evaluate(load_environment().activate(found.values, SUBJECT))


def test_results_of_joined_texts_count_by_their_parts() -> None:
    """A list of long texts takes memory for each of them."""
    each = "[{}].all(t, pod.labels.map(k, t).size() > 0)"
    short, long = (compile_expression(each.format(" + ".join(["user"] * parts)), "bool").cost for parts in (1, 20))
    assert long > 8 * short
