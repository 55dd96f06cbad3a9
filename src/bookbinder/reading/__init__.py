"""Read a page: its blocks, listings, prose, and what it looks like as HTML."""
