"""The issuer of the API server's tokens, in a cluster: its keys in a Secret, their public halves where servers read."""

from datetime import datetime

from certs.cluster.api import Api, Json, OvertakenError
from certs.cluster.ca_controller import CLIENT
from certs.cluster.secrets import LABELS, MANAGED_BY, NAMESPACE, OURS, Kept, Vault
from certs.cluster.tasks import OTHER, Done, Looked, told
from certs.errors import CertsError
from certs.tokens import signing_keys
from certs.tokens.rotation import Issuer, View, next_step

KEYS, KEY_SET = "podgate-token-keys", "podgate-jwks"
KEYS_KEY, KEY_SET_KEY, TOKEN = "keys.json", "jwks.json", "token"
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class Issuing:
    """A Duty: one step of `token_rotation` at a look. What it writes, it writes in the step's order."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def look(self, api: Api, now: datetime) -> Looked:
        vault = Vault(api)
        try:
            key_set = await _key_set(api)
            keys, caller = await vault.find(KEYS), await vault.find(CLIENT)
            view = _view(keys, key_set, caller)
            step = next_step(view, self._issuer, int(now.timestamp()))
            if step is None:
                return Looked()
            if step.keys is not None:
                await vault.put(KEYS, keys, {KEYS_KEY: signing_keys.written(step.keys)})
            if step.key_set is not None:
                await _publish(api, key_set, step.key_set)
            if step.token is not None:
                await vault.put(CLIENT, caller, {TOKEN: step.token.encode()})
        except OvertakenError:
            return Looked(is_overtaken=True)
        except CertsError as error:
            return Looked(troubles=(told(error),))
        return Looked(Done(OTHER, CLIENT if step.token is not None else KEYS, step.text))


def _view(keys: Kept, key_set: Json | None, caller: Kept) -> View:
    kept = keys.data.get(KEYS_KEY)
    text = ((key_set or {}).get("data") or {}).get(KEY_SET_KEY)
    token = caller.data.get(TOKEN)
    return View(
        signing_keys.read(kept, f"Secret {NAMESPACE}/{KEYS}: {KEYS_KEY}") if kept is not None else (),
        signing_keys.published(text.encode() if text is not None else None),
        token.decode(errors="replace").strip() if token is not None else None,
    )


async def _key_set(api: Api) -> Json | None:
    """Return the ConfigMap, None where there is none; CertsError where it is somebody else's."""
    found = await api.get(f"{_CONFIG_MAPS}/{KEY_SET}")
    if found is not None and (found["metadata"].get("labels") or {}).get(MANAGED_BY) != OURS:
        raise CertsError(
            f"ConfigMap {NAMESPACE}/{KEY_SET} is there without the label {MANAGED_BY}={OURS}: it is left alone",
            f"delete it; or hand it over: kubectl label configmap {KEY_SET} -n {NAMESPACE} {MANAGED_BY}={OURS}; "
            "or keep it, without --token-issuer",
        )
    return found


async def _publish(api: Api, found: Json | None, text: str) -> None:
    if found is None:
        metadata = {"name": KEY_SET, "namespace": NAMESPACE, "labels": LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY_SET_KEY: text}}
        await api.create(_CONFIG_MAPS, body)
    else:
        data = {**(found.get("data") or {}), KEY_SET_KEY: text}
        await api.replace(f"{_CONFIG_MAPS}/{KEY_SET}", {**found, "data": data})
