"""What is minimised: losses, objectives and certificates."""
