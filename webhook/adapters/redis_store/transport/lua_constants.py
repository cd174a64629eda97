"""Constants of the Lua script, rendered from the breaker's states, causes, transition table and limits."""

from collections.abc import Mapping

from webhook.core.breaker import EXPIRED, HELD, TRANSITIONS, State, TransitionCause
from webhook.core.breaker.manual import EXCUSED_MAX, EXCUSED_US, FORCED_BY
from webhook.core.breaker.record import EVERY_SOURCE, SHUT
from webhook.core.breaker.triggers import FAILED_MAX

_Value = str | bool | int | Mapping[str, "_Value"]


def rendered() -> str:
    """Return a Lua chunk that defines one local table, BREAKER. The text is the same in every process."""
    return f"-- Rendered from webhook/core/breaker.\nlocal BREAKER = {_lua(_tables())}\n"


def literals() -> Mapping[str, str]:
    """Return the literals of the other constants, by name."""
    values: Mapping[str, _Value] = {
        "HELD": HELD,
        "EXPIRED": EXPIRED,
        "FAILED_MAX": FAILED_MAX,
        "EXCUSED_MAX": EXCUSED_MAX,
        "EXCUSED_US": EXCUSED_US,
        "EVERY_SOURCE": EVERY_SOURCE,
    }
    return {name: _lua(value) for name, value in values.items()}


def _tables() -> Mapping[str, _Value]:
    return {
        "CAUSE": {cause.name: cause.value for cause in TransitionCause},
        "NEXT": {
            state.value: {cause.value: new.value for (old, cause), new in TRANSITIONS.items() if old is state}
            for state in State
        },
        "FORCED_BY": {state.value: cause.value for state, cause in FORCED_BY.items()},
        "IS_FORCED": {state.value: True for state in State if state.is_forced},
        "IS_TRIPPED": {state.value: True for state in State if state.is_tripped},
        "SHUT": {state.value: rank for state, rank in SHUT.items()},
    }


def _lua(value: _Value) -> str:
    """Return a Lua literal. Keys are identifiers, and strings contain neither double quotes nor backslashes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return "{" + ", ".join(f"{key} = {_lua(one)}" for key, one in value.items()) + "}"
