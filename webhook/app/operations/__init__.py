"""Compositions of the commands that operate an installation, with the user's kubeconfig."""
