"""Compare the shapes that diagrams draw with the tensors of a pass."""
