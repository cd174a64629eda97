package main

// Pod has the fields of a core/v1 Pod that concern its placement.
type Pod struct {
	Metadata Metadata `json:"metadata"`
	Spec     PodSpec  `json:"spec"`
}

// Metadata is that of the Pod.
type Metadata struct {
	Name         string            `json:"name"`
	GenerateName string            `json:"generateName"`
	Namespace    string            `json:"namespace"`
	Labels       map[string]string `json:"labels"`
}

// PodSpec is that of the Pod.
type PodSpec struct {
	SchedulerName string       `json:"schedulerName"`
	Affinity      *Affinity    `json:"affinity"`
	Tolerations   []Toleration `json:"tolerations"`
}

// Affinity has only that to nodes.
type Affinity struct {
	NodeAffinity *NodeAffinity `json:"nodeAffinity,omitempty"`
}

// NodeAffinity has only what is required.
type NodeAffinity struct {
	Required *NodeSelector `json:"requiredDuringSchedulingIgnoredDuringExecution,omitempty"`
}

// NodeSelector is fulfilled by a node that fulfils one of its terms.
type NodeSelector struct {
	Terms []NodeSelectorTerm `json:"nodeSelectorTerms"`
}

// NodeSelectorTerm is fulfilled by a node that fulfils all of it.
type NodeSelectorTerm struct {
	MatchExpressions []Requirement `json:"matchExpressions,omitempty"`
	MatchFields      []Requirement `json:"matchFields,omitempty"`
}

// Requirement is one expression of a term.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// Toleration is one of the Pod's.
type Toleration struct {
	Key               string `json:"key,omitempty"`
	Operator          string `json:"operator,omitempty"`
	Value             string `json:"value,omitempty"`
	Effect            string `json:"effect,omitempty"`
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}
