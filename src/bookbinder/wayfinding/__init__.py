"""What leads a reader through the book: tips, the reference, and links between them."""
