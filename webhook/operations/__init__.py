"""Operations of commands on a cluster: install, uninstall, check, explain, overrides, and the discovery of servers."""
