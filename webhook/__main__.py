"""`python -m webhook` is `podgate`."""

from webhook.cli import main

main()
