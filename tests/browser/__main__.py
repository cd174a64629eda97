"""Set-up of `make test`: installs what these tests run."""

from tests.browser.programs import axe, install

if __name__ == "__main__":
    install()
    axe()
