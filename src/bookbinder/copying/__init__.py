"""What a reader takes away from a page: code that runs elsewhere too."""
