"""The documents and commands of docs/outcomes.md."""

import json
import re
import subprocess
import time
from pathlib import Path

import yaml

from tests.app.readme import ROOT, environment, run_script, shell_blocks
from tests.core.document.documents import HEAD, list_problems
from tests.timeouts import HANG_SECONDS
from webhook.core.document import Purpose
from webhook.core.outcomes import OUTCOMES_MAX, REFUSALS_LISTED_MAX, SUMS_WAITING_MAX, PushedOutcome

PAGE = (ROOT / "docs" / "outcomes.md").read_text()
POLICY, IDENTITY = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
[REPORT] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def test_policy_can_be_served_without_a_cluster() -> None:
    assert list_problems(HEAD + POLICY, Purpose.SERVE_ALONE_IN_PROCESS) == []


def test_report_command_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(HEAD + POLICY)
    apiserver_identity = (ROOT / "docs" / "examples" / "identities.yaml").read_text()
    (tmp_path / "identities.yaml").write_text(apiserver_identity + IDENTITY)
    serve, _ = shell_blocks("Run the server")
    free_ports = "podgate serve --listen 127.0.0.1:0 --plain-listen 127.0.0.1:0 "
    script = serve.replace("docs/examples/", "").replace("podgate serve ", free_ports)
    with run_script(script, tmp_path) as process:
        assert process.stderr is not None
        deadline, line = time.monotonic() + HANG_SECONDS, ""
        while '"listening"' not in line:
            line = process.stderr.readline()
            assert line, "the server ended"
            assert time.monotonic() < deadline
        report = REPORT.replace("127.0.0.1:8443", json.loads(line)["admission"][0])
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", report],
            cwd=tmp_path,
            env=environment(),
            check=True,
            capture_output=True,
            text=True,
        )
    assert done.stdout.endswith('{"accepted":2,"refused":[]}')


def test_page_names_every_field_and_bound() -> None:
    assert re.findall(r"^\| `(\w+)` \| (?:text|number|whole|`true`)", PAGE, re.MULTILINE) == list(
        PushedOutcome.__struct_fields__
    )
    for words in (
        f"at most {OUTCOMES_MAX:,}",
        f"At most {SUMS_WAITING_MAX:,} sums",
        f"first {REFUSALS_LISTED_MAX} that are",
    ):
        assert words in PAGE


def test_identity_of_the_page_is_the_reporter_of_its_policy() -> None:
    [identity] = yaml.safe_load(IDENTITY)
    [service] = yaml.safe_load(POLICY)["services"]
    assert identity["role"] == "reporter"
    assert identity["clientId"] == {"from": "subject"}
    assert [identity["subject"]] == service["breaker"]["outcomes"]["reporters"]
