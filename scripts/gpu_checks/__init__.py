"""What `scripts/gpu_check` compares."""
