"""Help readers find their way: glossary tips, the reference, and links between them."""
