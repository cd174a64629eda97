"""Proof at policy load: on a corpus of Pods, every rewrite is idempotent and satisfies the policy."""

from webhook.core.proof.prover import Flaw, Proof, RuleIndex, RuleSet, choose_sets, prove

__all__ = ["Flaw", "Proof", "RuleIndex", "RuleSet", "choose_sets", "prove"]
