"""`podgate token rotate`: an issuer in a folder, run again and again."""

import json
import stat
import subprocess
from pathlib import Path

import jwt
import pytest

from certs.files import lock_folder
from tests.cli.command_runner import BIN, Done, podgate
from tests.timeouts import HANG_SECONDS

IDENTITY_FLAGS = (
    "--issuer",
    "https://podgate",
    "--audience",
    "podgate",
    "--subject",
    "kube-apiserver",
    "--client-id",
    "c",
)


def rotate(folder: Path, *more: str) -> Done:
    return podgate("token", "rotate", "--out", folder, *IDENTITY_FLAGS, *more)


def test_first_run_creates_all_files_and_the_next_none(tmp_path: Path) -> None:
    done = rotate(tmp_path / "issuer")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == ["made", "published", "key", "signed"]
    [jwk] = json.loads((tmp_path / "issuer/jwks.json").read_text())["keys"]
    token = (tmp_path / "issuer/token").read_text().strip()
    claims = jwt.decode(token, jwt.PyJWK(jwk), algorithms=["ES256"], audience="podgate")
    assert (claims["iss"], claims["sub"], claims["client_id"]) == ("https://podgate", "kube-apiserver", "c")
    assert claims["exp"] - claims["iat"] == 3600
    assert "d" not in jwk
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "issuer").iterdir()}
    assert modes == {"keys.json": 0o600, "token": 0o600, "jwks.json": 0o644}
    assert rotate(tmp_path / "issuer").out == ""


def test_dry_run_lists_due_changes_and_writes_nothing(tmp_path: Path) -> None:
    done = rotate(tmp_path / "issuer", "--dry-run")
    assert done.code == 0
    assert all(line.startswith("due: ") for line in done.out.splitlines())
    assert len(done.out.splitlines()) == 4
    assert not (tmp_path / "issuer").exists()


def test_changed_lifetime_reissues_the_token_with_the_same_key(tmp_path: Path) -> None:
    rotate(tmp_path)
    before = (tmp_path / "jwks.json").read_text()
    done = rotate(tmp_path, "--expires-in", "2h")
    assert "the token lifetime has changed" in done.out
    assert (tmp_path / "jwks.json").read_text() == before


def test_second_run_waits_for_the_first(tmp_path: Path) -> None:
    command = [str(BIN / "podgate"), "token", "rotate", "--out", str(tmp_path), *IDENTITY_FLAGS]
    with lock_folder(tmp_path):
        second = subprocess.Popen(command, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(3)
        assert list(tmp_path.iterdir()) == []
    second.communicate(timeout=HANG_SECONDS)
    assert second.returncode == 0
    assert (tmp_path / "token").exists()


def test_invalid_key_file_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    done = rotate(tmp_path)
    assert done.code == 2
    assert f"{tmp_path / 'keys.json'}: not a list of signing keys" in done.error
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--expires-in", "soon"), "--expires-in 'soon': not a Go duration"),
        (("--key-lifetime", "10ms"), "--key-lifetime '10ms': shorter than a second"),
        (("--expires-in", "2h", "--key-lifetime", "1h"), "--key-lifetime 1h: a key lifetime of 3600 s is shorter"),
    ],
)
def test_inconsistent_lifetimes_are_refused(tmp_path: Path, more: tuple[str, ...], reason: str) -> None:
    done = rotate(tmp_path / "issuer", *more)
    assert done.code == 2
    assert reason in done.error
    assert not (tmp_path / "issuer").exists()
