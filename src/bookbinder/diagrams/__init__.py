"""Compare diagrams with the passes of tensors that they draw."""
