"""Client certificate rollover in a cluster: certificates per port in the Secret, the port in the webhooks."""

import json
from dataclasses import dataclass, replace
from datetime import datetime

from cryptography import x509

from certs.cluster.api import Api, OvertakenError
from certs.cluster.ca_controller import CLIENT
from certs.cluster.loop import OTHER, Action, TaskResult, format_error
from certs.cluster.secrets import SecretStore, StoredSecret
from certs.cluster.trust_domain import CERTIFICATE, KEY, PEMS
from certs.cluster.webhooks import CONFIGURATIONS, WebhookConfiguration, find
from certs.dual_port_rollover import PORT_DEFAULT, PortCertificate, PortState, SwitchPort, WritePort, find_due_step
from certs.errors import CertsError

PORTS = "doors.json"
"""Key of the Secret: when each port's certificate was written, and since when the port is not in use."""
_ALL = frozenset({PORTS, *PEMS})


@dataclass(frozen=True, slots=True)
class PortSwitch:
    """Task: one step of `dual_port_rollover` at a time, for a Service with these two ports."""

    ports: tuple[int, int]

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:
        at = int(now.timestamp())
        configurations: list[WebhookConfiguration] = []
        errors: list[str] = []
        for place in CONFIGURATIONS:
            try:
                found = await find(api, place)
                configurations += [found] if found is not None else []
            except CertsError as error:
                errors.append(format_error(error))
        try:
            caller = await SecretStore(api).find(CLIENT)
            if CERTIFICATE not in caller.data or KEY not in caller.data:
                return TaskResult(errors=tuple(errors))
            state = self._build_state(configurations, caller, at)
            step = find_due_step(
                replace(state, in_use=state.in_use | _list_noted_ports(state)) if errors else state, at
            )
            match step:
                case WritePort(index, certificate, text):
                    await SecretStore(api).put(CLIENT, caller, _encode_port(caller, index, certificate))
                    action = Action(OTHER, CLIENT, f"certificate for port {self.ports[index]}: {text}")
                    return TaskResult(action, tuple(errors))
                case SwitchPort(to) if not errors:
                    for configuration in configurations:
                        await configuration.set_port(api, self.ports[to])
                    return TaskResult(Action(OTHER, "webhooks", f"switched to port {self.ports[to]}"))
        except OvertakenError:
            return TaskResult(None, tuple(errors), is_overtaken=True)
        except CertsError as error:
            errors.append(format_error(error))
        return TaskResult(None, tuple(errors))

    def _build_state(self, configurations: list[WebhookConfiguration], caller: StoredSecret, now: int) -> PortState:
        numbers = (port for configuration in configurations for port in configuration.ports)
        ports = {port if port is not None else PORT_DEFAULT for port in numbers}
        in_use = frozenset(at for at, port in enumerate(self.ports) if port in ports)
        newest = _build_port(caller.data[CERTIFICATE] + caller.data[KEY], now)
        first, second = _read_ports(caller)
        return PortState(newest, (first, second), in_use, is_elsewhere=not ports <= set(self.ports))


class PortCleanup:
    """Task without a second port: remove per-port certificates, which would otherwise be used until they expire."""

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:  # noqa: ARG002  it is due at any time
        try:
            caller = await SecretStore(api).find(CLIENT)
            if not caller.data.keys() & _ALL:
                return TaskResult()
            await SecretStore(api).drop(CLIENT, caller, _ALL)
        except OvertakenError:
            return TaskResult(is_overtaken=True)
        except CertsError as error:
            return TaskResult(errors=(format_error(error),))
        return TaskResult(Action(OTHER, CLIENT, "removed the certificates per port"))


def _list_noted_ports(state: PortState) -> frozenset[int]:
    """Return the ports in use when all configurations could last be read: an unreadable one may still call them."""
    return frozenset(at for at, port in enumerate(state.ports) if port is not None and port.closed_at is None)


def _read_ports(caller: StoredSecret) -> list[PortCertificate | None]:
    """Return the certificate of each port; None if it cannot be parsed: it is then written again."""
    found: list[PortCertificate | None] = []
    for at, name in enumerate(PEMS):
        try:
            noted = json.loads(caller.data[PORTS])[at]
            port = _build_port(caller.data[name], int(noted["writtenAt"]))
            closed_at = noted["closedAt"]
            found.append(replace(port, closed_at=int(closed_at) if closed_at is not None else None))
        except (KeyError, IndexError, ValueError, TypeError, RecursionError, CertsError):
            found.append(None)
    return found


def _encode_port(caller: StoredSecret, at: int, port: PortCertificate) -> dict[str, bytes]:
    ports = _read_ports(caller)
    ports[at] = port
    rows = [None if each is None else {"writtenAt": each.written_at, "closedAt": each.closed_at} for each in ports]
    return {PEMS[at]: port.pem, PORTS: json.dumps(rows).encode()}


def _build_port(pem: bytes, now: int) -> PortCertificate:
    try:
        ends_at = int(x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp())
    except ValueError:
        raise CertsError(f"Secret {CLIENT}: holds no certificate in PEM", "delete it: a new one is created") from None
    return PortCertificate(pem, ends_at, now)
