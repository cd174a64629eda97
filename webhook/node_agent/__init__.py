"""kube-apiserver's credentials on a control-plane node: checked, renewed, and written to its folder."""
