"""A real API server with the webhooks of all ways, and the files that a client needs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.bench.apiserver.webhooks import WAYS
from tests.bench.cpu import CORES, pin_to
from tests.bench.generator import Credentials
from tests.bench.servers import Target
from tests.cluster.admission_configuration import Caller, admission_configuration
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.harness.server_process import Files

API_SERVER, ETCD = "kube-apiserver", "etcd"
_METRIC = "apiserver_admission_webhook_request_total{"


@contextmanager
def api_server(files: Files, targets: Mapping[str, Target]) -> Iterator[ControlPlane]:
    """Run an API server on all cores that calls `targets`, by server name."""
    caller = _caller(files)
    ports = {int(target.address.rpartition(":")[2]): caller for target in targets.values()}
    admission = admission_configuration(files.folder, ports)
    usual = ControlPlane(admission=admission, components=API_ALONE, environment={})
    with pin_to(*CORES), usual as plane:
        bundle = files.pki.paths.client_ca.read_bytes()
        for way in WAYS:
            plane.create_namespace(way.namespace)
            if way.calls:
                plane.apply(*way.configurations(targets[way.server].address, bundle))
        yield plane


def credentials(plane: ControlPlane) -> Credentials:
    """Return those of the administrator."""
    certificate, key = plane.authority.user("kubernetes-admin", "system:masters")
    return Credentials(str(plane.authority.certificate), str(certificate), str(key))


def find_called(plane: ControlPlane) -> set[str]:
    """Return the webhooks that the API server has called, by its metrics."""
    _, text = plane.api.request("GET", "/metrics")
    lines = [line for line in str(text).splitlines() if line.startswith(_METRIC) and 'code="200"' in line]
    return {line.partition('name="')[2].partition('"')[0] for line in lines}


def list_expected(targets: Mapping[str, Target]) -> set[str]:
    """Return the names of the webhooks of all ways."""
    found = [
        configuration
        for way in WAYS
        if way.calls
        for configuration in way.configurations(targets[way.server].address, b"")
    ]
    return {webhook["name"] for configuration in found for webhook in configuration["webhooks"]}


def _caller(files: Files) -> Caller:
    certificate, key = files.pki.client_files(files.caller)
    token = files.folder / "apiserver.token"
    Path(token).write_text(files.signer.token())
    return Caller(certificate, key, token)
