"""The rights that docs/overrides.md names, for users who write overrides."""

OVERRIDES = "podgate-overrides"
READ_POLICY = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["podgate-policy"], "verbs": ["get"]}
CHANGE_OVERRIDES = {
    "apiGroups": [""],
    "resources": ["configmaps"],
    "resourceNames": [OVERRIDES],
    "verbs": ["get", "update"],
}
CREATE_CONFIG_MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}
