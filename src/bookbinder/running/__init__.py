"""Run the code of a page, and record what ran, what it drew and what it changed."""
