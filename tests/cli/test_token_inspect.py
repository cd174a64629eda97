"""`podgate token inspect`: its output, the verifying key, and no token in it."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from certs.token_issuer import build_jwk, format_key_set, new_key, sign
from tests.cli.command_runner import Done, podgate, run_installed

KEY, OTHER = new_key("ES256"), new_key("ES256")
JWK = build_jwk(KEY.public_key())
IAT = int(time.time()) // 3600 * 3600
LIFE_SECONDS = 86_400
"""Longer than a run: each worker reads the time once, at its start."""
CLAIMS = {"iss": "https://podgate", "aud": "podgate", "sub": "kube", "iat": IAT, "exp": IAT + LIFE_SECONDS, "jti": "1"}
REVEALING_LENGTH = 12
"""So many consecutive letters of a token do not appear in an output by chance."""


def shows(done: Done, text: str) -> bool:
    printed = done.out + done.err
    return any(text[at : at + REVEALING_LENGTH] in printed for at in range(len(text) - REVEALING_LENGTH + 1))


def inspect_token(text: str, *flags: str | Path) -> Done:
    """Inspect a token from standard input: it is never shown."""
    done = podgate("token", "inspect", "-", *flags, stdin=text)
    assert not shows(done, text)
    return done


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    (path := tmp_path / "jwks.json").write_text(format_key_set([JWK]))
    return path


def verdict_on(text: str, jwks: Path) -> tuple[str | None, str | None]:
    done = inspect_token(text, "--jwks", jwks, "-o", "json")
    assert (done.code, done.err) == (0, "")
    [row] = json.loads(done.out)
    return row["verifiedBy"], row["reason"]


def test_inspect_shows_claims_and_the_verifying_key(tmp_path: Path, jwks: Path) -> None:
    text = sign(KEY, CLAIMS)
    (tmp_path / "token").write_text(text + "\n")
    done = podgate("token", "inspect", tmp_path / "token", "--jwks", jwks)
    assert (done.code, done.err, shows(done, text)) == (0, "", False)
    head, *lines = done.out.splitlines()
    assert head == str(tmp_path / "token")
    assert lines[:-2] == [
        '  header alg   "ES256"',
        f'  header kid   "{JWK["kid"]}"',
        '  header typ   "JWT"',
        '  iss          "https://podgate"',
        '  aud          "podgate"',
        '  sub          "kube"',
        f"  iat          {IAT} ({moment(IAT)})",
        f"  exp          {IAT + LIFE_SECONDS} ({moment(IAT + LIFE_SECONDS)})",
        '  jti          "1"',
    ]
    assert lines[-2].startswith(f"  valid until  {moment(IAT + LIFE_SECONDS)} (")
    assert lines[-2].endswith(" left)")
    assert lines[-1] == f"  verified by  kid {JWK['kid']}"


def moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_json_output_has_the_same_content() -> None:
    [row] = json.loads(inspect_token(sign(KEY, CLAIMS), "-o", "json").out)
    assert 0 < row.pop("secondsLeft") <= LIFE_SECONDS
    header = {"alg": "ES256", "kid": JWK["kid"], "typ": "JWT"}
    assert row == {
        "file": "standard input",
        "header": header,
        "claims": CLAIMS,
        "validUntil": moment(IAT + LIFE_SECONDS),
    }, "without keys there is no verdict"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": IAT - 7200}, f"valid until  {moment(IAT - 7200)} (expired "),
        ({"exp": 2**80}, "valid until  - (no exp in whole seconds: servers reject it)"),
        ({"exp": True}, "valid until  - (no exp"),
        ({"sub": "\x1b[31mred\x9b"}, r'sub          "\u001b[31mred\u009b"'),
        ({"a\x1b[31m": 1}, r"a\u001b[31m"),
    ],
    ids=["expired", "far", "no-number", "control-characters", "name"],  # a time would differ between workers
)
def test_odd_claims_are_shown_escaped(claims: dict[str, Any], says: str) -> None:
    done = inspect_token(sign(KEY, {**CLAIMS, **claims}))
    assert done.code == 0
    assert says in done.out
    assert "\x1b" not in done.out


def test_inspect_shows_why_no_key_verifies_the_token(jwks: Path) -> None:
    good = sign(KEY, CLAIMS)
    assert verdict_on(good, jwks) == (JWK["kid"], None)
    assert verdict_on(sign(KEY, {**CLAIMS, "iat": IAT - 9000, "exp": IAT - 7200}), jwks) == (JWK["kid"], None), (
        "expired"
    )
    assert (
        verdict_on(sign(OTHER, CLAIMS), jwks)[1]
        == f"kid {build_jwk(OTHER.public_key())['kid']!r} is not in the key set"
    )
    forged = sign(OTHER, CLAIMS, kid=JWK["kid"])
    assert verdict_on(forged, jwks) == (None, f"kid {JWK['kid']!r}, ES256: Signature verification failed")
    _, payload, signature = good.split(".")
    none = base64.urlsafe_b64encode(b'{"alg": "none"}').decode().rstrip("=")
    assert verdict_on(f"{none}.{payload}.{signature}", jwks)[1] == "alg 'none' is not among ES256, RS256, PS256, EdDSA"
    jwks.write_text(format_key_set([{**JWK, "iss": "https://other"}]))
    assert verdict_on(good, jwks) == (None, f"kid {JWK['kid']!r} is not valid for iss 'https://podgate'")
    bound = {**build_jwk(OTHER.public_key()), "iss": "https://podgate"}
    jwks.write_text(format_key_set([JWK, bound]))
    assert verdict_on(good, jwks)[0] is None, "only another key is valid for that issuer"
    assert verdict_on(sign(OTHER, CLAIMS), jwks) == (bound["kid"], None)


def test_bad_key_is_a_warning_and_bad_key_set_an_error(jwks: Path) -> None:
    jwks.write_text(json.dumps({"keys": [JWK, {"kty": "oct", "kid": "s"}]}))
    done = inspect_token(sign(KEY, CLAIMS), "--jwks", jwks)
    assert (done.code, done.out.count("verified by  kid")) == (0, 1)
    assert done.err.startswith(f"warning: {jwks}: keys[1] (kid 's'): kty is 'oct'")
    jwks.write_text("[]")
    done = inspect_token(sign(KEY, CLAIMS), "--jwks", jwks)
    assert (done.code, done.out) == (2, "")
    assert f"{jwks}: " in done.error


@pytest.mark.parametrize("form", ["{}", "Bearer {}", "eyJhbGciOiJFUzI1NiJ9.broken"])
@pytest.mark.parametrize("before", [[], ["-"], ["-", "--jwks"]])
def test_token_as_an_argument_is_refused_and_not_shown(before: list[str], form: str) -> None:
    text = form.format(sign(KEY, CLAIMS))
    done = podgate("token", "inspect", *before, text)
    assert done.code == 2
    assert done.error == "FILE: this is a token, not a file: put it into a file, or pipe it to podgate token inspect -"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret-password-of-somebody",
        "secret.password.of-somebody",
        "a.b.c.d.e",
        sign(KEY, CLAIMS) + " and more",
        sign(KEY, CLAIMS).replace(".", "\xe4.", 1),
        base64.urlsafe_b64encode(b'{"alg": NaN}').decode().rstrip("=") + ".e30.c2lnbmF0dXJl",
    ],
)
def test_invalid_token_is_refused_and_not_shown(text: str) -> None:
    done = inspect_token(text)
    assert (done.code, done.out) == (2, "")
    assert done.error == "standard input: holds no JWT: give the token alone: three parts with a dot between each two"


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    done = podgate("token", "inspect", tmp_path / "none")
    assert done.code == 2
    assert done.error.startswith(f"{tmp_path / 'none'}: cannot be read: No such file")


def test_installed_command_reads_standard_input() -> None:
    done = run_installed("token", "inspect", "-", stdin=sign(KEY, CLAIMS))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("standard input\n")
