"""Compute the formulas of a page from the values of its runs."""
