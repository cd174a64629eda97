import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority
from certs.files import read_certificates
from certs.token_issuer import build_binding
from tests.certs.commands import issue, run
from webhook.authentication.jwks import read_key_set
from webhook.errors import UserError


def test_authority_is_created_once_and_reused(tmp_path: Path) -> None:
    first = issue(tmp_path, "--server", "podgate.podgate-system.svc", "--san", "ip:127.0.0.1", "--client", "a")
    assert [Path(row["file"]).name for row in first] == ["ca.crt", "server.crt", "a.crt"]
    assert first[1]["sans"][0] == "dns:podgate.podgate-system.svc"
    assert first[1]["sans"][-1] == "ip:127.0.0.1"
    second = issue(tmp_path, "--client", "b,spiffe://cluster/b", "--days", "1")
    assert [Path(row["file"]).name for row in second] == ["b.crt"]
    assert second[0]["verified_by"] == first[0]["subject"]
    assert second[0]["sans"] == ["uri:spiffe://cluster/b"]
    assert second[0]["days_left"] == pytest.approx(1, abs=0.1)


def test_another_authority_may_sign(tmp_path: Path) -> None:
    (ca,) = issue(tmp_path / "a")
    rows = issue(tmp_path / "b", "--ca-cert", tmp_path / "a/ca.crt", "--ca-key", tmp_path / "a/ca.key", "--client", "c")
    assert [row["verified_by"] for row in rows] == [ca["subject"]]
    assert not (tmp_path / "b/ca.crt").exists()


def test_leaves_are_replaced_only_on_request(tmp_path: Path) -> None:
    (_, before) = issue(tmp_path, "--client", "a")
    with pytest.raises(UserError, match=r"a\.crt, .*a\.key: already exists") as refused:
        issue(tmp_path, "--client", "a")
    assert "--force" in refused.value.remedy
    (after,) = issue(tmp_path, "--client", "a", "--force")
    assert after["serial"] != before["serial"]
    assert after["issuer"] == before["issuer"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--san", "dns:a"], "--san without --server"),
        (["--server", "a b"], "'a b' is not a valid SAN"),
        (["--server", "bücher.x.svc"], "'bücher.x.svc' is not a valid SAN"),
        (["--client", "a,notauri"], "'notauri' is not an absolute URI"),
        (["--client", "a,spiffe://bü"], "'spiffe://bü' is not an absolute URI"),
        (["--server", "a", "--san", "ip:x"], "'ip:x' is not a valid SAN"),
        (["--client", "a", "--client", "a"], "two of the files would have one name"),
        (["--client", "server", "--server", "a"], "two of the files would have one name"),
        (["--client", "ca"], "two of the files would have one name"),
        (["--client", "x" * 65], "has 65 characters"),
        (["--ca-cert", "ca.crt"], "--ca-cert and --ca-key go together"),
        (["--ca-cert", "none", "--ca-key", "none"], "none: cannot be read"),
    ],
)
def test_invalid_arguments_are_reported_and_write_nothing(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        issue(tmp_path / "out", *words)
    assert message in str(refused.value)
    assert refused.value.remedy
    assert not (tmp_path / "out").exists()


def test_half_an_authority_is_not_completed(tmp_path: Path) -> None:
    issue(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(UserError, match=r"ca\.key: cannot be read"):
        issue(tmp_path, "--client", "a")


def test_inspect_describes_a_file_as_text_and_json(tmp_path: Path) -> None:
    issue(tmp_path, "--server", "localhost")
    printed = run("certs", "inspect", tmp_path / "server.crt", "--ca", tmp_path / "ca.crt")
    assert "dns:localhost" in printed
    assert "30.0 days left" in printed
    (certificate,) = json.loads(run("certs", "inspect", tmp_path / "server.crt", "-o", "json"))
    assert certificate["verified_by"] is None
    with pytest.raises(UserError, match="holds no certificate"):
        run("certs", "inspect", tmp_path / "ca.key")


def test_inspect_reports_a_certificate_that_is_not_valid_now(tmp_path: Path) -> None:
    authority, now = Authority.create(), datetime.now(UTC)
    for name, start, message in (
        ("just now", now - timedelta(days=1, seconds=30), "(EXPIRED 0.0 days ago)"),
        ("long ago", now - timedelta(days=4), "(EXPIRED 3.0 days ago)"),
        ("to come", now + timedelta(days=2), "(NOT YET VALID, from "),
    ):
        path = tmp_path / f"{name}.crt"
        leaf = authority.issue_client("a", lifetime=timedelta(days=1), now=start)
        path.write_bytes(leaf.certificate.public_bytes(Encoding.PEM))
        assert message in run("certs", "inspect", path), name
        assert "days left" not in run("certs", "inspect", path)


CLAIMS = ("--issuer", "i", "--audience", "podgate", "--subject", "s")


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256", "EdDSA"])
def test_a_token_verifies_with_the_key_set(tmp_path: Path, algorithm: str) -> None:
    key = tmp_path / "token.key"
    words = (
        "token",
        "issue",
        "--key",
        key,
        *CLAIMS,
        "--client-id",
        "c",
        "--expires-in",
        "10m",
        "--algorithm",
        algorithm,
    )
    issued = run(*words, "--new-key").strip()
    reissued = run(*words, "--new-key").strip()
    assert key.stat().st_mode & 0o777 == 0o600
    rsa_words = ("--rsa-algorithm", algorithm) if algorithm in ("RS256", "PS256") else ()
    (jwk,) = json.loads(run("token", "jwks", key, *rsa_words))["keys"]
    for text in (issued, reissued):
        claims = jwt.decode(text, jwt.PyJWK(jwk), algorithms=[algorithm], audience="podgate", issuer="i")
        assert (claims["sub"], claims["client_id"], claims["exp"] - claims["iat"]) == ("s", "c", 600)


def test_a_key_may_be_bound_to_its_issuer(tmp_path: Path) -> None:
    key = tmp_path / "token.key"
    run("token", "issue", "--key", key, "--new-key", "--issuer", "i", "--audience", "a", "--subject", "s")
    (unbound,) = json.loads(run("token", "jwks", key))["keys"]
    (bound,) = json.loads(run("token", "jwks", key, "--issuer", "https://i"))["keys"]
    assert bound == {**unbound, "iss": "https://i"}
    read = read_key_set(json.dumps({"keys": [bound]}).encode(), "set", may_bind=True)
    assert read.keys[bound["kid"]].issuer == "https://i"


def test_token_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    out = tmp_path / "token"
    for _ in range(2):
        assert run("token", "issue", "--key", tmp_path / "k", "--new-key", *CLAIMS, "--out", out) == ""
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.read_text().count(".") == 2


def test_a_token_may_be_bound_to_a_certificate(tmp_path: Path) -> None:
    issue(tmp_path, "--client", "a")
    text = run("token", "issue", "--key", tmp_path / "k", "--new-key", *CLAIMS, "--bind-to", tmp_path / "a.crt")
    claims = jwt.decode(text.strip(), options={"verify_signature": False})
    assert claims["cnf"] == build_binding(read_certificates(tmp_path / "a.crt")[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["issue", "--key", "{none}", *CLAIMS], "no such key"),
        (["issue", "--key", "{text}", *CLAIMS], "holds no private key"),
        (["issue", "--key", "{key}", *CLAIMS, "--algorithm", "RS256"], "does not sign RS256"),
        (["issue", "--key", "{key}", *CLAIMS, "--expires-in", "soon"], "--expires-in 'soon'"),
        (["issue", "--key", "{key}", *CLAIMS, "--expires-in", "5ms"], "shorter than a second"),
        (["jwks", "{none}"], "cannot be read"),
        (["jwks", "{text}"], "holds no key in PEM"),
        (["jwks", "{key}", "{key}", "--kid", "k"], "--kid with several keys"),
    ],
)
def test_invalid_token_arguments_are_reported(tmp_path: Path, words: list[str], message: str) -> None:
    issue(tmp_path)
    (tmp_path / "text").write_text("text")
    places = {"none": tmp_path / "none", "text": tmp_path / "text", "key": tmp_path / "ca.key"}
    with pytest.raises(UserError) as refused:
        run("token", *(word.format(**places) for word in words))
    assert message in str(refused.value)
