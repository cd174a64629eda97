"""The proof at policy load: on a corpus of Pods, rewriting comes to rest and leaves each as its policy wants it."""

from webhook.core.proof.prover import Flaw, Proof, prove

__all__ = ["Flaw", "Proof", "prove"]
