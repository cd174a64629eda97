"""Diagnosis of Pods: why one does not run, from records of its review and from what the cluster shows."""

from webhook.core.diagnosis.facts import PodFacts, Surroundings, WorkloadFacts
from webhook.core.diagnosis.pod_diagnosis import diagnose
from webhook.core.diagnosis.report import Fate, Report
from webhook.core.diagnosis.workload_diagnosis import diagnose_workload

__all__ = ["Fate", "PodFacts", "Report", "Surroundings", "WorkloadFacts", "diagnose", "diagnose_workload"]
