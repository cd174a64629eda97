"""`podgate token rotate`: an issuer in a folder, run again and again."""

import json
import stat
import subprocess
from pathlib import Path

import jwt
import pytest

from certs.files import folder_lock
from tests.cli.command_runner import BIN, Done, podgate
from tests.timeouts import HANG_SECONDS

WHO = ("--issuer", "https://podgate", "--audience", "podgate", "--subject", "kube-apiserver", "--client-id", "c")


def rotate(folder: Path, *more: str) -> Done:
    return podgate("token", "rotate", "--out", folder, *WHO, *more)


def test_the_first_run_makes_all_and_the_next_one_nothing(tmp_path: Path) -> None:
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


def test_a_dry_run_says_what_is_due_and_writes_nothing(tmp_path: Path) -> None:
    done = rotate(tmp_path / "issuer", "--dry-run")
    assert done.code == 0
    assert all(line.startswith("due: ") for line in done.out.splitlines())
    assert len(done.out.splitlines()) == 4
    assert not (tmp_path / "issuer").exists()


def test_a_token_that_is_to_live_for_another_time_is_issued_again_with_the_same_key(tmp_path: Path) -> None:
    rotate(tmp_path)
    before = (tmp_path / "jwks.json").read_text()
    done = rotate(tmp_path, "--expires-in", "2h")
    assert "the token lifetime has changed" in done.out
    assert (tmp_path / "jwks.json").read_text() == before


def test_a_second_one_waits_until_the_first_is_done(tmp_path: Path) -> None:
    command = [str(BIN / "podgate"), "token", "rotate", "--out", str(tmp_path), *WHO]
    with folder_lock(tmp_path):
        second = subprocess.Popen(command, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(3)
        assert list(tmp_path.iterdir()) == []
    second.communicate(timeout=HANG_SECONDS)
    assert second.returncode == 0
    assert (tmp_path / "token").exists()


def test_keys_that_are_none_are_said_and_stay(tmp_path: Path) -> None:
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
def test_lifetimes_that_cannot_go_well_are_refused(tmp_path: Path, more: tuple[str, ...], reason: str) -> None:
    done = rotate(tmp_path / "issuer", *more)
    assert done.code == 2
    assert reason in done.error
    assert not (tmp_path / "issuer").exists()
