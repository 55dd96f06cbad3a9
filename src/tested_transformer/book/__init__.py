"""What the book alone uses: the museum, the implementations, microgpt, the plots."""
