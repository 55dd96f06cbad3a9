"""Chromium, and a server for a built site."""
