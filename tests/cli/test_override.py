"""`podgate override` and `podgate quota grant|reset` on a file: written, kept and rejected entries."""

import asyncio
import json
import re
import shlex
from getpass import getuser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Done, podgate
from webhook.adapters import overrides_file
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.overrides import Override
from webhook.core.overrides.loading import load
from webhook.core.policy.targets import format_options

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  quota: {windows: [{window: 1m, hard: {pods: 3, cpu: "2"}}, {window: 1h, hard: {pods: 10}}]}
- name: free
  match: {namespaces: [free]}
"""
LATE = "2099-12-01T04:00:00Z"
OTHERS = f"""\
- {{service: ledger, quotaFactor: 2, until: {LATE}, reason: INC-7}}   # theirs
- {{service: gone, quotaFactor: 2, until: 2020-01-01T00:00:00Z, reason: INC-2}}
"""
FOR = ("--for", "10m", "--reason", "INC-1")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "overrides.yaml"
    monkeypatch.setenv("PODGATE_OVERRIDES", str(path))
    monkeypatch.delenv("PODGATE_POLICY", raising=False)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return path


def entries(file: Path) -> dict[str, Override]:
    return {entry.service: entry for entry in load(file.read_bytes()).entries}


def entry_fields(file: Path, service: str = "payment-api") -> dict[str, Any]:
    """Return the fields of an entry, without until and reason."""
    found = entries(file)[service].encode_plain()
    return {key: value for key, value in found.items() if key not in {"service", "until", "reason", "by"}}


def override(*arguments: str) -> Done:
    return podgate("override", "payment-api", *arguments)


def test_override_is_written_to_a_new_file(file: Path) -> None:
    done = override("--quota-factor", "1.5", "--mode", "quota=Audit", "--mode", "breaker=Warn", *FOR)
    assert done.code == 0
    assert entry_fields(file) == {"quotaFactor": "1.5", "modes": {"quota": "Audit", "breaker": "Warn"}}
    assert entries(file)["payment-api"].reason == "INC-1"
    assert done.out.startswith("payment-api: quotaFactor: '1.5', modes: {quota: Audit, breaker: Warn} until ")
    assert done.err.splitlines()[-1] == f"written to {file}"


def test_for_and_until_set_the_end(file: Path) -> None:
    before = command_now_us()
    override("--quota-factor", "2", "--for", "1h30m", "--reason", "x")
    assert entries(file)["payment-api"].until_us >= before + 5_400_000_000
    override("--quota-factor", "2", "--until", LATE, "--reason", "x", "--replace")
    assert entries(file)["payment-api"].until == LATE


def command_now_us() -> int:
    from webhook.cli.options.override_options import read_now_us  # noqa: PLC0415  the clock of the command

    return read_now_us()


def test_other_entries_are_kept_and_expired_ones_removed(file: Path) -> None:
    file.write_text(OTHERS)
    assert override("--quota-factor", "2", *FOR).code == 0
    assert set(entries(file)) == {"ledger", "payment-api"}
    assert entries(file)["ledger"].until == LATE


def test_live_override_is_not_overwritten_without_merge(file: Path) -> None:
    override("--quota-factor", "3", "--until", LATE, "--reason", "INC-1")
    before = file.read_bytes()
    done = override("--quota-factor", "4", *FOR)
    assert done.code == 2
    former = f"quotaFactor: 3 until {LATE}: INC-1 (by {getuser()})"
    assert f"payment-api has an override of quotaFactor already: {former}: change it with --merge" in done.err
    assert file.read_bytes() == before


def test_merge_keeps_other_fields_and_replace_does_not(file: Path) -> None:
    override("--quota-factor", "3", "--until", LATE, "--reason", "INC-1")
    assert override("--mode", "quota=Audit", "--until", LATE, "--reason", "INC-2", "--merge").code == 0
    assert entry_fields(file) == {"quotaFactor": 3, "modes": {"quota": "Audit"}}
    assert entries(file)["payment-api"].reason == "INC-2"
    assert override("--mode", "quota=Warn", *FOR, "--replace").code == 0
    assert entry_fields(file) == {"modes": {"quota": "Warn"}}


def test_grant_adds_to_a_window_and_merges_by_resource(file: Path) -> None:
    grant = ("quota", "grant", "payment-api", "--window")
    assert podgate(*grant, "1m", "--hard", "pods=100", "--hard", "cpu=2", *FOR).code == 0
    assert podgate(*grant, "60s", "--hard", "pods=50", *FOR, "--merge").code == 0
    assert podgate(*grant, "1h", "--hard", "pods=1", *FOR, "--merge").code == 0
    assert entry_fields(file)["grant"] == [
        {"window": "1m", "hard": {"cpu": "2", "pods": "50"}},
        {"window": "1h", "hard": {"pods": "1"}},
    ]


def test_reset_records_its_time_and_lasts_ten_minutes(file: Path) -> None:
    before = command_now_us() // 1000 * 1000
    assert podgate("quota", "reset", "payment-api", "--window", "1m", "--reason", "INC-1").code == 0
    entry = entries(file)["payment-api"]
    assert entry.quota_reset is not None
    assert before <= entry.quota_reset.at_us <= command_now_us() + 1000
    assert entry.until_us >= entry.quota_reset.at_us + 600_000_000 - 1_000_000
    assert entry_fields(file)["quotaReset"]["window"] == "1m"


def test_reset_does_not_shorten_an_override_unless_requested(file: Path) -> None:
    override("--quota-factor", "3", "--until", LATE, "--reason", "INC-1")
    assert podgate("quota", "reset", "payment-api", "--reason", "INC-1 again", "--merge").code == 0
    assert entries(file)["payment-api"].until == LATE
    assert set(entry_fields(file)) == {"quotaFactor", "quotaReset"}
    assert podgate("quota", "reset", "payment-api", "--for", "1m", "--reason", "x", "--merge").code == 0
    assert entries(file)["payment-api"].until_us < parse_microseconds(LATE), "it was requested"


def test_clear_ends_one_override(file: Path) -> None:
    file.write_text(OTHERS)
    override("--quota-factor", "3", *FOR)
    done = override("--clear")
    assert (done.code, done.out.startswith("payment-api: ended: quotaFactor: 3 until ")) == (0, True)
    assert set(entries(file)) == {"ledger"}
    again = override("--clear")
    assert (again.code, again.out) == (0, f"payment-api: there was no override in {file}\n")


def test_list_shows_live_overrides(file: Path) -> None:
    assert podgate("override", "--list", "-o", "table").out == "no override is in force\n"
    file.write_text(OTHERS)
    table = podgate("override", "--list", "-o", "table").out.splitlines()
    assert table[0].split() == ["SERVICE", "LEFT", "OVERRIDE"]
    assert re.fullmatch(rf"ledger   \S+  quotaFactor: 2 until {LATE}: INC-7", table[1])
    [shown] = json.loads(podgate("override", "--list").out)
    assert shown == {"service": "ledger", "until": LATE, "reason": "INC-7", "quotaFactor": 2}


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("--quota-factor", "2", "--for", "1m"), "--reason: missing: give one, such as --reason INC-1234"),
        (("--quota-factor", "2", "--reason", "x"), "give --for or --until, one of the two: such as --for 10m"),
        (("--quota-factor", "2", *FOR, "--until", LATE), "give --for or --until, one of the two: such as --for 10m"),
        (("--quota-factor", "2", "--for", "10", "--reason", "x"), "--for: '10': not a Go duration: write a number"),
        (("--quota-factor", "2", "--for", "99999999h", "--reason", "x"), "--for: '99999999h': longer than 720h"),
        (("--quota-factor", "2", "--for", "721h", "--reason", "x"), "longer than 720h: write at most 720h"),
        (("--quota-factor", "2", "--until", "9:00", "--reason", "x"), "--until: '9:00': not an RFC 3339 time"),
        (
            ("--quota-factor", "2", "--until", "2020-01-01T00:00:00Z", "--reason", "x"),
            "in the past: give a future time",
        ),
        (("--quota-factor", "0", *FOR), 'quotaFactor: "0": not a number above 0 and up to 1000: write one such as'),
        (("--quota-factor", "2", "--for", "1m", "--reason", "\x1b[31m"), "reason: "),
        (("--mode", "quota", *FOR), "--mode: 'quota': not NAME=VALUE: write --mode quota=Audit"),
        (("--mode", "quota=audit", *FOR), "modes.quota: audit: not one of its values: did you mean Audit?"),
        (("--mode", "qouta=Audit", *FOR), "modes.qouta: Audit: unknown field: did you mean quota?"),
        (("--mode", "quota=Audit", "--mode", "quota=Warn", *FOR), "--mode: quota is given twice: keep one of the two"),
        (("--quota-factor", "2", *FOR, "--merge", "--replace"), "--merge and --replace exclude each other"),
        ((), "nothing to do: give --quota-factor or --mode, or --clear or --list"),
    ],
)
def test_usage_error_is_one_line_and_writes_nothing(file: Path, arguments: tuple[str, ...], printed: str) -> None:
    done = override(*arguments)
    assert done.code == 2
    assert printed in done.error
    assert not file.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("breaker", "open"),
        ("breaker", "close"),
        ("breaker", "reset"),
        ("queue", "pause"),
        ("queue", "resume"),
        ("quota", "reset"),
        ("quota", "grant"),
        ("override",),
    ],
)
def test_service_is_checked_where_a_policy_is_known_and_else_a_warning_says_so(
    file: Path, command: tuple[str, ...]
) -> None:
    fields = {
        "grant": ("--window", "1m", "--hard", "pods=1"),
        "override": ("--quota-factor", "2"),
    }.get(command[-1], ())
    asked = (*command, "nobody", *fields, *FOR)
    known = podgate(*asked, "--policy", file.parent / "policy.yaml")
    assert (known.code, file.exists()) == (4, False)
    assert "no service 'nobody': the policy has payment-api, free" in known.error
    unknown = podgate(*asked)
    assert unknown.code == 0
    assert "warning: the service and its fields are not checked: give --policy" in unknown.err


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (("breaker", "open", "payment-api", "--reason", "x"), "--for"),
        (("queue", "pause", "payment-api", "--reason", "x"), "--for"),
        (("check",), "--wait"),
        (("uninstall",), "--wait"),
        (("decisions",), "--since"),
        (("token", "rotate", "--out", "x", "--issuer", "https://x", "--audience", "a", "--subject", "s",
          "--client-id", "c"), "--expires-in"),
    ],
)  # fmt: skip
def test_every_duration_has_a_bound(
    file: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], flag: str
) -> None:
    monkeypatch.chdir(file.parent)
    done = podgate(*command, flag, "100000h")
    assert done.code == 2
    assert f"{flag}" in done.error
    assert "longer than" in done.error


def test_missing_service_is_a_usage_error(file: Path) -> None:
    done = podgate("override", "--quota-factor", "2", *FOR)
    assert (done.code, file.exists()) == (2, False)
    assert "SERVICE" in done.error


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (("override", "nope", "--quota-factor", "2"), 4, "no service 'nope': the policy has payment-api, free"),
        (("override", "free", "--quota-factor", "2"), 2, "free: quotaFactor: the service has no windows of its own"),
        (("quota", "grant", "payment-api", "--window", "2m", "--hard", "pods=1"), 2, "no window 2m, it has 1m, 1h"),
        (("quota", "grant", "payment-api", "--window", "1h", "--hard", "cpu=1"), 2, "window 1h does not limit cpu"),
        (("quota", "grant", "payment-api", "--window", "1h", "--hard", "memroy=1"), 2, "did you mean memory?"),
        (("quota", "reset", "payment-api", "--window", "2m"), 2, "quotaReset: the service has no window 2m"),
    ],
)
def test_override_without_effect_under_the_policy_is_refused(
    file: Path, arguments: tuple[str, ...], code: int, printed: str
) -> None:
    done = podgate(*arguments, *FOR, "--policy", file.parent / "policy.yaml")
    assert done.code == code
    assert printed in done.error
    assert not file.exists()


def test_service_absent_from_the_policy_can_be_cleared(file: Path) -> None:
    file.write_text(OTHERS)
    policy = ("--policy", file.parent / "policy.yaml")
    assert podgate("override", "ledger", "--clear", *policy).code == 0
    assert podgate("override", "ledger", "--clear", *policy).code == 4


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("- {service: ledger}\n", ":1:3: [0].until: (absent): required: add until"),
        (OTHERS.splitlines()[0] + "\n" + OTHERS.splitlines()[0], ":2:13: [1].service: ledger: a second live entry"),
    ],
)
def test_invalid_existing_overrides_are_not_changed(file: Path, text: str, printed: str) -> None:
    file.write_text(text)
    done = override("--quota-factor", "2", *FOR)
    assert done.code == 2
    assert f"{file}: the existing overrides are invalid: fix what is listed here" in done.err
    assert printed in done.err
    assert file.read_text() == text


def test_concurrent_change_of_another_writer_is_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = overrides_file.FileOverridesStore.read
    others = iter([OTHERS])

    async def read_before_change(store: overrides_file.FileOverridesStore) -> bytes:
        found = await read(store)
        for text in others:
            await asyncio.to_thread(file.write_text, text)
        return found

    monkeypatch.setattr(overrides_file.FileOverridesStore, "read", read_before_change)
    assert override("--quota-factor", "2", *FOR).code == 0
    assert set(entries(file)) == {"ledger", "payment-api"}


def test_missing_kubeconfig_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODGATE_OVERRIDES")
    nowhere = file.parent / "nowhere"
    monkeypatch.setenv("KUBECONFIG", str(nowhere))
    done = override("--quota-factor", "2", *FOR)
    assert done.code == 2
    assert done.error.startswith(f"{nowhere}: cannot read the kubeconfig: No such file or directory")


@pytest.mark.parametrize(
    "command",
    [
        ("override", "payment-api", "--quota-factor", "2", *FOR),
        ("override", "payment-api", "--clear"),
        ("quota", "grant", "payment-api", "--window", "1m", "--hard", "pods=5", *FOR),
        ("breaker", "open", "payment-api", *FOR),
    ],
)
def test_a_dry_run_prints_what_would_be_written_and_writes_nothing(file: Path, command: tuple[str, ...]) -> None:
    override("--mode", "quota=Audit", *FOR)
    before = file.read_bytes()
    done = podgate(*command, "--dry-run")
    assert done.code == 0, done.err
    assert done.out.startswith("payment-api: ")
    assert file.read_bytes() == before
    assert podgate(*command).code == 0
    assert file.read_bytes() != before


# --- exceptions ---

IN_PAYMENTS = ("-n", "payments")
WEB = ("--workload", "deployments/web", *IN_PAYMENTS)


def list_targets(file: Path) -> list[str]:
    return [entry.target_key for entry in load(file.read_bytes()).entries]


def test_an_exception_for_a_workload_is_written_listed_and_ended(file: Path) -> None:
    done = override(*WEB, "--quota-factor", "3", "--mode", "quota=Audit", "--pass-breaker", *FOR)
    assert done.code == 0, done.err
    workload = {"namespace": "payments", "kind": "Deployment", "name": "web"}
    modes = {"quota": "Audit", "breaker": "Audit"}
    assert entry_fields(file) == {"workload": workload, "quotaFactor": 3, "modes": modes}
    assert done.out.startswith(
        "payment-api: workload: {namespace: payments, kind: Deployment, name: web}, quotaFactor: 3"
    )
    [listed] = json.loads(podgate("override", "--list").out)
    assert listed["workload"] == workload
    assert override("--quota-factor", "2", *FOR).code == 0
    assert override(*WEB, "--clear").out.startswith("payment-api: ended: workload: {namespace: payments")
    assert list_targets(file) == [""]


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("app=web", {"matchLabels": {"app": "web"}}),
        ("app==web,tier!=x", {"matchLabels": {"app": "web"}, "matchExpressions": [("tier", "NotIn", ["x"])]}),
        ("tier in (a, b),!old", {"matchExpressions": [("tier", "In", ["a", "b"]), ("old", "DoesNotExist", None)]}),
        ("x.io/y notin (a),z", {"matchExpressions": [("x.io/y", "NotIn", ["a"]), ("z", "Exists", None)]}),
    ],
)
def test_pods_are_selected_as_by_kubectl(file: Path, text: str, selector: dict[str, Any]) -> None:
    assert override("--pods", text, *IN_PAYMENTS, "--quota-factor", "2", *FOR).code == 0
    written = [
        {"key": key, "operator": operator, **({"values": values} if values else {})}
        for key, operator, values in selector.get("matchExpressions", [])
    ]
    expected = {**selector, "matchExpressions": written} if written else selector
    [found] = load(file.read_bytes()).entries
    assert found.encode_plain()["pods"] == {"namespace": "payments", "selector": expected}
    assert found.target is not None
    again = podgate("override", "payment-api", *shlex.split(format_options(found.target)), "--clear")
    assert (again.code, list_targets(file)) == (0, [])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--workload", "deployments/web"), "--namespace: missing"),
        (
            ("--workload", "pod/web", *IN_PAYMENTS),
            "--workload: 'pod/web': not a workload",
        ),
        (("--workload", "service/web", *IN_PAYMENTS), "'service' is no kind of workload"),
        (
            ("--workload", "rollout/web", *IN_PAYMENTS),
            "--workload: 'rollout/web': not a workload whose Pods Kubernetes creates",
        ),
        ((*WEB, "--pods", "app=web"), "--workload and --pods exclude each other"),
        (IN_PAYMENTS, "--namespace: without --workload or --pods"),
        (("--pods", "app=(x", *IN_PAYMENTS), "'app=(x' is no label selector"),
        (("--pods", "app=a,app=b", *IN_PAYMENTS), "app is given two values"),
        (("--pass-breaker",), "--pass-breaker: it is for a part of the service's Pods"),
        ((*WEB, "--mode", "quota=Disabled"), "modes.quota: Disabled: Pods of an exception are still charged"),
        (("--workload", "deploy/web", "-n", "shop"), "the service has no Pods in namespace shop"),
    ],
)
def test_an_exception_that_cannot_be_is_refused(file: Path, arguments: tuple[str, ...], error: str) -> None:
    policy = ("--policy", str(file.with_name("policy.yaml")))
    done = override(*arguments, "--quota-factor", "3", *FOR, *policy)
    assert (done.code, error in done.err, file.exists()) == (2, True, False), done.err


def test_entries_of_one_target_are_merged_and_replaced_alone(file: Path) -> None:
    api = ("--workload", "deployments/api", *IN_PAYMENTS)
    for target in ((), WEB, api):
        assert override(*target, "--quota-factor", "2", *FOR).code == 0
    again = override(*WEB, "--quota-factor", "3", *FOR)
    assert (again.code, "or end it with these options and --clear" in again.err) == (2, True)
    assert override(*WEB, "--quota-factor", "4", *FOR, "--replace").code == 0
    assert override("--mode", "quota=Audit", *FOR, "--replace").code == 0
    found = {entry.target_key: entry.encode_plain() for entry in load(file.read_bytes()).entries}
    assert len(found) == 3
    assert [plain.get("quotaFactor") for plain in found.values()] == [2, 4, None]
    assert override("--clear").code == 0
    assert list_targets(file) == []
