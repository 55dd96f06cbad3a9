"""Hold names, links, letters of formulas and shapes in prose to what there is."""
