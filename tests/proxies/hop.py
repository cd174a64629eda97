"""One running proxy with a configuration of manifests/examples, whose addresses, names and folders are replaced."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.processes import ComponentError, Processes, find_free_ports
from tests.harness.proxied_server import Forwarding, pem
from tests.proxies.inventory import program
from tests.timeouts import HANG_SECONDS

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
SERVICE = "podgate.podgate-system.svc"

_FILES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}
_STARTS_MAX = 3


@dataclass(frozen=True)
class Hop:
    """A running proxy and its address for callers."""

    name: str
    address: str
    processes: Processes

    @property
    def log(self) -> str:
        return self.processes.log(self.name, 200)


@contextmanager
def hop(name: str, forwarding: Forwarding, upstream: str, folder: Path, *, more_cas: str = "") -> Iterator[Hop]:
    """Run a proxy in front of `upstream`, HOST:PORT, that also trusts the CAs in `believes`, PEM, for callers."""
    processes = Processes(folder)
    try:
        folder.mkdir()
        _write_material(forwarding, folder, more_cas)
        for attempt in range(1, _STARTS_MAX + 1):
            [port] = find_free_ports(1)
            text = _configuration(name, folder, port, upstream)
            file = folder / _FILES[name]
            file.write_text(text)
            run = f"{name}-{attempt}"
            processes.start(run, _command(name, file, folder))
            if _is_ready(processes, run, port):
                yield Hop(run, f"localhost:{port}", processes)
                return
        raise ComponentError(f"{name} found no free port")
    finally:
        processes.close()


def _write_material(forwarding: Forwarding, folder: Path, more_cas: str) -> None:
    files = forwarding.files
    proxy = pem(forwarding.proxy)
    files.pki.context(forwarding.proxy)  # writes its certificate and key
    stem = f"{forwarding.proxy.certificate.serial_number:x}"
    server = (files.pki.paths.certificate.read_text(), files.pki.paths.key.read_text())
    written = {
        "server.crt": server[0],
        "server.key": server[1],
        "server.pem": "".join(server),
        "proxy.crt": proxy,
        "proxy.key": (files.folder / f"{stem}.key").read_text(),
        "proxy.pem": proxy + (files.folder / f"{stem}.key").read_text(),
        "podgate-ca.crt": (files.folder / "ca.crt").read_text(),
        "callers-ca.crt": (forwarding.callers.folder / "ca.crt").read_text() + more_cas,
    }
    for name, text in written.items():
        path = folder / name
        path.touch(0o600)
        path.write_text(text)


def _configuration(name: str, folder: Path, port: int, upstream: str) -> str:
    """Return the shipped example with replaced addresses, names and folders; each must occur in it."""
    host, _, upstream_port = upstream.rpartition(":")
    text = (EXAMPLES / _FILES[name]).read_text()
    replacements = {
        f"/etc/{name}/tls/": f"{folder}/",
        **(
            {
                f"address: {SERVICE}, port_value: 443": f"address: {host}, port_value: {upstream_port}",
                "address: 0.0.0.0, port_value: 8443": f"address: 127.0.0.1, port_value: {port}",
            }
            if name == "envoy"
            else {f"{SERVICE}:443": upstream, "0.0.0.0:8443": f"127.0.0.1:{port}"}
        ),
        SERVICE: "localhost",  # the name in the certificate of the tests
    }
    for shipped, replacement in replacements.items():
        assert shipped in text, f"{_FILES[name]} does not contain {shipped}"
        text = text.replace(shipped, replacement)
    return text


def _command(name: str, file: Path, folder: Path) -> list[str | Path]:
    match name:
        case "nginx":
            foreground = "daemon off; master_process off; pid nginx.pid;"
            return [program(name), "-p", f"{folder}/", "-e", "stderr", "-c", file, "-g", foreground]
        case "haproxy":
            return [program(name), "-db", "-f", file]
        case "envoy":
            options = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
            return [program(name), "--config-path", file, *options]
    raise AssertionError(f"no proxy {name!r}")


def _is_ready(processes: Processes, run: str, port: int) -> bool:
    """Wait until it listens; return False if another process has taken the port."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0 and processes.is_alive(run):
                return True
        if not processes.is_alive(run):
            if "in use" in processes.log(run):
                return False
            processes.require(run)
        if time.monotonic() > deadline:
            raise ComponentError(f"{run} is not ready:\n{processes.log(run)}")
        time.sleep(0.05)
