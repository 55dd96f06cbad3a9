"""Ask what stands behind each number that a reader meets."""
