"""Manifests of Podgate, as data of the package: `importlib.resources.files("manifests")`."""
