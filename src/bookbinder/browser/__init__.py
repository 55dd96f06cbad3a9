"""Find Chromium, and look at the built site in it."""
