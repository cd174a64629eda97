// Package policy is the placement that the compared webhooks give to a Pod: that of the benchmark's policy.
package policy

// Namespace has the Pods that it is about; for gowebhook it is the prefix of their namespaces' names.
const Namespace = "payments"

// SchedulerName is the scheduler of those Pods.
const SchedulerName = "podgate-scheduler"

// The required node affinity: each of its terms asks for one of the zones.
const (
	ZoneKey      = "topology.kubernetes.io/zone"
	ZoneOperator = "In"
)

// Zones are where those Pods may run.
var Zones = []string{"zone-b", "zone-g"}

// The toleration that they have.
const (
	TolerationKey      = "dedicated"
	TolerationOperator = "Equal"
	TolerationValue    = "payments"
	TolerationEffect   = "NoSchedule"
)
