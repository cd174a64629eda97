"""Objects that a kubelet's message says are missing: Secrets, ConfigMaps and their keys."""

import re

_OBJECT = re.compile(r'(?P<kind>secret|configmap)s? "(?P<name>[^"]+)" not found', re.IGNORECASE)
_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<name>\S+)")
_KEYS = re.compile(r"references non-existent (?P<kind>secret|config) key: (?P<key>\S+)")
_CLAIM = re.compile(r'persistentvolumeclaim "(?P<name>[^"]+)" not found')
_KINDS = {"secret": "Secret", "configmap": "ConfigMap", "config": "ConfigMap"}


def create_it(message: str, namespace: str) -> str:
    """Return what to create, "" if nothing is missing."""
    if found := _OBJECT.search(message):
        name = found["name"].rpartition("/")[2]
        return f"create {_KINDS[found['kind'].lower()]} {name} in namespace {namespace}"
    if found := _KEY.search(message):
        return f"add key {found['key']} to {found['kind']} {found['name']}"
    if found := _KEYS.search(message):
        return f"add key {found['key']} to the {_KINDS[found['kind']]} of the volume"
    if found := _CLAIM.search(message):
        return f"create PersistentVolumeClaim {found['name']} in namespace {namespace}"
    return ""
