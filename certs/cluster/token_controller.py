"""Token controller: the issuer of the API server's tokens, its keys in a Secret, the key set in a ConfigMap."""

from datetime import datetime

from certs import signing_keys
from certs.cluster.api import Api, Json, OvertakenError
from certs.cluster.ca_controller import CLIENT
from certs.cluster.loop import OTHER, Action, TaskResult, format_error
from certs.cluster.secrets import LABELS, MANAGED_BY, NAMESPACE, OURS, SecretStore, StoredSecret
from certs.errors import CertsError
from certs.token_rotation import Issuer, TokenState, find_next_step

KEYS, KEY_SET = "podgate-token-keys", "podgate-jwks"
KEYS_KEY, KEY_SET_KEY, TOKEN = "keys.json", "jwks.json", "token"
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class TokenController:
    """Task: one step of `token_rotation` at a time. Writes are made in the step's order."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:
        store = SecretStore(api)
        try:
            key_set = await _find_key_set(api)
            keys, caller = await store.find(KEYS), await store.find(CLIENT)
            state = _build_state(keys, key_set, caller)
            step = find_next_step(state, self._issuer, int(now.timestamp()))
            if step is None:
                return TaskResult()
            if step.keys is not None:
                await store.put(KEYS, keys, {KEYS_KEY: signing_keys.encode(step.keys)})
            if step.key_set is not None:
                await _publish(api, key_set, step.key_set)
            if step.token is not None:
                await store.put(CLIENT, caller, {TOKEN: step.token.encode()})
        except OvertakenError:
            return TaskResult(is_overtaken=True)
        except CertsError as error:
            return TaskResult(errors=(format_error(error),))
        return TaskResult(Action(OTHER, CLIENT if step.token is not None else KEYS, step.text))


def _build_state(keys: StoredSecret, key_set: Json | None, caller: StoredSecret) -> TokenState:
    stored = keys.data.get(KEYS_KEY)
    text = ((key_set or {}).get("data") or {}).get(KEY_SET_KEY)
    token = caller.data.get(TOKEN)
    return TokenState(
        signing_keys.decode(stored, f"Secret {NAMESPACE}/{KEYS}: {KEYS_KEY}") if stored is not None else (),
        signing_keys.parse_key_set(text.encode() if text is not None else None),
        token.decode(errors="replace").strip() if token is not None else None,
    )


async def _find_key_set(api: Api) -> Json | None:
    """Return the ConfigMap, None if there is none; CertsError if it lacks Podgate's label."""
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
