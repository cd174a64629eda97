"""Passwords and certificates are those in the files now, and no message shows a password."""

import shutil
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis.exceptions import AuthenticationError, RedisError

from certs.authority import list_server_names
from certs.files import write_key_pair
from tests.adapters.redis_store.transport import KEY, open_link
from tests.harness.identity import Pki
from tests.redis_servers import RedisProgram, RedisServer, behind_tls
from tests.redis_servers.access import acl_file, user
from webhook.adapters.redis_store.transport.credentials import RedisCredentials
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.ports.store_url import StoreFiles

pytest_plugins = ("tests.redis_servers.fixtures",)

OLD, NEW, WRONG = "the-old-password", "the-new-password", "a-wrong-password"


@pytest.fixture
def server(redis_program: RedisProgram, tmp_path: Path) -> Iterator[RedisServer]:
    users = acl_file(tmp_path / "users.acl", user("users", OLD))
    with RedisServer(redis_program, tmp_path / "redis", "--aclfile", str(users)) as running:
        # The script of these tests counts; another test covers the store's script.
        running.cli("ACL", "SETUSER", "podgate", "+incr", "+ping")
        yield running


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    put(path, f"{OLD}\n")
    return path


def url_of(server: RedisServer, user: str = "podgate@") -> str:
    return f"redis://{user}127.0.0.1:{server.port}/0"


def put(path: Path, content: str | bytes | None) -> None:
    """Write a file, or delete it for None."""
    path.unlink() if content is None else path.write_bytes(content if isinstance(content, bytes) else content.encode())


async def cut_connections(link: Transport, server: RedisServer, *how: str) -> None:
    """End the link's connections, and wait until the link notices."""
    server.cli(*(how or ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")))
    with suppress(RedisError):
        while True:
            await link.ping()


async def test_password_rotation_fails_no_call(server: RedisServer, password: Path) -> None:
    async with open_link(url_of(server), StoreFiles(password_file=password)) as link:
        assert await link.run([KEY], b"a") == b"a"
        server.cli("ACL", "SETUSER", "podgate", f">{NEW}")
        put(password, NEW)
        server.cli("ACL", "SETUSER", "podgate", f"<{OLD}")
        assert await link.run([KEY], b"b") == b"b", "on the earlier connection"
        await cut_connections(link, server)
        assert await link.run([KEY], b"c") == b"c", "on a connection with the new password"


@pytest.mark.parametrize("inside", ["file", "url"])
async def test_wrong_password_is_not_shown_and_its_correction_is_read(
    server: RedisServer, password: Path, inside: str
) -> None:
    url = url_of(server) if inside == "file" else url_of(server, f"podgate:{WRONG}@")
    files = StoreFiles(password_file=password) if inside == "file" else StoreFiles()
    put(password, WRONG)
    async with open_link(url, files) as link:
        for _ in range(2):
            with pytest.raises(AuthenticationError, match=f"127.0.0.1:{server.port}: invalid username") as caught:
                await link.run([KEY], b"a")
            assert WRONG not in f"{caught.value!s} {caught.value!r} {link!r} {vars(link)!r}"
        put(password, OLD)
        server.cli("ACL", "SETUSER", "podgate", *([f">{WRONG}"] if inside == "url" else []))
        assert await link.run([KEY], b"b") == b"b"


async def test_replaced_user_is_read_with_its_password(server: RedisServer, tmp_path: Path) -> None:
    files = StoreFiles(username_file=tmp_path / "username", password_file=tmp_path / "password")
    put(tmp_path / "username", "podgate")
    put(tmp_path / "password", OLD)
    async with open_link(url_of(server, ""), files) as link:
        assert await link.run([KEY], b"a") == b"a"
        server.cli("ACL", "SETUSER", "another", "on", f">{NEW}", "~podgate:*", "+@all")
        put(tmp_path / "username", "another\n")
        put(tmp_path / "password", f"{NEW}\r\n")
        await cut_connections(link, server, "ACL", "DELUSER", "podgate")
        assert await link.run([KEY], b"c") == b"c"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
async def test_unusable_password_file_is_named_and_reread(
    server: RedisServer, password: Path, content: bytes | None
) -> None:
    put(password, content)
    async with open_link(url_of(server), StoreFiles(password_file=password)) as link:
        with pytest.raises(RedisError, match=f"{password}: (cannot be read|is empty|is not UTF-8)"):
            await link.ping()
        put(password, OLD)
        await link.ping()


def test_server_error_that_quotes_a_secret_is_not_shown() -> None:
    error = f"unknown command 'AUTH', with args beginning with: 'podgate' '{OLD}'"
    assert OLD not in RedisCredentials("podgate", OLD).redact(error)
    assert OLD not in repr(RedisCredentials("podgate", OLD))


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    made = Pki.create(tmp_path)
    write_key_pair(made.client("podgate"), tmp_path / "client.crt", tmp_path / "client.key")
    return made


@pytest.fixture
def context(pki: Pki) -> ssl.SSLContext:
    """Return the server's context, which requires a client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.folder / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pki.paths.certificate, pki.paths.key)
    return context


async def test_tls_uses_the_private_ca_and_the_client_certificate(
    redis_server: RedisServer, pki: Pki, context: ssl.SSLContext
) -> None:
    client_files = StoreFiles(ca=pki.folder / "ca.crt", cert=pki.folder / "client.crt", key=pki.folder / "client.key")
    async with behind_tls(redis_server, context) as url:
        async with open_link(url, client_files) as link:
            assert await link.run([KEY], b"a" * 1_000_000) == b"a" * 1_000_000
        async with open_link(url, StoreFiles(ca=client_files.ca)) as link:
            with pytest.raises((RedisError, OSError)):  # a server answers after the handshake, or disconnects
                await link.ping()
        async with open_link(url, StoreFiles()) as link:
            with pytest.raises(RedisError, match=r"(?i)certificate.verify.failed"):
                await link.ping()


async def test_changed_tls_files_apply_to_the_next_connection(
    redis_server: RedisServer, pki: Pki, context: ssl.SSLContext, tmp_path: Path
) -> None:
    client_files = StoreFiles(ca=pki.folder / "ca.crt", cert=pki.folder / "client.crt", key=pki.folder / "client.key")
    (tmp_path / "other").mkdir()
    other = Pki.create(tmp_path / "other", "another")
    async with behind_tls(redis_server, context) as url, open_link(url, client_files) as link:
        await link.ping()
        # The server now has another authority's certificate, and requires one of it.
        context.load_cert_chain(other.paths.certificate, other.paths.key)
        context.load_verify_locations(other.folder / "ca.crt")
        assert await link.run([KEY], b"a") == b"a", "an open connection stays"
        await cut_connections(link, redis_server)
        with pytest.raises(RedisError, match=r"(?i)certificate.verify.failed"):
            await link.ping()
        shutil.copy(other.folder / "ca.crt", pki.folder / "ca.crt")
        write_key_pair(other.client("podgate"), pki.folder / "client.crt", pki.folder / "client.key", replace=True)
        assert await link.run([KEY], b"b") == b"b"


async def test_certificate_of_another_host_is_refused(redis_server: RedisServer, pki: Pki) -> None:
    leaf = pki.authority.issue_server("elsewhere", list_server_names("elsewhere"))
    write_key_pair(leaf, pki.folder / "elsewhere.crt", pki.folder / "elsewhere.key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.folder / "elsewhere.crt", pki.folder / "elsewhere.key")
    async with behind_tls(redis_server, context) as url, open_link(url, StoreFiles(ca=pki.folder / "ca.crt")) as link:
        with pytest.raises(RedisError, match=r"(?i)IP address mismatch|certificate is not valid"):
            await link.ping()


BROKEN: dict[str, Callable[[Path], StoreFiles]] = {
    "no authority": lambda wrong: StoreFiles(ca=wrong),
    "no certificate": lambda wrong: StoreFiles(cert=wrong, key=wrong),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_unusable_tls_file_is_named(tmp_path: Path, broken: str) -> None:
    wrong = tmp_path / "wrong.pem"
    put(wrong, "none")
    async with open_link("rediss://127.0.0.1:1/0", BROKEN[broken](wrong)) as link:
        with pytest.raises(RedisError, match=f"{wrong}"):
            await link.ping()
