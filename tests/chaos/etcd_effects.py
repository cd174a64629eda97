"""The effects of faults on etcd: on all of it, on what leads it, and on a member, of which a majority stays."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.request import Request, urlopen

from tests.chaos.effect import Build, Effect
from tests.chaos.history import FOUND, PlannedFault
from tests.chaos.lab import Lab
from tests.chaos.parts import Part

_TIMEOUT_SECONDS = 10.0


def spare_majority(lab: Lab, part: Part, act: Callable[[], object]) -> Callable[[], object]:
    """Return the act on a part. OSError as it begins: the part is a member of etcd, and the others are not enough."""

    def begin() -> None:
        for name in lab.form.etcds if part.name in lab.form.etcds else ():
            if name != part.name:
                require_healthy(lab, name)
        act()

    return begin


def require_healthy(lab: Lab, name: str) -> None:
    """OSError: this part is a member of etcd, and not one of its majority now."""
    if name in lab.form.etcds and not (lab.parts[name].process.is_alive() and lab.plane.is_etcd_healthy(name)):
        raise OSError(f"{name} is not healthy")


def _compact(lab: Lab, _: PlannedFault) -> Effect:
    def begin() -> None:
        revision = _ask(lab, "kv/range", {"key": "AA=="})["header"]["revision"]
        _ask(lab, "kv/compaction", {"revision": revision, "physical": True})

    return Effect(begin)


def _kill_leader(lab: Lab, _: PlannedFault) -> Effect:
    killed: list[Part] = []

    def begin() -> Mapping[str, str]:
        part = lab.parts[_find_leader(lab)]
        spare_majority(lab, part, lambda: killed.append(part))()
        part.kill()
        return {FOUND: part.name}

    def heal() -> None:
        for part in killed:
            part.start()

    return Effect(begin, heal)


def _raise_alarm(lab: Lab, _: PlannedFault) -> Effect:
    """Raise the alarm that a member raises itself beyond its quota."""

    def begin() -> None:
        member = _ask(lab, "maintenance/status", {})["header"]["member_id"]
        _ask(lab, "maintenance/alarm", {"action": "ACTIVATE", "memberID": member, "alarm": "NOSPACE"})

    def heal() -> None:
        for alarm in _ask(lab, "maintenance/alarm", {"action": "GET"}).get("alarms", ()):
            _ask(lab, "maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    return Effect(begin, heal)


def _find_leader(lab: Lab) -> str:
    leader = _ask(lab, "maintenance/status", {})["leader"]
    for name in lab.form.etcds:  # while one is away, there is no fault of another one
        if _ask(lab, "maintenance/status", {}, name)["header"]["member_id"] == leader:
            return name
    raise OSError("no member of etcd leads")


def _ask(lab: Lab, call: str, body: Mapping[str, Any], *names: str) -> Any:
    """Return the answer of the first member that answers, of all or of these."""
    failure = OSError("no member")
    for name in names or lab.form.etcds:
        port = lab.plane.ports.etcds[name].client_port
        url = f"http://127.0.0.1:{port}/v3/{call}"
        try:
            with urlopen(Request(url, json.dumps(body).encode()), timeout=_TIMEOUT_SECONDS) as response:
                return json.load(response)
        except OSError as error:
            failure = error
    raise failure


BUILDS: Mapping[str, Build] = {
    "etcd-compaction": _compact,
    "etcd-leader-kill": _kill_leader,
    "etcd-no-space": _raise_alarm,
}
"""By the kind of `fault_kinds`."""
