"""`podgate policy sign`: the signature of a policy document."""

from pathlib import Path

import click

from webhook.commands.policy_argument import read_document
from webhook.policy_in_force.policy_signatures import sign_document
from webhook.support.input_files import read_content


@click.command()
@click.argument("path", metavar="FILE")
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Private Ed25519 key, PEM.")
def sign(path: str, key: Path) -> None:
    """Print the signature of the policy FILE ("-": standard input), for servers with --policy-keys.

    \b
    openssl genpkey -algorithm ed25519 -out private.pem
    openssl pkey -in private.pem -pubout -out policy-keys.pem       # for --policy-keys
    podgate policy sign policy.yaml --key private.pem > policy.yaml.sig
    kubectl -n podgate-system create configmap podgate-policy --dry-run=client -o yaml \\
        --from-file=policy.yaml --from-file=policy.sig=policy.yaml.sig | kubectl apply -f -

    It is Ed25519 over the bytes of FILE, in base64. Any change of FILE needs another signature.

    Exit code: 0 success, 2 FILE or the key is unreadable.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    document = read_document(path)
    click.echo(sign_document(document, read_content(key, "give the file of a private key"), str(key)))
