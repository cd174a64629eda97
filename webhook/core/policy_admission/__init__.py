"""Admission of policy and overrides documents: reviewed before the API server stores them."""
