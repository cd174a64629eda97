import errno
import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID

from certs.authority import Authority
from certs.errors import CertsError
from certs.files import read_certificates, read_key_pair, read_private_key, write, write_key_pair
from tests.authentication.client_ca import CA, authority, make_garbled_extension


def test_files_round_trip_and_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    credentials = Authority.create().key_pair
    crt, key = tmp_path / "new" / "a.crt", tmp_path / "new" / "a.key"
    before = os.umask(0)  # the mode must not depend on the caller's umask
    try:
        write_key_pair(credentials, crt, key)
    finally:
        os.umask(before)
    assert (crt.stat().st_mode & 0o777, key.stat().st_mode & 0o777) == (0o644, 0o600)
    key_pair = read_key_pair(crt, key)
    assert key_pair.certificate == credentials.certificate
    assert key_pair.key.private_numbers() == credentials.key.private_numbers()
    assert sorted(path.name for path in crt.parent.iterdir()) == ["a.crt", "a.key"]


@pytest.mark.parametrize("existing", ["a.crt", "a.key"])
def test_files_are_not_replaced_silently_or_written_in_part(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("somebody's")
    with pytest.raises(CertsError, match="already exists"):
        write_key_pair(Authority.create().key_pair, tmp_path / "a.crt", tmp_path / "a.key")
    assert (tmp_path / existing).read_text() == "somebody's"
    assert [path.name for path in tmp_path.iterdir()] == [existing]


def test_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CertsError, match="already exists"):
        write(tmp_path / "a", b"x", secret=True)
    assert not (tmp_path / "elsewhere").exists()


def test_replacement_is_atomic_for_readers(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"old", secret=False)
    with path.open("rb") as stream:
        write(path, b"new", secret=True, replace=True)
        assert stream.read() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("mode", "secret", "kept"),
    [(0o640, True, 0o640), (0o400, True, 0o400), (0o644, True, 0o640), (0o640, False, 0o640), (0o666, False, 0o666)],
)
def test_replaced_file_keeps_its_mode_and_a_key_not_the_rights_of_others(
    tmp_path: Path, mode: int, kept: int, *, secret: bool
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    before = os.umask(0o077)
    try:
        write(path, b"new", secret=secret, replace=True)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == kept


def test_replaced_file_keeps_owner_and_group_or_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, refused, asked = tmp_path / "a", set[int](), []

    def chown(_: int, uid: int, gid: int) -> None:
        asked.append((uid, gid))
        if gid in refused:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    path.write_bytes(b"old")
    path.chmod(0o640)
    known = path.stat()
    monkeypatch.setattr(os, "fchown", chown)
    write(path, b"new", secret=True, replace=True)
    assert asked == [(known.st_uid, -1), (-1, known.st_gid)]
    refused.add(known.st_gid)
    with pytest.raises(CertsError, match="Operation not permitted"):
        write(path, b"newer", secret=True, replace=True)
    assert (path.read_bytes(), [found.name for found in tmp_path.iterdir()]) == (b"new", ["a"])
    path.chmod(0o600)  # its group has no rights
    write(path, b"newer", secret=True, replace=True)
    assert path.read_bytes() == b"newer"


def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write(tmp_path / "link", b"new", secret=True, replace=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"new"


def test_unwritable_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertsError, match="file/a: cannot be written"):
        write(tmp_path / "file" / "a", b"", secret=False)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("text")
    for read in (read_certificates, read_private_key):
        with pytest.raises(CertsError, match="none: cannot be read"):
            read(tmp_path / "none")
        with pytest.raises(CertsError, match="text: holds no"):
            read(text)


def test_certificate_with_a_malformed_extension_is_named(tmp_path: Path) -> None:
    good = Authority.create().key_pair.certificate
    odd = authority(CA, make_garbled_extension(ExtensionOID.NAME_CONSTRAINTS))
    path = tmp_path / "ca.crt"
    path.write_bytes(good.public_bytes(Encoding.PEM) + ssl.DER_cert_to_PEM_cert(odd).encode())
    with pytest.raises(CertsError, match=r"ca\.crt: certificate 2 in it: its extensions cannot be read: "):
        read_certificates(path)
