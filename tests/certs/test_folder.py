"""`podgate certs rotate`: rotation of the certificates in a folder, as a cron job runs it."""

import json
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from certs import ca_generations
from certs.authority import Authority, KeyPair
from certs.ca_folder import CaFolder
from certs.errors import CertsError
from certs.files import lock_folder, read_certificates, read_key_pair, write_key_pair
from certs.inspection import is_signed_by
from certs.lifetimes import Lifetimes
from tests.certs.commands import issue, run
from webhook.errors import UserError

DAY = timedelta(days=1)
LIFETIMES = Lifetimes(100 * DAY, 30 * DAY, DAY)
SPIFFE = x509.UniformResourceIdentifier("spiffe://cluster/caller")
IP = x509.IPAddress(IPv4Address("10.0.0.1"))
OF_EACH_LEAF = {
    *(ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE),
    *(ExtensionOID.SUBJECT_KEY_IDENTIFIER, ExtensionOID.AUTHORITY_KEY_IDENTIFIER),
}


def rotate(folder: Path, now: datetime) -> list[str]:
    return [f"{action.file} {action.text}" for action in CaFolder(folder, LIFETIMES).rotate(now)]


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    issue(tmp_path, *("--server", "podgate.podgate-system.svc", "--san", "ip:127.0.0.1"), *("--ca-days", 100))
    issue(tmp_path, "--client", "kube-apiserver,spiffe://cluster/kube-apiserver")
    return tmp_path


def test_two_years_of_daily_runs_keep_leaves_valid_and_remove_old_cas(pki: Path) -> None:
    now, cas = datetime.now(UTC), set()
    old_leaves = [read_certificates(pki / f"{stem}.crt")[0] for stem in ("server", "kube-apiserver")]
    for _ in range(730):
        now += DAY
        rotate(pki, now)
        trusted = read_certificates(pki / "ca.crt")
        cas |= set(trusted)
        for stem in ("server", "kube-apiserver"):
            leaf = read_key_pair(pki / f"{stem}.crt", pki / f"{stem}.key")
            assert leaf.certificate.public_key() == leaf.key.public_key()
            assert leaf.certificate.not_valid_after_utc > now + DAY
            assert any(is_signed_by(leaf.certificate, ca) and ca.not_valid_after_utc > now for ca in trusted)
        signer = read_key_pair(pki / "ca.crt", pki / "ca.key")
        assert signer.certificate.public_key() == signer.key.public_key(), "`certs issue` signs with this pair"
        assert len(trusted) <= 3
        assert trusted[0].not_valid_after_utc > now
    assert len(cas) > 8
    for stem, old_leaf in zip(("server", "kube-apiserver"), old_leaves, strict=True):
        new_leaf = read_certificates(pki / f"{stem}.crt")[0]
        assert new_leaf.subject == old_leaf.subject
        kinds = (x509.SubjectAlternativeName, x509.ExtendedKeyUsage)
        for kind in kinds:
            assert new_leaf.extensions.get_extension_for_class(kind) == old_leaf.extensions.get_extension_for_class(
                kind
            )


def test_new_ca_is_published_a_day_before_it_signs(pki: Path) -> None:
    now = datetime.now(UTC)
    old = read_certificates(pki / "ca.crt")[0]
    while not (lines := [line for line in rotate(pki, now) if "ca.crt holds 2 CA(s)" in line]):
        now += DAY / 4
    assert "distribute it to servers and clients" in lines[0]
    assert is_signed_by(read_certificates(pki / "server.crt")[0], old)
    assert not any("a new CA has taken over" in line for line in rotate(pki, now + DAY * 0.9))
    switched = rotate(pki, now + DAY)
    assert sum("a new CA has taken over" in line for line in switched) == 2
    assert [ca == old for ca in read_certificates(pki / "ca.crt")] == [False, True]


@pytest.mark.parametrize(
    ("names", "usages", "attributes"),
    [
        ((x509.DNSName("reporter.example"),), (ExtendedKeyUsageOID.CLIENT_AUTH,), ()),
        ((x509.DNSName("a"), SPIFFE, IP), (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH), ()),
        ((SPIFFE, x509.UniformResourceIdentifier("urn:b")), (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), ()),
        ((x509.RFC822Name("a@example"),), (), ()),
        ((), (ExtendedKeyUsageOID.CLIENT_AUTH,), (x509.NameAttribute(NameOID.ORGANIZATION_NAME, "team"),)),
    ],
)
def test_renewed_leaf_has_the_names_and_usages_of_the_former_one(
    pki: Path,
    names: tuple[x509.GeneralName, ...],
    usages: tuple[x509.ObjectIdentifier, ...],
    attributes: tuple[x509.NameAttribute[str], ...],
) -> None:
    """Callers are identified by their names: docs/identities.md."""
    ca, key = read_key_pair(pki / "ca.crt", pki / "ca.key"), ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        ca.certificate.subject,
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "caller"), *attributes]),
        key.public_key(),
        x509.random_serial_number(),
        now - 26 * DAY,
        now + 4 * DAY,
    )
    extensions = [x509.SubjectAlternativeName(names)] if names else []
    extensions += [x509.ExtendedKeyUsage(usages)] if usages else []
    extensions.append(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    former = KeyPair(builder.sign(ca.key, hashes.SHA256()), key)
    write_key_pair(former, pki / "caller.crt", pki / "caller.key")
    assert [line.split()[:2] for line in rotate(pki, now)] == [["caller.crt", "renewed,"]]
    renewed = read_key_pair(pki / "caller.crt", pki / "caller.key").certificate
    assert renewed.subject == former.certificate.subject
    assert renewed.not_valid_after_utc > now + 29 * DAY
    kept = {extension.oid: extension for extension in renewed.extensions if extension.oid not in OF_EACH_LEAF}
    assert kept == {extension.oid: extension for extension in former.certificate.extensions}


def test_renewed_files_keep_group_and_mode(pki: Path) -> None:
    (pki / "server.key").chmod(0o640)
    (pki / "server.crt").chmod(0o640)
    rotate(pki, datetime.now(UTC) + 25 * DAY)
    assert [(pki / f"server.{kind}").stat().st_mode & 0o777 for kind in ("key", "crt")] == [0o640, 0o640]


def test_certificates_are_not_issued_while_the_folder_is_rotated(pki: Path) -> None:
    """Else each could write one half of a pair."""
    before = (pki / "server.crt").read_bytes()
    words = ("--server", "podgate.podgate-system.svc", "--force")
    with ThreadPoolExecutor(1) as pool:
        with lock_folder(pki):
            issued = pool.submit(issue, pki, *words)
            with pytest.raises(TimeoutError):
                issued.result(0.5)
            assert (pki / "server.crt").read_bytes() == before
        issued.result()
    assert (pki / "server.crt").read_bytes() != before


def test_interrupted_rotation_is_repaired_by_the_next_run(pki: Path) -> None:
    issue(pki / "other", "--server", "podgate.podgate-system.svc")
    (pki / "server.key").write_bytes((pki / "other/server.key").read_bytes())
    [line] = rotate(pki, datetime.now(UTC))
    assert line.startswith("server.crt renewed")
    assert "its key is missing or does not match" in line
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")


def test_cas_in_the_initial_bundle_stay_until_they_expire(pki: Path) -> None:
    now = datetime.now(UTC)
    managed_cas = read_certificates(pki / "ca.crt")
    manual_ca, expired = (
        Authority.create(name, 50 * DAY, now=valid_from).key_pair.certificate
        for name, valid_from in (("by-hand", now), ("past", now - 60 * DAY))
    )
    (pki / "ca.crt").write_bytes(ca_generations.encode_pem(*managed_cas, manual_ca, expired, manual_ca))
    rotate(pki, now)
    assert read_certificates(pki / "ca.crt") == [*managed_cas, manual_ca]
    rotate(pki, now + 49 * DAY)
    assert manual_ca in read_certificates(pki / "ca.crt")
    rotate(pki, now + 51 * DAY)
    assert manual_ca not in read_certificates(pki / "ca.crt")


def test_rotate_command_prints_done_and_planned_actions(pki: Path) -> None:
    assert run("certs", "rotate", "--out", pki) == "nothing is due\n"
    assert not (pki / "rotation.json").exists()
    issue(pki, "--server", "podgate.podgate-system.svc", "--days", "1", "--force")
    issue(pki / "b", "--client", "stranger")
    for kind in ("crt", "key"):
        (pki / "b" / f"stranger.{kind}").rename(pki / f"stranger.{kind}")
    (pki / "server.key").write_bytes((pki / "kube-apiserver.key").read_bytes())
    before = (pki / "server.crt").read_bytes()
    planned = run("certs", "rotate", "--out", pki, "--dry-run")
    assert planned.startswith(f"would: {pki}/server.crt: renewed, until")
    assert f"{pki}/stranger.crt: signed by no CA of this folder, left alone" in planned
    assert (pki / "server.crt").read_bytes() == before
    report = json.loads(run("certs", "rotate", "--out", pki, "-o", "json"))
    assert [row["file"] for row in report["done"]] == [f"{pki}/server.crt"]
    assert report["strangers"] == ["stranger.crt"]
    assert (pki / "server.crt").read_bytes() != before
    assert {path.name: path.stat().st_mode & 0o777 for path in pki.glob("*.key")} == dict.fromkeys(
        ("ca.key", "server.key", "kube-apiserver.key", "stranger.key"), 0o600
    )
    assert (pki / "rotation.json").stat().st_mode & 0o777 == 0o600
    assert "renewed from" in run("certs", "inspect", pki / "server.crt", "--ca", pki / "ca.crt")


def test_invalid_folder_is_reported_with_a_remedy(tmp_path: Path, pki: Path) -> None:
    with pytest.raises(UserError, match="cannot be opened"):
        run("certs", "rotate", "--out", tmp_path / "none")
    with pytest.raises(UserError, match="must be at least twice as long") as refused:
        run("certs", "rotate", "--out", pki, "--ca-days", "40")
    assert refused.value.remedy == "write at least 60"
    (pki / "rotation.json").write_text("{}")
    with pytest.raises(CertsError, match=r"rotation\.json: not a list of CA generations"):
        CaFolder(pki, LIFETIMES)
