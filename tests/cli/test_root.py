import json
import os
import pty
import re
import subprocess
from pathlib import Path
from shlex import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.cli.command_runner import BIN, TRACE, podgate, policy_text, run_installed
from tests.core.strategies import examples
from webhook.core.admission.mutation import HASH_ANNOTATION

POLICY = policy_text(
    "- {name: web, match: {namespaces: [shop]}, placement: {nodeSelector: {disk: ssd}},"
    " quota: {windows: [{window: 1m, hard: {pods: 1}}]},"
    " breaker: {outcomes: {source: Pushed, reporters: [edge]}, errorRate: {minimumOutcomes: 1}}}\n"
)
COMMANDS = ["demo", "serve", "controller", "review", "replay", "policy", "status", "certs", "token", "apiserver-files"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["xyzzy"], "No such command 'xyzzy': see podgate --help"),
        (["statsu"], "No such command 'statsu'. Did you mean 'status'?: see podgate --help"),
        (["queue", "puase", "web"], "No such command 'puase'. Did you mean 'pause'?: see podgate queue --help"),
        (["--nonsense"], "No such option '--nonsense'"),
        (["controller", "--policy", "p"], "--store: memory: with --store memory `podgate serve` does this itself"),
        (["controller", "--policy", "p", "--store", "redis://r"], "--kubeconfig: missing, and this is no Pod"),
        (["review"], "Missing argument 'FILES...': see podgate review --help"),
        (["review", "x"], "Missing option '--policy' or '--server': see podgate review --help"),
        (["review", "x", "--policy", "p", "-o", "xml"], "'xml' is not one of 'diff', 'yaml', 'json', 'patch'"),
        (["review", "x", "--policy"], "requires an argument"),
        (["replay", "x"], "Missing option '--policy': see podgate replay --help"),
        (["replay", "x", "y", "--policy", "p"], "unexpected extra argument (y)"),
        (["demo", "--redis", "x"], "--redis: 'x': write memory, or the URL of a Redis, such as"),
        (["policy", "nonsense"], "No such command 'nonsense': see podgate policy --help"),
    ],
)
def test_usage_error_is_one_line_with_a_remedy_and_exit_2(arguments: list[str], reason: str) -> None:
    done = podgate(*arguments)
    assert (done.code, done.out) == (2, "")
    assert reason in done.error


@pytest.mark.parametrize("group", [[], ["policy"], ["certs"], ["token"]], ids=" ".join)
def test_command_group_without_a_command_shows_help_on_stderr(group: list[str]) -> None:
    done = podgate(*group)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: podgate")


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_prints_usage_and_exits_0(command: list[str], flag: str) -> None:
    done = podgate(*command, flag)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: podgate")


@pytest.mark.parametrize("group", ["breaker", "certs", "policy", "queue", "quota", "scheduler", "token"])
def test_help_of_a_group_has_the_first_sentence_of_each_command_in_full(group: str) -> None:
    _, _, commands = podgate(group, "--help").out.partition("Commands:\n")
    summaries = re.split(r"\n  (?=\w)", commands.rstrip())
    assert summaries
    assert [summary for summary in summaries if not re.search(r"[^.]\.$", summary)] == []


def test_replay_help_shows_a_line_of_every_kind() -> None:
    out = podgate("replay", "--help").out
    for kind in ("pod", "outcome", "deleted", "refused", "status", "namespaceLabels", "policy"):
        assert f'"{kind}": ' in out


@pytest.mark.parametrize("name", ["podgate", "kubectl-podgate"])
def test_version_is_printed_under_both_names(name: str) -> None:
    done = run_installed("--version", name=name)
    assert (done.code, done.err) == (0, "")
    assert done.out.split()[0] == "podgate"


def modules_after(*arguments: object) -> list[str]:
    """Return the names of the modules that a new process has imported when its command ends."""
    code = (
        "import sys, json, webhook.cli as cli\ntry: cli.main()\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    command = [BIN / "python", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stderr.splitlines()[-1])
    return modules


@pytest.mark.parametrize("command", [["serve"], ["controller"]])
def test_help_imports_no_web_server(command: list[str]) -> None:
    assert "aiohttp" not in modules_after(*command, "--help")


def test_a_server_without_a_console_does_not_import_its_pages() -> None:
    code = "import sys, webhook.app.server; print(*sys.modules, sep='\\n')"
    done = subprocess.run([BIN / "python", "-c", code], capture_output=True, text=True, check=True)
    assert [
        name for name in done.stdout.split() if name.startswith(("jinja2", "aiohttp.web_app", "webhook.console"))
    ] == []


def test_help_imports_the_names_of_the_commands_only() -> None:
    modules = modules_after("--help")
    assert "aiohttp" not in modules
    assert len(modules) < 250


def test_explain_reads_no_certificate_and_imports_no_library_for_it(tmp_path: Path) -> None:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    modules = modules_after("explain", "pod", "x", "--kubeconfig", path)
    assert "webhook.adapters.kubernetes.cluster_facts.pods" in modules
    assert "cryptography" not in modules


@pytest.mark.parametrize("command", [["explain", "pod", "x"], ["status"], ["check"], ["queue"], ["decisions"]])
def test_a_command_that_asks_a_cluster_imports_little_before_its_first_request(
    command: list[str], tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],"
        " clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: x, user: {token: t}}]}"
    )
    modules = modules_after(*command, "--kubeconfig", kubeconfig)
    unwanted = ("opentelemetry", "redis", "jsonschema", "aiohttp.web_app", "kubernetes_asyncio.client.models.")
    assert [name for name in modules if name.startswith(unwanted)] == []
    assert len(modules) < 950, "each module costs a first start"


def terminal_output(*arguments: object) -> str:
    reading_end, terminal_end = pty.openpty()
    with subprocess.Popen([BIN / "podgate", *map(str, arguments)], stdout=terminal_end, stderr=terminal_end):
        os.close(terminal_end)
        output = b""
        while True:
            try:
                chunk = os.read(reading_end, 4096)
            except OSError:  # Linux returns EIO after the other end is closed
                break
            if not chunk:
                break
            output += chunk
    os.close(reading_end)
    return output.decode()


def test_colours_are_for_terminals_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "pod.yaml").write_text(
        "{kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: [{name: c, image: i}]}}"
    )
    command = ["review", tmp_path / "pod.yaml", "--policy", tmp_path / "policy.yaml"]
    assert "\x1b[32m+  nodeSelector:" in terminal_output(*command)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal_output(*command)
    monkeypatch.delenv("NO_COLOR")
    for form in ("diff", "yaml"):
        assert "\x1b" not in run_installed(*command, "-o", form).out


def test_closed_output_pipe_causes_no_error(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "events.jsonl").write_text('{"at": 0, "status": "web"}\n' * 5000)
    command = [f"{BIN}/podgate", "replay", f"{tmp_path}/events.jsonl", "--policy", f"{tmp_path}/policy.yaml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["review", "replay"])
def test_full_disk_and_closed_stdin_are_one_line_errors(tmp_path: Path, command: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    text = {
        "review": "{kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: [{name: c, image: i}]}}",
        "replay": '{"at": 0, "status": "web"}',
    }[command]
    shell = f"{quote(str(BIN / 'podgate'))} {command} - --policy {quote(str(tmp_path / 'policy.yaml'))}"
    for line, code, reason in (
        (f"echo '{text}' | {shell} > /dev/full", 1, "No space left on device"),
        (f"{shell} <&-", 2, "standard input is closed"),
        (f"echo '{text}' | {shell} >&-", 2, "standard output is closed"),
    ):
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, "")
        (message,) = done.stderr.splitlines()[-1:] if command == "review" else done.stderr.splitlines()
        assert message.startswith("error: ")
        assert reason in message


@pytest.mark.parametrize("depth", [300, 450, 900, 5000])
def test_deep_nesting_is_a_one_line_error(folder: Path, depth: int) -> None:
    assert folder.is_dir()
    pod = '{"kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": {"x": %s}}' % (
        "[" * depth + "]" * depth
    )
    for form in ("diff", "json"):
        done = podgate("review", "-", "--policy", "policy.yaml", "-o", form, stdin=pod)
        assert done.code in {0, 2}
    done = podgate("replay", "-", "--policy", "policy.yaml", stdin=f'{{"at": 0, "namespace": "shop", "pod": {pod}}}')
    assert done.code in {0, 2}
    if done.code == 2:
        assert done.error.startswith("-:1: ")


WORDS = st.one_of(
    st.sampled_from(
        [*COMMANDS[3:], "-", "--", "-o", "json", "--policy", "policy.yaml", "lint", "render", "--explain", "="]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *("kind", "metadata", "spec", "items", "labels", "containers", "template", "resources", "requests"),
                    *(
                        "nodeSelector",
                        "affinity",
                        "tolerations",
                        "annotations",
                        "namespace",
                        "name",
                        "request",
                        "object",
                    ),
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(["Pod", "Job", "CronJob", "Deployment", "List", "PodList", "AdmissionReview", "Service"])
OBJECTS = st.dictionaries(st.sampled_from(["metadata", "spec", "items", "request"]), VALUES)
EVENT_KEYS = ["at", "pod", "outcome", "deleted", "refused", "status", "namespaceLabels", "policy", "namespace", "uid"]
BRIEF = settings(examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])


@BRIEF
@given(words=st.lists(WORDS, max_size=5))
def test_random_arguments_cause_no_stack_trace(folder: Path, words: list[str]) -> None:
    done = podgate(*words)  # an uncaught exception would be raised here
    assert folder.is_dir()
    assert done.code in {0, 1, 2, 3, 4}
    if done.code == 2:
        assert done.err.startswith(("error: ", "Usage: "))
    assert TRACE not in done.err


@BRIEF
@given(text=st.one_of(st.text(), st.binary(max_size=40)))
def test_random_files_cause_no_stack_trace(folder: Path, text: str | bytes) -> None:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    (folder / "any").write_bytes(raw)
    for arguments in (
        ["review", "-", "--policy", "policy.yaml"],
        ["replay", "-", "--policy", "policy.yaml"],
        ["review", "-", "--policy", "policy.yaml", "--namespaces", "any"],
        ["review", "-", "--policy", "any"],
        ["replay", "-", "--policy", "any"],
    ):
        assert podgate(*arguments, stdin=raw).code in {0, 2, 3}


@BRIEF
@given(kind=KINDS, fields=OBJECTS)
def test_random_objects_cause_no_stack_trace(folder: Path, kind: str, fields: dict[str, object]) -> None:
    assert folder.is_dir()
    head = {"apiVersion": "admission.k8s.io/v1"} if kind == "AdmissionReview" else {}
    for form in ("diff", "json"):
        text = json.dumps({**head, "kind": kind, **fields})
        done = podgate("review", "-", "--policy", "policy.yaml", "-o", form, stdin=text)
        assert done.code in {0, 2, 3}


@BRIEF
@given(
    events=st.lists(st.dictionaries(st.sampled_from(EVENT_KEYS), VALUES, max_size=4), max_size=3),
    pod=OBJECTS,
)
@example(events=[], pod={"metadata": {"annotations": True}})
@example(events=[], pod={"metadata": {"labels": 1, "annotations": [HASH_ANNOTATION]}})
def test_random_events_cause_no_stack_trace(
    folder: Path, events: list[dict[str, object]], pod: dict[str, object]
) -> None:
    assert folder.is_dir()
    first_event = {"at": 0, "namespace": "shop", "pod": {"metadata": {}, "spec": {}, **pod}}
    text = "".join(json.dumps(event) + "\n" for event in (first_event, *events))
    assert podgate("replay", "-", "--policy", "policy.yaml", stdin=text).code in {0, 2}
