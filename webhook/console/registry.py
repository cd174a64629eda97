"""Registry of pages, acts and forms: the modules of three folders."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from webhook.console import acts, forms, pages
from webhook.console.interface.act import ConsoleAct
from webhook.console.interface.console_form import ConsoleForm
from webhook.console.interface.page import Page


@cache
def list_pages() -> tuple[Page, ...]:
    """Return all pages, those of the menu first, in its order."""
    found: list[Page] = [module.PAGE for module in _load_modules(pages)]
    return tuple(sorted(found, key=lambda page: (page.menu_place is None, page.menu_place, page.name)))


@cache
def list_acts() -> tuple[ConsoleAct, ...]:
    """Return all acts, in the order of their modules; a module has several in `ACTS`, or one in `ACT`."""
    return tuple(act for module in _load_modules(acts) for act in getattr(module, "ACTS", ()) or (module.ACT,))


@cache
def list_forms() -> tuple[ConsoleForm, ...]:
    return tuple(form for module in _load_modules(forms) for form in module.FORMS)


def _load_modules(package: Any) -> list[Any]:
    return [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]
