"""Alerts and recording rules in promtool: each alert fires on its fault and on nothing else."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane import FEW_COLLECTIONS
from tests.monitoring.programs import programs
from tests.monitoring.rule_files import FOLDER, RULES, alerts, metrics, rules
from webhook.adapters.metrics.families import FAMILIES
from webhook.adapters.metrics.family import MetricKind

SITUATIONS = yaml.safe_load(Path(__file__).with_name("alerts.yaml").read_text())
RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
BUDGET_GROUPS = ("podgate-objectives", "podgate-budgets")
RUNBOOK_URL = "https://podgate.io/docs/runbook.md"
FIRING = 'group by (alertname, severity, long_window) (ALERTS{alertstate="firing"})'
HEADER = """\
# The groups of rules.yaml for the Prometheus operator. Change them there: `pytest tests/monitoring --refresh-goldens`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: podgate
  labels: {app.kubernetes.io/name: podgate}
spec:
"""


def promtool(*arguments: str | Path) -> str:
    environment = {**os.environ, **FEW_COLLECTIONS}
    done = subprocess.run(
        [programs().promtool, *arguments], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expectation(at: str, *firing: str) -> dict[str, Any]:
    """Return promtool's test that exactly these alerts fire: `NAME SEVERITY [LONG-WINDOW]`."""
    names = (dict(zip(("alertname", "severity", "long_window"), alert.split(), strict=False)) for alert in firing)
    labels = ("{" + ", ".join(f'{name}="{value}"' for name, value in each.items()) + "}" for each in names)
    samples = [{"labels": each, "value": 1} for each in labels]
    return {"expr": FIRING, "eval_time": at, "exp_samples": samples}


def promtool_tests(situations: dict[str, Any], interval: str) -> list[dict[str, Any]]:
    """Return a test of the healthy series, and one of each other normal state and of each fault."""

    def test(series: dict[str, str | None], *expectations: dict[str, Any]) -> dict[str, Any]:
        shown = {**situations["health"], **series}
        inputs = [{"series": name, "values": values} for name, values in shown.items() if values is not None]
        return {"interval": interval, "input_series": inputs, "promql_expr_test": list(expectations)}

    tests = [test({}, *(expectation(at) for at in situations["quiet"]))]
    for situation in situations.get("normal", ()):
        assert situation["series"].keys() <= situations["health"].keys(), "a state changes what was healthy"
        tests.append(test(situation["series"], *(expectation(at) for at in situation["at"])))
    for fault in situations["faults"]:
        assert fault["series"].keys() <= situations["health"].keys(), "a fault changes what was healthy"
        tests.append(test(fault["series"], expectation(fault["at"], fault["alert"], *fault.get("also", ()))))
    return tests


def run_tests(tests: list[dict[str, Any]], interval: str, rule_file: Path, folder: Path) -> None:
    document = {
        "rule_files": [str(rule_file)],
        "evaluation_interval": interval,
        "group_eval_order": [group["name"] for group in yaml.safe_load(rule_file.read_text())["groups"]],
        "tests": tests,
    }
    file = folder / "tests.json"
    file.write_text(json.dumps(document))
    promtool("test", "rules", file)


def test_health_is_silent_and_each_fault_fires_its_alerts_only(tmp_path: Path) -> None:
    promtool("check", "rules", RULES)
    run_tests(promtool_tests(SITUATIONS, "1m"), "1m", RULES, tmp_path)


def test_each_pair_of_windows_fires_just_above_its_burn_rate(tmp_path: Path) -> None:
    groups = [group for group in yaml.safe_load(RULES.read_text())["groups"] if group["name"] in BUDGET_GROUPS]
    file = tmp_path / "budgets.json"
    file.write_text(json.dumps({"groups": groups}))
    # Rules are evaluated every 30 minutes: every minute would only be slower, for the same averages.
    run_tests(promtool_tests(SITUATIONS["budgets"], "5m"), "30m", file, tmp_path)


def test_every_alert_has_a_fault() -> None:
    shipped = {" ".join([rule["alert"], *rule["labels"].values()]) for rule in alerts()}
    faults = [*SITUATIONS["faults"], *SITUATIONS["budgets"]["faults"]]
    assert shipped == {fault["alert"] for fault in faults}


def test_rules_use_known_metrics_and_the_healthy_situation_has_all_of_them() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = metrics(rule["expr"] for rule in rules())
    assert recorded <= used, "a recording rule is used by nothing"
    plain = used - recorded
    assert {"up", *plain} == {series.partition("{")[0] for series in SITUATIONS["health"]}
    suffixes = {MetricKind.HISTOGRAM: ("_bucket", "_count")}
    known = {family.name + suffix for family in FAMILIES for suffix in suffixes.get(family.kind, ("",))}
    assert {name for name in plain if name.startswith("podgate_")} <= known


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: "-".join([rule["alert"], *rule["labels"].values()]))
def test_alert_has_severity_texts_and_an_entry_in_the_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    annotations = rule["annotations"]
    assert annotations["summary"]
    assert annotations["description"].endswith(".")
    assert annotations["runbook_url"] == f"{RUNBOOK_URL}#{rule['alert'].lower()}", "a pager opens it from anywhere"
    entry = re.search(rf"^### {rule['alert']}\n(.*?)(?=^##|\Z)", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL)
    assert entry is not None, "docs/runbook.md has no entry"
    assert re.search(r"^(\$|podgate|kubectl) |`(podgate|kubectl) ", entry[1], re.MULTILINE), "no first command"


def test_runbook_has_no_entry_of_a_former_alert() -> None:
    alerts_section = RUNBOOK.read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    entries = set(re.findall(r"^### (\w+)$", alerts_section, re.MULTILINE))
    assert entries == {rule["alert"] for rule in alerts()}


def test_the_operator_gets_the_same_groups(*, refresh_goldens: bool) -> None:
    groups = RULES.read_text().partition("\ngroups:\n")[2]
    text = HEADER + "  groups:\n" + re.sub(r"^(?=.)", "  ", groups, flags=re.MULTILINE)
    file = FOLDER / "prometheusrule.yaml"
    if refresh_goldens:
        file.write_text(text)
    assert file.read_text() == text
    assert yaml.safe_load(text)["spec"] == yaml.safe_load(RULES.read_text())
