"""The setup, from what the standard library has: nothing is installed yet."""
