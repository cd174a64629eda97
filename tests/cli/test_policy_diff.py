"""`podgate policy diff`: exit codes, output, and mistakes."""

from pathlib import Path

from tests.cli.command_runner import podgate, policy_text

ONE = "- {name: web, match: {namespaces: [shop]}, modes: {quota: Audit}}\n"
API = "- {name: api, match: {namespaces: [shop], podSelector: {matchLabels: {app: api}}}}\n"
TWO = API + ONE.replace("Audit", "Enforce")


def test_the_difference_in_words_and_as_json(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(policy_text(ONE))
    two.write_text(policy_text(TWO))
    assert podgate("policy", "diff", one, one).code == 0
    done = podgate("policy", "diff", one, two)
    assert done.code == 1
    assert done.out.splitlines() == [
        "service api: added",
        '  match: added: {"namespaces":["shop"],"podSelector":{"matchLabels":{"app":"api"}}}',
        "service web",
        "  modes.quota: Audit -> Enforce",
        "order: the first service that matches owns a Pod",
        "  api is added before web: Pods that it matches become its own",
    ]
    (line,) = podgate("policy", "diff", one, "-", "-o", "json", stdin=policy_text(TWO)).lines
    assert (line["same"], [entry["name"] for entry in line["entries"]]) == (False, ["api", "web"])
    (line,) = podgate("policy", "diff", one, one, "-o", "json").lines
    assert line["same"] is True


def test_mistakes_of_a_policy_end_with_2(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(policy_text("- {name: web, mach: {namespaces: [shop]}}\n"))
    done = podgate("policy", "diff", tmp_path / "bad.yaml", tmp_path / "bad.yaml")
    assert done.code == 2
    assert "services[0].mach: {...}: unknown field: did you mean match?" in done.err
    assert podgate("policy", "diff", "-", "-").error.startswith("-: standard input is named twice")
    assert podgate("policy", "diff", "live", "-", "--kubeconfig", tmp_path / "none").code == 2


def test_what_an_upgrade_changes_for_a_document_is_shown(tmp_path: Path) -> None:
    merged = tmp_path / "merged.yaml"
    limits = "  quota: {standing: {hard: {pods: 50}}}\n"
    head = "defaults: {quota: {standing: {hard: {pods: 200, memory: 400Gi}}}}\n"
    merged.write_text(policy_text("- name: web\n  match: {namespaces: [shop]}\n" + limits, head))
    assert podgate("policy", "diff", merged, merged).code == 0
    done = podgate("policy", "diff", "--a-as", "0.1.0", merged, merged)
    assert done.code == 1
    assert done.out.splitlines() == ["service web", "  quota.standing.hard.memory: added: 400Gi"]
