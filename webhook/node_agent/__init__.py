"""Node agent: checks, renews and writes kube-apiserver's credentials for Podgate on a control-plane node."""
