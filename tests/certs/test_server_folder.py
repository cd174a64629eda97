"""The folder of a server outside the cluster: missing files are issued, valid ones stay."""

import time
from datetime import timedelta
from pathlib import Path

import jwt
import pytest

from certs import CertsError, IssueRequest, ServerFolder, TokenClaims, is_signed_by, issue, read_certificates
from certs.token_issuer import new_key, sign

NAMES = ("podgate.podgate-system.svc", "127.0.0.1")
CLAIMS = TokenClaims("issuer", "podgate", "kube-apiserver")
FILES = {"ca.crt", "server.crt", "kube-apiserver.crt", "token.key", "jwks.json", "token"}


def issue_missing(folder: Path, *, is_dry: bool = False, names: tuple[str, ...] = NAMES) -> set[str]:
    return {Path(path).name for path in ServerFolder(folder, names, CLAIMS, is_dry=is_dry).issue_missing()}


def decode_token(folder: Path) -> dict[str, object]:
    claims: dict[str, object] = jwt.decode((folder / "token").read_text().strip(), options={"verify_signature": False})
    return claims


def test_empty_folder_is_filled_once(tmp_path: Path) -> None:
    assert issue_missing(tmp_path / "pki", is_dry=True) == FILES
    assert not (tmp_path / "pki").exists()
    assert issue_missing(tmp_path) == FILES
    content = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert issue_missing(tmp_path) == set()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == content
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077} == FILES - {"token", "token.key"}


def test_both_certificates_are_of_one_ca(tmp_path: Path) -> None:
    issue_missing(tmp_path)
    [ca] = read_certificates(tmp_path / "ca.crt")
    for name in ("server", "kube-apiserver"):
        [leaf] = read_certificates(tmp_path / f"{name}.crt")
        assert is_signed_by(leaf, ca)


def test_token_has_the_claims_and_a_day_to_live(tmp_path: Path) -> None:
    issue_missing(tmp_path)
    claims = decode_token(tmp_path)
    assert [claims[name] for name in ("iss", "aud", "sub", "client_id")] == [
        *("issuer", "podgate", "kube-apiserver", "kube-apiserver")
    ]
    assert claims["exp"] == claims["iat"] + 24 * 3600  # type: ignore[operator]  # numbers


@pytest.mark.parametrize("seconds", [-60, 3600])
def test_old_token_is_replaced_with_the_same_key(tmp_path: Path, seconds: int) -> None:
    issue_missing(tmp_path)
    keys = (tmp_path / "jwks.json").read_text()
    (tmp_path / "token").write_text(sign(new_key("ES256"), {"exp": int(time.time()) + seconds}))
    assert issue_missing(tmp_path) == {"token"}
    assert (tmp_path / "jwks.json").read_text() == keys
    assert decode_token(tmp_path)["iss"] == "issuer"


def test_file_that_is_no_token_is_replaced(tmp_path: Path) -> None:
    issue_missing(tmp_path)
    (tmp_path / "token").write_text("none")
    assert issue_missing(tmp_path) == {"token"}


@pytest.mark.parametrize("name", ["server", "kube-apiserver"])
def test_missing_certificate_is_issued_again_by_the_same_ca(tmp_path: Path, name: str) -> None:
    issue_missing(tmp_path)
    for kind in ("crt", "key"):
        (tmp_path / f"{name}.{kind}").unlink()
    assert issue_missing(tmp_path) == {f"{name}.crt"}
    assert is_signed_by(read_certificates(tmp_path / f"{name}.crt")[0], read_certificates(tmp_path / "ca.crt")[0])


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    issue_missing(tmp_path)
    (tmp_path / "server.key").unlink()
    with pytest.raises(CertsError, match=r"server\.key: missing, beside .*server\.crt"):
        issue_missing(tmp_path)


def test_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    issue_missing(tmp_path)
    with pytest.raises(CertsError, match=r"not valid for dns:podgate\.example\.com") as caught:
        issue_missing(tmp_path, names=(*NAMES, "podgate.example.com"))
    assert "move" in caught.value.remedy


def test_expired_certificate_is_refused(tmp_path: Path) -> None:
    request = IssueRequest(NAMES[0], ("ip:127.0.0.1",), ("kube-apiserver",), lifetime=timedelta(seconds=0))
    issue(tmp_path, request)
    with pytest.raises(CertsError, match=r"server\.crt: expired at") as caught:
        issue_missing(tmp_path)
    assert caught.value.remedy.endswith(f"podgate certs rotate --out {tmp_path}")
