"""Hold names, commands, links, listings, letters and shapes to what there is."""
