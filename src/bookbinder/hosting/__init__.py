"""What runs on the public host, beside the commands that a person runs too."""
