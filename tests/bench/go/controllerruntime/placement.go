package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"podgate.io/bench/policy"
)

var (
	zones = corev1.NodeSelectorRequirement{
		Key: policy.ZoneKey, Operator: policy.ZoneOperator, Values: policy.Zones,
	}

	toleration = corev1.Toleration{
		Key:      policy.TolerationKey,
		Operator: policy.TolerationOperator,
		Value:    policy.TolerationValue,
		Effect:   policy.TolerationEffect,
	}
)

// placement is the defaulter and the validator of Pods.
type placement struct{}

// Default places a Pod.
func (placement) Default(_ context.Context, pod *corev1.Pod) error {
	if pod.Namespace != policy.Namespace {
		return nil
	}
	pod.Spec.SchedulerName = policy.SchedulerName
	selector := required(pod)
	for index := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[index]
		if !slices.ContainsFunc(term.MatchExpressions, isZones) {
			term.MatchExpressions = append(term.MatchExpressions, zones)
		}
	}
	if !slices.Contains(pod.Spec.Tolerations, toleration) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, toleration)
	}
	return nil
}

// required returns the selector of nodes, with a term.
func required(pod *corev1.Pod) *corev1.NodeSelector {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	selector := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(selector.NodeSelectorTerms) == 0 {
		selector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	return selector
}

// ValidateCreate denies a Pod that is not placed so.
func (placement) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	if pod.Namespace != policy.Namespace {
		return nil, nil
	}
	if pod.Spec.SchedulerName != policy.SchedulerName {
		return nil, fmt.Errorf("spec.schedulerName: %q: must be %q", pod.Spec.SchedulerName, policy.SchedulerName)
	}
	if !slices.Contains(pod.Spec.Tolerations, toleration) {
		return nil, fmt.Errorf("spec.tolerations: must have %s=%s", toleration.Key, toleration.Value)
	}
	for _, term := range required(pod).NodeSelectorTerms {
		if !slices.ContainsFunc(term.MatchExpressions, isZones) {
			return nil, fmt.Errorf("spec.affinity: each term must require %s in %v", zones.Key, zones.Values)
		}
	}
	return nil, nil
}

// ValidateUpdate allows it: what places a Pod does not change.
func (placement) ValidateUpdate(_ context.Context, _, _ *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

// ValidateDelete allows it.
func (placement) ValidateDelete(_ context.Context, _ *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

func isZones(requirement corev1.NodeSelectorRequirement) bool {
	return requirement.Key == zones.Key && requirement.Operator == zones.Operator &&
		slices.Equal(requirement.Values, zones.Values)
}
