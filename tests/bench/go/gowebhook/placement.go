package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"podgate.io/bench/policy"
)

const requiredPath = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"

var (
	zones = Requirement{policy.ZoneKey, policy.ZoneOperator, policy.Zones}

	toleration = Toleration{
		Key:      policy.TolerationKey,
		Operator: policy.TolerationOperator,
		Value:    policy.TolerationValue,
		Effect:   policy.TolerationEffect,
	}
)

// Operation is one of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// mutate returns the patch that places the Pod.
func (webhook *Webhook) mutate(request *Request) (*Response, error) {
	response := &Response{UID: request.UID, Allowed: true}
	operations := operations(&request.Object.Spec)
	if len(operations) == 0 {
		return response, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	response.PatchType, response.Patch = "JSONPatch", patch
	return response, nil
}

// validate denies a Pod that is not placed so.
func (webhook *Webhook) validate(request *Request) (*Response, error) {
	if missing := operations(&request.Object.Spec); len(missing) != 0 {
		message := fmt.Sprintf("%s is not as the policy of namespace %s asks", missing[0].Path, request.Namespace)
		return denied(request, http.StatusForbidden, message), nil
	}
	return &Response{UID: request.UID, Allowed: true}, nil
}

// operations returns what is to be changed; nothing where the Pod is as it should be.
func operations(spec *PodSpec) []Operation {
	var changes []Operation
	if spec.SchedulerName != policy.SchedulerName {
		changes = append(changes, Operation{"add", "/spec/schedulerName", policy.SchedulerName})
	}
	changes = append(changes, affinityOperations(spec.Affinity)...)
	switch {
	case spec.Tolerations == nil:
		changes = append(changes, Operation{"add", "/spec/tolerations", []Toleration{toleration}})
	case !slices.Contains(spec.Tolerations, toleration):
		changes = append(changes, Operation{"add", "/spec/tolerations/-", toleration})
	}
	return changes
}

// affinityOperations adds the zones to each term: terms are alternatives, and the zones are to hold for all.
func affinityOperations(affinity *Affinity) []Operation {
	required := &NodeSelector{Terms: []NodeSelectorTerm{{MatchExpressions: []Requirement{zones}}}}
	switch {
	case affinity == nil:
		return []Operation{{"add", "/spec/affinity", Affinity{&NodeAffinity{required}}}}
	case affinity.NodeAffinity == nil:
		return []Operation{{"add", "/spec/affinity/nodeAffinity", NodeAffinity{required}}}
	case affinity.NodeAffinity.Required == nil || len(affinity.NodeAffinity.Required.Terms) == 0:
		return []Operation{{"add", requiredPath, required}}
	}
	var changes []Operation
	for index, term := range affinity.NodeAffinity.Required.Terms {
		path := fmt.Sprintf("%s/nodeSelectorTerms/%d/matchExpressions", requiredPath, index)
		switch {
		case term.MatchExpressions == nil:
			changes = append(changes, Operation{"add", path, []Requirement{zones}})
		case !slices.ContainsFunc(term.MatchExpressions, isZones):
			changes = append(changes, Operation{"add", path + "/-", zones})
		}
	}
	return changes
}

func isZones(requirement Requirement) bool {
	return requirement.Key == zones.Key && requirement.Operator == zones.Operator &&
		slices.Equal(requirement.Values, zones.Values)
}
