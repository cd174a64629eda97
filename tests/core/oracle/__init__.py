"""What Kubernetes means and what a policy asks, a second time and on raw JSON: it judges our code and calls none."""
