"""Defects that show while etcd has no space: what is counted by Leases, and what was admitted and not stored."""

from tests.chaos.planted.defect import Defect, of

_LEASES = "webhook/adapters/kubernetes/leases/server_leases.py"

DEFECTS = (
    Defect(
        "a refund waits for a version that etcd without space does not make",
        "refunds",
        of("charges"),
        "webhook/controller/never_created_pods.py",
        "            and reached.version >= absence.version",
        "            and reached.version > absence.version",
    ),
    Defect(
        "limits are divided by fewer servers while no Lease can be written",
        "leases",
        of("windows"),
        _LEASES,
        '            self._failure.enter(f"cannot count the servers by {_PLACE}: {error.describe(_RIGHT)}")\n',
        '            self._failure.enter(f"cannot count the servers by {_PLACE}: {error.describe(_RIGHT)}")\n'
        "            self._count(())\n",
    ),
    Defect(
        "servers that could not renew their Leases are not counted afterwards",
        "leases",
        of("windows"),
        _LEASES,
        "for name, sighting in self._seen.items() if not self._lives(sighting)}",
        "for name, sighting in self._seen.items()}",
    ),
)
