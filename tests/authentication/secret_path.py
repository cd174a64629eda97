"""Helpers of the `secret_path` tests that other tests use, too."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.harness.identity import Pki, Signer
from tests.harness.server_process import POLICY, Files, Serving, run_server

SECRET = "kq3vzx8lmt0abcd4efgh7ij2nopr6suwy5" + "first"


OTHER = "zt7uwq2xnm9bvc4lkj8hgf3dsa6poiyre1" + "other"


@dataclass
class Reduced(Files):
    """Files of a server in reduced mode, which has no identities of callers."""

    @property
    def path_file(self) -> Path:
        return self.folder / "path"

    @classmethod
    def create_in(cls, folder: Path, *secrets: str) -> "Reduced":
        pki = Pki.create(folder)
        files = cls(folder, pki, Signer(), Signer(), pki.client())
        files.policy.write_text(POLICY)
        files.path_file.write_text("\n".join(secrets or (SECRET,)) + "\n")
        return files

    def arguments(self) -> list[str]:
        paths = self.pki.paths
        return [
            *("--policy", str(self.policy)),
            *("--tls-cert", str(paths.certificate), "--tls-key", str(paths.key)),
            *("--client-identity", "reduced", "--reduced-path-file", str(self.path_file)),
            *("--listen", "127.0.0.1:0", "--plain-listen", "127.0.0.1:0"),
        ]


@asynccontextmanager
async def run_reduced_server(
    folder: Path, *arguments: str, secrets: Sequence[str] = (SECRET,), tree: Path | None = None
) -> AsyncIterator[Serving]:
    """Run a server in reduced mode; calls to it have neither certificate nor token."""
    files = Reduced.create_in(folder, *secrets)
    async with run_server(files, *arguments, tree=tree) as server:
        server.context = files.pki.context()
        yield server
