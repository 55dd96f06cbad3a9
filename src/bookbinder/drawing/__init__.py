"""Draw formulas, diagrams, figures and the live model into the built pages."""
