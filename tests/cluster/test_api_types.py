"""The recorded types of the API server's fields are those of the running one."""

from tests.adapters.kubernetes.api_types import GOLDEN, compact, render_schemas
from tests.cluster.controlplane import ControlPlane


def test_recorded_types_are_those_of_the_api_server(api_alone: ControlPlane, *, refresh_goldens: bool) -> None:
    text = render_schemas(compact(api_alone.api.get))
    if refresh_goldens:
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text
