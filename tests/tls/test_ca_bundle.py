import json
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID

from certs.authority import Authority
from tests.authentication.client_ca import CA, authority, make_garbled_extension
from tests.harness.identity import Pki
from tests.harness.raw_http import eventually
from tests.harness.server_process import Files, Serving, run_server
from webhook.errors import UserError
from webhook.tls.ca_bundle import CaBundleFile
from webhook.tls.context import TlsFiles


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.create(tmp_path / "pki")


def write_bundle(path: Path, *pkis: Pki) -> Path:
    path.write_bytes(b"".join((pki.folder / "ca.crt").read_bytes() for pki in pkis))
    return path


def test_serving_certificate_verifies_only_against_bundles_with_its_ca(pki: Pki, tmp_path: Path) -> None:
    other, files = Pki.create(tmp_path / "other"), TlsFiles(pki.paths)
    for name, pkis, is_trusted in (
        ("own", (pki,), True),
        ("old and new", (other, pki), True),
        ("another", (other,), False),
    ):
        bundle = write_bundle(tmp_path / "bundle.crt", *pkis)
        obstacle = CaBundleFile(bundle, lambda: files.context).find_obstacle()
        assert (obstacle is None) == is_trusted, name
    assert obstacle is not None
    assert obstacle.startswith(f"the serving certificate does not verify against {bundle}: ")
    assert obstacle.endswith("certificate in certificate chain")


def test_bundle_with_a_malformed_ca_names_its_fault(pki: Pki, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle.crt", pki)
    odd = authority(CA, make_garbled_extension(ExtensionOID.NAME_CONSTRAINTS))
    bundle.write_bytes(bundle.read_bytes() + ssl.DER_cert_to_PEM_cert(odd).encode())
    with pytest.raises(UserError, match="in it: its extension nameConstraints is malformed: ") as refused:
        CaBundleFile(bundle, lambda: TlsFiles(pki.paths).context)
    assert str(refused.value).startswith(f"{bundle}: certificate 2 in it: ")


def test_new_certificate_and_new_bundle_are_verified_at_once(pki: Pki, tmp_path: Path) -> None:
    other, files = Pki.create(tmp_path / "other"), TlsFiles(pki.paths)
    bundle = write_bundle(tmp_path / "bundle.crt", pki)
    published = CaBundleFile(bundle, lambda: files.context)
    assert published.find_obstacle() is None
    write_bundle(bundle, other)
    published.reload()
    assert published.find_obstacle() is not None
    served = TlsFiles(other.paths)
    assert CaBundleFile(bundle, lambda: served.context).find_obstacle() is None
    files = served
    assert published.find_obstacle() is None


def test_invalid_bundle_is_named_and_a_later_invalid_one_changes_nothing(pki: Pki, tmp_path: Path) -> None:
    files, messages = TlsFiles(pki.paths), list[str | None]()
    text = tmp_path / "text"
    text.write_text("text")
    with pytest.raises(UserError, match="text: holds no CA in PEM"):
        CaBundleFile(text, lambda: files.context)
    published = CaBundleFile(write_bundle(text, pki), lambda: files.context, messages.append)
    text.write_text("")
    published.reload()
    assert published.find_obstacle() is None
    assert messages == [None, f"{text}: holds no CA in PEM"]


def test_earliest_expiry_of_the_cas_is_shown(pki: Pki, tmp_path: Path) -> None:
    files, soon = TlsFiles(pki.paths), Authority.create("soon", timedelta(days=1)).key_pair.certificate
    bundle = write_bundle(tmp_path / "bundle.crt", pki)
    bundle.write_bytes(bundle.read_bytes() + soon.public_bytes(Encoding.PEM))
    published = CaBundleFile(bundle, lambda: files.context)
    assert published.value.not_after_seconds == int(soon.not_valid_after_utc.timestamp())


async def test_server_is_ready_only_while_its_certificate_verifies_against_the_published_bundle(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    other = Pki.create(tmp_path / "other")
    bundle = write_bundle(tmp_path / "bundle.crt", other)
    message = f"the serving certificate does not verify against {bundle}"
    async with run_server(files, "--serving-ca", str(bundle), "--drain", "0s") as server:
        status, text = await server.get("/readyz")
        assert (status, text.startswith(message)) == (503, True)
        (reason,) = json.loads((await server.get("/status"))[1])["notReady"]
        assert reason.startswith(message)
        write_bundle(bundle, other, files.pki)
        await eventually(lambda: _is_ready(server))
        assert json.loads((await server.get("/status"))[1])["notReady"] == []
        bundle.write_text("spoilt")
        await server.wait_for_metric('podgate_file_reloads_total{file="published bundle",result="failure"}', 1)
        await server.wait_for_metric('podgate_file_last_reload_successful{file="published bundle"}', 0)
        files_shown = json.loads((await server.get("/status"))[1])["files"]
        assert {file["name"]: file["error"] for file in files_shown if file["error"]} == {
            "published bundle": f"{bundle}: holds no CA in PEM"
        }
        assert (await server.get("/readyz"))[0] == 200
        names = {file["name"] for file in json.loads((await server.get("/status"))[1])["certificates"]}
        assert names == {"serving", "serving-ca", "client-ca"}


async def _is_ready(server: Serving) -> bool:
    return (await server.get("/readyz"))[0] == 200
