"""The API server's two doors, in a cluster: what is behind them in its Secret, where calls lead in the webhooks."""

import json
from dataclasses import dataclass, replace
from datetime import datetime

from cryptography import x509

from certs.cluster.api import Api, OvertakenError
from certs.cluster.ca_controller import CLIENT
from certs.cluster.secrets import Kept, Vault
from certs.cluster.tasks import OTHER, Done, Looked, told
from certs.cluster.trust_domain import CERTIFICATE, KEY, PEMS
from certs.cluster.webhooks import CONFIGURATIONS, Configuration, find
from certs.dual_port_rollover import PORT_DEFAULT, Door, Put, Turn, View, due
from certs.errors import CertsError

DOORS = "doors.json"
_ALL = frozenset({DOORS, *PEMS})


@dataclass(frozen=True, slots=True)
class Turning:
    """A Duty: one step of `doors` at a look, for a Service with these two ports."""

    ports: tuple[int, int]

    async def look(self, api: Api, now: datetime) -> Looked:
        at = int(now.timestamp())
        configurations: list[Configuration] = []
        troubles: list[str] = []
        for place in CONFIGURATIONS:
            try:
                found = await find(api, place)
                configurations += [found] if found is not None else []
            except CertsError as error:
                troubles.append(told(error))
        try:
            caller = await Vault(api).find(CLIENT)
            if CERTIFICATE not in caller.data or KEY not in caller.data:
                return Looked(troubles=tuple(troubles))
            view = self._view(configurations, caller, at)
            step = due(replace(view, in_use=view.in_use | _noted(view)) if troubles else view, at)
            match step:
                case Put(door, to_be, text):
                    await Vault(api).put(CLIENT, caller, _with(caller, door, to_be))
                    done = Done(OTHER, CLIENT, f"the door at port {self.ports[door]}: {text}")
                    return Looked(done, tuple(troubles))
                case Turn(to) if not troubles:
                    for one in configurations:
                        await one.lead_to(api, self.ports[to])
                    return Looked(Done(OTHER, "webhooks", f"calls turn to port {self.ports[to]}"))
        except OvertakenError:
            return Looked(None, tuple(troubles), is_overtaken=True)
        except CertsError as error:
            troubles.append(told(error))
        return Looked(None, tuple(troubles))

    def _view(self, configurations: list[Configuration], caller: Kept, now: int) -> View:
        ports = {port if port is not None else PORT_DEFAULT for one in configurations for port in one.ports}
        in_use = frozenset(at for at, port in enumerate(self.ports) if port in ports)
        newest = _door(caller.data[CERTIFICATE] + caller.data[KEY], now)
        first, second = _read(caller)
        return View(newest, (first, second), in_use, is_elsewhere=not ports <= set(self.ports))


class Closing:
    """A Duty where there are no doors: what was put behind them once would be shown until it has expired."""

    async def look(self, api: Api, now: datetime) -> Looked:  # noqa: ARG002  it is due whenever
        try:
            caller = await Vault(api).find(CLIENT)
            if not caller.data.keys() & _ALL:
                return Looked()
            await Vault(api).drop(CLIENT, caller, _ALL)
        except OvertakenError:
            return Looked(is_overtaken=True)
        except CertsError as error:
            return Looked(troubles=(told(error),))
        return Looked(Done(OTHER, CLIENT, "nothing stands behind doors any more"))


def _noted(view: View) -> frozenset[int]:
    """Return the doors that were in use when all configurations could be read: one that cannot may lead there still."""
    return frozenset(at for at, door in enumerate(view.doors) if door is not None and door.closed_at is None)


def _read(caller: Kept) -> list[Door | None]:
    """Return what is behind the doors; None where that is not to be understood: it is put there anew."""
    found: list[Door | None] = []
    for at, name in enumerate(PEMS):
        try:
            noted = json.loads(caller.data[DOORS])[at]
            door = _door(caller.data[name], int(noted["writtenAt"]))
            closed_at = noted["closedAt"]
            found.append(replace(door, closed_at=int(closed_at) if closed_at is not None else None))
        except (KeyError, IndexError, ValueError, TypeError, CertsError):
            found.append(None)
    return found


def _with(caller: Kept, at: int, door: Door) -> dict[str, bytes]:
    doors = _read(caller)
    doors[at] = door
    rows = [{"writtenAt": one.written_at, "closedAt": one.closed_at} if one is not None else None for one in doors]
    return {PEMS[at]: door.pem, DOORS: json.dumps(rows).encode()}


def _door(pem: bytes, now: int) -> Door:
    try:
        ends_at = int(x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp())
    except ValueError:
        raise CertsError(f"Secret {CLIENT}: holds no certificate in PEM", "delete it: it is made anew") from None
    return Door(pem, ends_at, now)
