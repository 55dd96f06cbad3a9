"""Run what a page shows, and see what of it ran, what it drew and what it left."""
