"""From flags and environment to typed settings: all mistakes at once, each with the flag or variable it came from."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from webhook.errors import UserError
from webhook.settings.declared import ControllerSettings, Settings, store_files_of
from webhook.store_access import masked

ENVIRONMENT_PREFIX = "PODGATE_"
_SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
# Kubernetes puts these into every container for each Service whose name starts with `podgate`: not settings.
_SERVICE_LINK = re.compile(r"PODGATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")

_Kind = TypeVar("_Kind", bound=ControllerSettings)


def flag_of(name: str) -> str:
    return f"--{name.replace('_seconds', '').replace('_', '-')}"


def variable_of(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.replace("_seconds", "").upper()


def in_cluster(environment: Mapping[str, str]) -> bool:
    """Return whether this runs in a Pod that may talk to its cluster."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and _SERVICE_ACCOUNT_TOKEN.is_file()


def parse(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Return the server's settings; UserError as below."""
    return parse_as(Settings, flags, environment)


def parse_as(kind: type[_Kind], flags: Mapping[str, str | None], environment: Mapping[str, str]) -> _Kind:
    """Return typed settings of a kind; UserError lists every mistake, each with the flag or variable it came from."""
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for item in fields(kind):
        declared = item.metadata
        source, text = _source(item.name, flags, environment)
        text = declared["default"] if text is None else text
        if text is None:
            values[item.name] = None
            if not declared["optional"]:
                flag, variable = flag_of(item.name), variable_of(item.name)
                mistakes.append(f"{flag}: missing: {declared['meaning']}: give {flag} or {variable}")
            continue
        try:
            values[item.name] = declared["read"](text)
        except ValueError as error:
            shown = masked(text) if declared["secret"] else text
            mistakes.append(f"{source}: {shown!r}: {error}")
    if "store" in values:
        mistakes += [
            f"{_source(f'store_{name}', flags, environment)[0]}: {wrong}"
            for name, wrong in store_files_of(values).mistakes(values["store"]).items()
        ]
    if {"ordinal", "replicas"} <= values.keys() and values["ordinal"] >= (values["replicas"] or 1):
        source, _ = _source("ordinal", flags, environment)
        told = values["replicas"]
        remedy = f"write a number below --replicas, {told}" if told else "give --replicas too, a number above it"
        mistakes.append(f"{source}: '{values['ordinal']}': {remedy}")
    told = [_source(name, flags, environment)[1] for name in ("policy", "kubeconfig")]
    if told == [None, None] and not in_cluster(environment):
        remedy = "give --policy or PODGATE_POLICY, or a --kubeconfig to take it from its cluster"
        mistakes.insert(0, f"--policy: missing, and this is no Pod with a service account's token: {remedy}")
    known = {variable_of(item.name) for item in fields(Settings)}
    mistakes += [
        f"{name}: no such setting: see podgate serve --help"
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name)
    ]
    if mistakes:
        raise UserError("settings:\n" + "\n".join(f"  {mistake}" for mistake in mistakes))
    return kind(**values)


def _source(name: str, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[str, str | None]:
    if flags.get(name) is not None:
        return flag_of(name), flags[name]
    return variable_of(name), environment.get(variable_of(name))
