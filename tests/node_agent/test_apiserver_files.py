"""`podgate apiserver-files`: written and renewed files, and files that are never overwritten."""

import asyncio
import io
import json
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority, KeyPair, parse_san
from certs.dual_port_rollover import PortCertificate
from certs.errors import CertsError
from certs.files import write
from certs.token_issuer import encode_key, new_key, sign
from certs.token_rotation import TokenState, TokenStep
from tests.cli.command_runner import BIN, Done, podgate
from tests.timeouts import HANG_SECONDS
from webhook.adapters.logs import JsonLines, Logs
from webhook.app.node_agent import NodeCheck, _check_periodically
from webhook.errors import UserError
from webhook.node_agent import credential_check, credential_folder
from webhook.node_agent.credential_folder import (
    CONFIGURATION,
    FILES,
    IDENTITY,
    KUBECONFIG,
    SECOND,
    TOKEN,
    CredentialFolder,
    find_users,
    render_static_files,
)
from webhook.node_agent.credential_renewal import CredentialPlan, renew

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOST = "podgate.podgate-system.svc"
ACCOUNT = "kube-apiserver-caller"
UNREACHABLE_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: t}}]
"""
SHIPPED = Path(__file__).parents[2] / "manifests/apiserver"
CA, OTHER_CA = (Authority.create(name, now=NOW) for name in ("clients", "others"))
KEY = new_key("ES256")


def make_token(
    now: datetime = NOW, lifetime_seconds: int = 3600, audience: object = "podgate", account: str = ACCOUNT
) -> str:
    iat = int(now.timestamp())
    subject = f"system:serviceaccount:podgate-system:{account}"
    return sign(KEY, {"aud": audience, "sub": subject, "iat": iat, "exp": iat + lifetime_seconds})


def secret_of(leaf: KeyPair, ca: Authority = CA, **extra: bytes) -> dict[str, bytes]:
    pem = leaf.certificate.public_bytes(Encoding.PEM)
    return {
        "tls.crt": pem,
        "tls.key": encode_key(leaf.key),
        "ca.crt": ca.key_pair.certificate.public_bytes(Encoding.PEM),
        **extra,
    }


def client(now: datetime = NOW, lifetime: timedelta = timedelta(days=7), ca: Authority = CA) -> KeyPair:
    return ca.issue_client("kube-apiserver", lifetime=lifetime, now=now)


@dataclass
class FakeCluster:
    """A cluster with one Secret, which issues tokens at the time `now`."""

    secret_data: dict[str, bytes] = field(default_factory=lambda: secret_of(client()))
    now: datetime = NOW
    is_unavailable: bool = False
    tokens_issued: int = 0
    """The number of tokens."""

    async def read_secret(self, name: str) -> dict[str, bytes]:
        if self.is_unavailable:
            raise UserError(f"secret podgate-system/{name}: cannot be read", "")
        return self.secret_data

    async def request_token(self, account: str, audience: str, lifetime_seconds: int) -> str:
        if self.is_unavailable:
            raise UserError(f"serviceaccount podgate-system/{account}: no token", "")
        self.tokens_issued += 1
        return make_token(self.now, lifetime_seconds, [audience], account)


@dataclass
class Node:
    """A folder, and the cluster that fills it."""

    plan: CredentialPlan
    cluster: FakeCluster = field(default_factory=FakeCluster)

    @property
    def path(self) -> Path:
        return self.plan.folder.path

    async def renew_files(self, after: timedelta = timedelta()) -> list[str]:
        """Renew the files some time after NOW; return the errors."""
        self.cluster.now = NOW + after
        return list((await renew(self.plan, self.cluster, NOW + after)).errors)

    def contents(self) -> dict[str, bytes]:
        return {name: (self.path / name).read_bytes() for name in FILES if (self.path / name).exists()}


def plan(path: Path, account: str | None = ACCOUNT, renew_after_seconds: int | None = None) -> CredentialPlan:
    users = find_users([HOST], 444)
    return CredentialPlan(
        CredentialFolder(path), users, "podgate-apiserver", account, "podgate", 3600, renew_after_seconds
    )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(plan(tmp_path / "etc/podgate"))


# --- written files ---


@pytest.mark.parametrize("name", [CONFIGURATION, KUBECONFIG])
def test_shipped_files_equal_the_written_ones(name: str, *, refresh_goldens: bool) -> None:
    written = render_static_files(credential_folder.DEFAULT, find_users([HOST], 444))[name]
    if refresh_goldens:
        (SHIPPED / name).write_text(written)
    assert (SHIPPED / name).read_text() == written


async def test_files_of_kube_apiserver_are_readable_by_their_owner_only(node: Node) -> None:
    assert await node.renew_files() == []
    configuration = yaml.safe_load((node.path / CONFIGURATION).read_text())
    named = {plugin["configuration"]["kubeConfigFile"] for plugin in configuration["plugins"]}
    assert named == {str(node.path / KUBECONFIG)}
    users = {user["name"]: user["user"] for user in yaml.safe_load((node.path / KUBECONFIG).read_text())["users"]}
    assert set(users) == {HOST, f"{HOST}:444"}
    assert {Path(files["client-key"]).name for files in users.values()} == {IDENTITY, SECOND}
    for files in users.values():
        ssl.create_default_context().load_cert_chain(files["client-certificate"], files["client-key"])
        assert files["tokenFile"] == str(node.path / TOKEN)
    assert credential_check.parse_token(node.contents()[TOKEN].decode()).audience == "podgate"
    assert stat.S_IMODE(node.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in node.path.iterdir()} == {0o600}


async def test_second_round_changes_nothing(node: Node) -> None:
    await node.renew_files()
    before = {path: path.stat().st_mtime_ns for path in node.path.iterdir()}
    assert (await renew(node.plan, node.cluster, NOW)).done == []
    assert {path: path.stat().st_mtime_ns for path in node.path.iterdir()} == before


async def test_concurrent_readers_see_a_matching_pair(node: Node) -> None:
    await node.renew_files()
    stop = threading.Event()
    errors: list[str] = []

    def read() -> None:
        while not stop.is_set():
            copy = node.path.parent / "copy.pem"
            copy.write_bytes((node.path / IDENTITY).read_bytes())
            try:
                ssl.create_default_context().load_cert_chain(copy)
            except ssl.SSLError as error:
                errors.append(repr(error))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        node.cluster.secret_data = secret_of(client())
        assert await node.renew_files() == []
    stop.set()
    reader.join()
    assert errors == []


@pytest.mark.parametrize(
    ("hosts", "second_port", "names"),
    [
        (["podgate.example:8443", "10.0.0.7:8443"], None, ["podgate.example:8443", "10.0.0.7:8443"]),
        (["[fd00::1]:8443", "1", "null"], 444, ["[fd00::1]:8443", "1", "null", "[fd00::1]:444", "1:444", "null:444"]),
        (["podgate.example", "podgate.example:8443"], None, ["podgate.example", "podgate.example:8443"]),
    ],
)
def test_every_webhook_has_its_user_under_the_name_that_kube_apiserver_looks_for(
    hosts: list[str], second_port: int | None, names: list[str]
) -> None:
    written = yaml.safe_load(render_static_files(Path("/etc"), find_users(hosts, second_port))[KUBECONFIG])
    assert [user["name"] for user in written["users"]] == names


NO_HOST = "not a host and port of a webhook: write HOST or HOST:PORT"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--webhook", ""], f"--webhook '': {NO_HOST}"),
        (["--webhook", "https://podgate.example:8443"], f"--webhook 'https://podgate.example:8443': {NO_HOST}"),
        (["--webhook", "podgate.example/mutate"], NO_HOST),
        (["--webhook", "a: b"], NO_HOST),
        (["--webhook", "*.podgate-system.svc"], NO_HOST),
        (["--webhook", "podgate.example:0"], NO_HOST),
        (["--webhook", "podgate.example:65536"], NO_HOST),
        (["--webhook", "fd00::1"], NO_HOST),
        (["--webhook", "[fd00::1]"], NO_HOST),
        (["--webhook", "a:8443", "--webhook", "a:9443"], "two users for a:444: kube-apiserver takes one"),
        (["--webhook", "a", "--webhook", "a", "--second-port", "0"], "two users for a:443"),
        (["--webhook", "a", "--webhook", "a:443", "--second-port", "0"], "two users for a:443"),
        (["--webhook", "a:444"], "--second-port 444: two users for a:444"),
        (["--second-port", "443"], f"two users for {HOST}:443"),
    ],
)
def test_webhook_name_that_kube_apiserver_cannot_use_is_rejected_before_any_write(
    tmp_path: Path, flags: list[str], reason: str
) -> None:
    """kube-apiserver does not start with two users of one name, and sends no credentials for an unused name."""
    (kubeconfig := tmp_path / "kubeconfig").write_text(UNREACHABLE_KUBECONFIG)
    done = podgate("apiserver-files", "--once", "--out", tmp_path / "out", "--kubeconfig", kubeconfig, *flags)
    assert done.code == 2
    assert reason in done.error
    assert not (tmp_path / "out").exists()


# --- the certificate ---


BAD_PAIRS: dict[str, tuple[Callable[[], dict[str, bytes]], str]] = {
    "another's key": (lambda: {**secret_of(client()), "tls.key": encode_key(client().key)}, "do not match"),
    "expired": (lambda: secret_of(client(NOW - timedelta(days=8))), "not now"),
    "not yet valid": (lambda: secret_of(client(NOW + timedelta(days=1))), "not now"),
    "a server's": (lambda: secret_of(CA.issue_server("a", (parse_san("a"),), now=NOW)), "not made for a client"),
    "a CA": (lambda: secret_of(CA.key_pair), "a CA is no client"),
    "another CA's": (lambda: secret_of(client(ca=OTHER_CA)), "not among the CAs in its ca.crt"),
    "no key": (lambda: {**secret_of(client()), "tls.key": b""}, "holds no private key"),
    "no certificate": (lambda: {**secret_of(client()), "tls.crt": b"x"}, "tls.crt: holds no certificate"),
    "no CA": (lambda: {**secret_of(client()), "ca.crt": b"x"}, "ca.crt: holds no certificate"),
    "nothing": (dict, "tls.crt: holds no certificate"),
}


@pytest.mark.parametrize("case", BAD_PAIRS)
async def test_a_bad_pair_is_never_written_and_the_last_good_one_stays(node: Node, case: str) -> None:
    make, reason = BAD_PAIRS[case]
    await node.renew_files()
    before = node.contents()
    node.cluster.secret_data = make()
    [error] = await node.renew_files()
    assert reason in error
    assert node.contents() == before


async def test_a_renewed_pair_replaces_the_old_one(node: Node) -> None:
    await node.renew_files()
    before = node.contents()
    node.cluster.secret_data = secret_of(client())
    assert await node.renew_files() == []
    assert {name for name, content in node.contents().items() if content != before[name]} == {IDENTITY, SECOND}


def pem_of(leaf: KeyPair) -> bytes:
    return leaf.certificate.public_bytes(Encoding.PEM) + encode_key(leaf.key)


async def test_each_port_has_its_own_certificate_while_valid(node: Node) -> None:
    first, second = client(), client(lifetime=timedelta(days=1))
    node.cluster.secret_data |= {"first.pem": pem_of(first), "second.pem": pem_of(second)}
    assert await node.renew_files() == []
    assert node.contents()[IDENTITY] == pem_of(first)
    assert node.contents()[SECOND] == pem_of(second)
    newest = node.cluster.secret_data["tls.crt"] + node.cluster.secret_data["tls.key"]
    assert await node.renew_files(timedelta(days=2)) == []
    assert node.contents()[SECOND] == newest


async def test_without_a_second_port_no_file_or_user_is_written_for_it(node: Node) -> None:
    node.plan = replace(node.plan, users=find_users([HOST], None))
    assert await node.renew_files() == []
    assert SECOND not in node.contents()
    assert "444" not in node.contents()[KUBECONFIG].decode()


async def test_pair_without_a_ca_is_written_unverified(node: Node) -> None:
    node.cluster.secret_data = secret_of(client(ca=OTHER_CA))
    del node.cluster.secret_data["ca.crt"]
    assert await node.renew_files() == []


async def test_unreadable_secret_does_not_delay_the_token(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(name: str) -> dict[str, bytes]:
        raise UserError(f"secret {name}: HTTP 403", "")

    monkeypatch.setattr(node.cluster, "read_secret", refuse)
    assert await node.renew_files() == ["secret podgate-apiserver: HTTP 403"]
    assert set(node.contents()) == {CONFIGURATION, KUBECONFIG, TOKEN}


# --- the token ---


@pytest.mark.parametrize(
    ("minutes", "renew_after_seconds", "is_renewed"),
    [(0, None, False), (29, None, False), (31, None, True), (90, None, True), (4, 300, False), (6, 300, True)],
)
async def test_a_token_of_the_cluster_is_renewed_at_half_its_life_or_when_reported(
    node: Node, minutes: int, renew_after_seconds: int | None, *, is_renewed: bool
) -> None:
    node.plan = plan(node.path, renew_after_seconds=renew_after_seconds)
    await node.renew_files()
    before = node.contents()[TOKEN]
    assert await node.renew_files(timedelta(minutes=minutes)) == []
    assert (node.contents()[TOKEN] != before) is is_renewed
    assert node.cluster.tokens_issued == 1 + is_renewed


async def test_small_clock_skew_does_not_request_a_token_in_every_round(node: Node) -> None:
    await node.renew_files()
    await node.renew_files(-timedelta(seconds=30))
    assert node.cluster.tokens_issued == 1
    await node.renew_files(-timedelta(days=1))
    assert node.cluster.tokens_issued == 2, "a clock that was set back by a day does"


@pytest.mark.parametrize("text", ["", "x", "a.b.c", make_token(audience="other"), make_token(account="other"), "\xff"])
async def test_token_with_other_claims_is_replaced(node: Node, text: str) -> None:
    assert node.plan.folder.put(TOKEN, text.encode())
    assert await node.renew_files() == []
    assert node.cluster.tokens_issued == 1


async def test_files_stay_while_the_cluster_is_unavailable(node: Node) -> None:
    await node.renew_files()
    before = node.contents()
    node.cluster.is_unavailable = True
    assert len(await node.renew_files(timedelta(minutes=40))) == 2
    assert node.contents() == before


async def test_a_token_of_podgates_own_issuer_is_taken_from_the_secret(node: Node) -> None:
    node.plan = plan(node.path, account=None)
    [error] = await node.renew_files()
    assert "holds no token" in error
    for lifetime_seconds in (3600, 7200):
        text = make_token(lifetime_seconds=lifetime_seconds)
        node.cluster.secret_data["token"] = text.encode()
        assert await node.renew_files() == []
        assert node.contents()[TOKEN] == text.encode() + b"\n"
    assert node.cluster.tokens_issued == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (make_token(NOW - timedelta(hours=2)), "expired at 2026-02-28T23:00:00Z"),
        (make_token(audience="somebody"), "for the audience 'somebody', not 'podgate'"),
        (make_token(audience=["podgate", "somebody"]), "for the audience 'podgate somebody', not 'podgate'"),
        ("password", "it is no JWT"),
        ("pass\xe4word", "not text"),
    ],
)
async def test_a_bad_token_is_never_written_nor_shown(node: Node, text: str, reason: str) -> None:
    node.plan = plan(node.path, account=None)
    node.cluster.secret_data["token"] = make_token().encode()
    await node.renew_files()
    before = node.contents()
    node.cluster.secret_data["token"] = text.encode()
    [error] = await node.renew_files()
    assert reason in error
    assert text not in error
    assert node.contents() == before


# --- foreign and changed files ---


@pytest.mark.parametrize("name", FILES)
async def test_foreign_file_is_left_unchanged_and_delays_no_other(node: Node, name: str) -> None:
    node.path.mkdir(parents=True)
    (node.path / name).write_text("mine")
    [error] = await node.renew_files()
    assert f"{node.path / name}: changed since it was written: left alone: move it away" in error
    assert (node.path / name).read_text() == "mine"
    assert set(node.contents()) == set(FILES)
    (node.path / name).unlink()
    assert await node.renew_files() == []


@pytest.mark.parametrize("name", FILES)
async def test_externally_changed_file_is_left_unchanged(node: Node, name: str) -> None:
    await node.renew_files()
    with (node.path / name).open("a") as file:
        file.write("# mine too\n")
    node.cluster.secret_data = secret_of(client())
    node.plan = plan(node.path, renew_after_seconds=60)
    changed = (node.path / name).read_bytes()
    [error] = await node.renew_files(timedelta(minutes=5))
    assert "left alone" in error
    assert (node.path / name).read_bytes() == changed


@pytest.mark.parametrize("write_that_fails", [1, 2])
def test_killed_writer_recognizes_its_files_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_that_fails: int
) -> None:
    folder = CredentialFolder(tmp_path)
    folder.put(TOKEN, b"1")
    writes = 0

    def write_or_fail(path: Path, content: bytes, *, secret: bool, replace: bool = False) -> None:
        nonlocal writes
        writes += 1
        if writes == write_that_fails:
            path.with_name(f".{path.name}.0123abcd").write_bytes(content[:1])
            raise CertsError("killed")
        write(path, content, secret=secret, replace=replace)

    monkeypatch.setattr(credential_folder, "write", write_or_fail)
    with pytest.raises(CertsError):
        folder.put(TOKEN, b"2")
    assert CredentialFolder(tmp_path).put(TOKEN, b"3")
    assert CredentialFolder(tmp_path).read(TOKEN) == b"3"
    assert len(list(tmp_path.iterdir())) == 2, "the incomplete file is removed"


def test_two_writers_in_one_folder_recognize_the_files_of_each_other(tmp_path: Path) -> None:
    """A DaemonSet and a manual run: a file without a record would never be renewed."""

    def put(writer: str) -> list[str]:
        reported = []
        for number in range(100):
            try:
                CredentialFolder(tmp_path).put(TOKEN, f"{writer}{number}".encode())
            except UserError as error:
                reported.append(str(error))
        return reported

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(put, "ab")] == [[], []]


def test_unreadable_record_of_written_files_is_an_error(tmp_path: Path) -> None:
    folder = CredentialFolder(tmp_path)
    folder.put(TOKEN, b"1")
    (tmp_path / ".podgate.json").write_text("[")
    with pytest.raises(UserError, match="cannot be parsed"):
        folder.put(TOKEN, b"2")


# --- the loop ---


async def test_error_is_reported_once_until_it_ends_and_a_defect_does_not_end_the_loop() -> None:
    output = io.StringIO()
    results: list[NodeCheck | Exception] = [
        NodeCheck(("written",), ("away",)),
        NodeCheck((), ("away",)),
        ValueError("a defect"),
        NodeCheck(),
        NodeCheck((), ("away",)),
    ]
    stop = asyncio.Event()

    async def check_once() -> NodeCheck:
        if not results:
            stop.set()
            return NodeCheck()
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    running = asyncio.create_task(_check_periodically(check_once, 0, Logs(JsonLines(output))))
    await asyncio.wait_for(stop.wait(), HANG_SECONDS)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(line["level"], line["msg"]) for line in lines][:6] == [
        ("info", "written"),
        ("warning", "away"),
        ("warning", "check failed: ValueError('a defect')"),
        ("info", "recovered"),
        ("warning", "away"),
        ("info", "recovered"),
    ]


def test_command_exits_cleanly_on_sigterm(tmp_path: Path) -> None:
    """Without a cluster it writes what it can, reports the rest, and runs until SIGTERM."""
    (kubeconfig := tmp_path / "kubeconfig").write_text(UNREACHABLE_KUBECONFIG)
    command: list[str | Path] = [
        BIN / "podgate",
        "apiserver-files",
        "--out",
        tmp_path / "out",
        "--kubeconfig",
        kubeconfig,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = [json.loads(process.stderr.readline())["msg"] for _ in range(4)]
        process.terminate()
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
    assert [text.rpartition("/")[2] for text in first[:2]] == [f"{CONFIGURATION}: written", f"{KUBECONFIG}: written"]
    assert first[2].startswith("secret podgate-system/podgate-apiserver: cannot be read: ")
    assert first[3].startswith(f"serviceaccount podgate-system/{ACCOUNT}: no token: ")


# --- the command ---


def check(path: Path) -> Done:
    return podgate("apiserver-files", "--out", path, "--check")


def test_check_prints_the_remaining_validity_and_fails_for_an_invalid_file(tmp_path: Path) -> None:
    folder, now = CredentialFolder(tmp_path), datetime.now(UTC)
    assert check(tmp_path).code == 1
    for name in (CONFIGURATION, KUBECONFIG):
        folder.put(name, b"x")
    pair = {key: text for key, text in secret_of(client(now)).items() if key != "ca.crt"}
    folder.put(IDENTITY, b"".join(pair.values()))
    folder.put(TOKEN, make_token(now).encode())
    done = check(tmp_path)
    assert done.code == 0, done.out
    ends = [row.get("validUntil") for row in json.loads(done.out)]
    assert ends[2:] == [f"{now + lifetime:%Y-%m-%dT%H:%M:%SZ}" for lifetime in (timedelta(days=7), timedelta(hours=1))]
    folder.put(TOKEN, make_token(now - timedelta(minutes=59, seconds=30)).encode())
    done = check(tmp_path)
    assert [row["good"] for row in json.loads(done.out)] == [True, True, True, False]
    assert done.code == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--token-lifetime", "9m"], "--token-lifetime 9m: the API server issues no token for less than 10m"),
        (["--token-lifetime", "soon"], "--token-lifetime 'soon': not a Go duration"),
        (["--every", "21s"], "--every 21s: the controller relies on 20s or less"),
        (["--once", "--check"], "--once and --check exclude each other"),
        (["--kubeconfig", "/nonexistent"], "/nonexistent: cannot read the kubeconfig"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(tmp_path: Path, arguments: list[str], reason: str) -> None:
    done = podgate("apiserver-files", "--out", tmp_path / "out", *arguments)
    assert done.code == 2
    assert reason in done.error
    assert not (tmp_path / "out").exists()


def test_port_gets_the_newest_pair_when_its_own_is_about_to_expire() -> None:
    """A last resort: the controller moves calls away from the port much earlier."""
    lifetime = timedelta(days=14)
    old, new = client(lifetime=lifetime), client(NOW + lifetime * 2 / 3, lifetime=lifetime)
    old_pair = old.certificate.public_bytes(Encoding.PEM) + encode_key(old.key)
    secret = {**secret_of(new), "first.pem": old_pair}

    def find_expiry(now: datetime, **other: bytes) -> datetime:
        pem = credential_check.encode_port_pair("first.pem", {**secret, **other}, "here", now)
        return credential_check.find_expiry(pem)

    ends = old.certificate.not_valid_after_utc
    assert find_expiry(ends - timedelta(hours=4)) == ends
    assert find_expiry(ends - timedelta(hours=3)) == new.certificate.not_valid_after_utc
    assert find_expiry(ends - timedelta(hours=3), **{"tls.key": b""}) == ends, (
        "the newest pair is invalid, so the old one stays"
    )


def test_secrets_are_not_in_the_repr() -> None:
    text = make_token()
    shown = [
        repr(credential_check.parse_token(text)),
        repr(PortCertificate(b"s3cr3t", 1, 1)),
        repr(TokenState((), (), "s3cr3t")),
        repr(TokenStep("signed", token="s3cr3t")),
    ]
    assert not [text_of_object for text_of_object in shown if text in text_of_object or "s3cr3t" in text_of_object]
