"""Policy documents: each problem names its place, and a good document means the same after it was rendered."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.fuzz.catalogue import Form
from webhook.core.document import DocumentError, Purpose, load, render
from webhook.core.document.loading import load_effective
from webhook.core.document.rendering import format_yaml_lines, strip_sources
from webhook.core.document.yaml.problems import Problem
from webhook.core.policy.model import Policy

FORM = Form.LINES
_FOLDER = Path(__file__).parents[2] / "core/document"
_LINES_ADDED_MAX = 1
"""A problem at the end of a document may be told of the line after its last."""
WORDS = (
    *(
        "apiVersion: podgate.io/v1alpha1",
        "kind: Policy",
        "services:",
        "- name: a",
        "match:",
        "namespaces: [a]",
        "defaults:",
    ),
    *("placement:", "nodeSelector: {a: b}", "tolerations:", "topology:", "affinity:", "labels: {a: b}", "resources:"),
    *(
        "container:",
        "hard: {pods: 1}",
        "quota:",
        "windows:",
        "- {window: 1m, hard: {pods: 5}}",
        "standing:",
        "breaker:",
    ),
    *("quotaExceeded: {count: 1, within: 1m}", "pools:", "pool: a", "shares:", "rules:", "schedules:", "guaranteed:"),
    *("*a", "&a", "!!str", "<<: *a", "1.5", "1e3", "010", "~", "yes", '"1"', "5m", "10%", "1Gi", "{{ x }}", "|", ">-"),
)


def list_seeds() -> list[bytes]:
    files = [_FOLDER / "complete_example.yaml", *sorted((_FOLDER / "good").glob("*.yaml"))]
    bad = sorted((_FOLDER / "bad").glob("*.yaml"))[::4]
    return [path.read_bytes() for path in (*files, *bad)]


def check(data: bytes) -> None:
    try:
        result = load(data, Purpose.LINT)
    except DocumentError as error:
        assert error.problems
        for problem in error.problems:
            _check_problem(problem, data)
        return
    for warning in result.warnings:
        _check_problem(warning, data)
    sourced = render(data)
    assert sourced is not None
    text = "\n".join(format_yaml_lines(sourced))
    assert yaml.load(text, yaml.CSafeLoader) == strip_sources(sourced)
    once = load_effective(text.encode(), None).policy
    assert _plain(once) == _plain(result.policy.policy)
    again = render(text.encode())
    assert again is not None
    assert strip_sources(again) == strip_sources(sourced)


def _check_problem(problem: Problem, data: bytes) -> None:
    lines = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    count = 1 + sum(lines.count(end) for end in "\n\x85\u2028\u2029") + _LINES_ADDED_MAX
    assert 1 <= problem.line <= count, problem
    assert problem.column >= 1, problem
    assert problem.path, problem
    assert problem.reason, problem
    assert problem.remedy, problem
    assert str(problem).isprintable(), ascii(str(problem))


def _plain(policy: Policy) -> Any:
    return msgspec.to_builtins(policy, enc_hook=str)
